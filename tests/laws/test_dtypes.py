"""Dtypes: floats come back as they came, positions are int32, nothing is promoted by luck."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.catalogue import CAST, EXAMPLES, same_bits


@pytest.mark.parametrize("example", CAST, ids=str)
def test_result_has_the_dtype_of_the_floats_given(example):
    given = {g.dtype for g in example.arguments if jnp.issubdtype(g.dtype, jnp.floating)}
    assert {example.call(*example.arguments).dtype} == given


@pytest.mark.parametrize("example", [e for e in EXAMPLES if "position_" in str(e)], ids=str)
def test_positions_are_int32(example):
    assert example.call(*example.arguments).dtype == np.int32


@pytest.mark.parametrize("example", EXAMPLES + CAST, ids=str)
def test_strict_promotion_finds_no_implicit_one(example):
    with jax.numpy_dtype_promotion("strict"):
        strict = example.call(*example.arguments)
    same_bits(strict, example.call(*example.arguments))
