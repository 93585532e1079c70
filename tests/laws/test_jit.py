"""Compiled or not, with constants or arguments: the same bits and dtypes."""

import jax
import pytest

from tests.catalogue import CAST, EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES + CAST, ids=str)
def test_jit_gives_the_bits_of_eager(example):
    example.agree(jax.jit(example.call)(*example.arguments), example.call(*example.arguments))


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_constants_give_the_bits_of_arguments(example):
    constant = jax.jit(lambda: jax.jit(example.call)(*example.arguments))
    example.agree(constant(), example.call(*example.arguments))
