"""No call leaves anything behind: A, then B, then A again gives A."""

import jax
import numpy as np
import pytest

from tests.catalogue import EXAMPLES, same_bits


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_other_calls_in_between_change_nothing(example):
    first = np.array(example.call(*example.arguments))
    for other in EXAMPLES:
        if other.function is example.function:
            other.call(*other.arguments)
            jax.jit(other.call)(*other.arguments)
    same_bits(example.call(*example.arguments), first)
    example.agree(jax.jit(example.call)(*example.arguments), first)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_arguments_are_left_as_they_were(example):
    given = [a for a in example.arguments if isinstance(a, np.ndarray)]
    before = [a.copy() for a in given]
    jax.block_until_ready(example.call(*example.arguments))
    for argument, copy in zip(given, before, strict=True):
        np.testing.assert_array_equal(argument, copy)
