"""The catalogue itself: it names every public function, and its calls give what they should."""

import inspect

import jax
import numpy as np
import pytest

import jax_input
from tests.catalogue import EXAMPLES, same_bits, variants


def test_every_public_function_is_in_the_catalogue():
    public = {getattr(jax_input, name) for name in jax_input.__all__}
    functions = {value for value in public if inspect.isfunction(value)}
    assert {value.__name__ for value in functions} <= {e.function.__name__ for e in EXAMPLES}


def test_no_two_examples_share_a_name():
    names = [str(example) for example in EXAMPLES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_examples_give_an_array_with_something_in_it(example):
    result = example.call(*example.arguments)
    assert isinstance(result, jax.Array)
    assert np.any(np.nan_to_num(np.asarray(result, np.float64)) != 0)


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e.arguments], ids=str)
def test_variants_differ_so_that_a_law_over_them_says_something(example):
    first, *others = (example.call(*arguments) for arguments in variants(example))
    for other in others:
        with pytest.raises(AssertionError):
            same_bits(first, other)
