"""`jax.nn`'s attention as an ``attention_fn``: the same results, and what it refuses."""

import jax
import numpy as np
import pytest

from jax_input.attention import dot_product_attention
from jax_input.library_attention import jax_nn_attention
from jax_input.masks import causal_mask, padding_mask
from tests.jax_input.encoder_float64 import draw

IS_TOKEN = np.arange(5) < np.array([[5], [3]])
MASK = padding_mask(IS_TOKEN) & causal_mask(5)


def vectors():
    return [draw((2, 5, 3, 4), seed=seed) for seed in range(3)]


@pytest.mark.parametrize("mask", [None, MASK, MASK & (np.arange(5) > 0)[None, None, None]])
def test_it_averages_as_ours_does_and_gives_0_to_a_query_without_a_key(mask):
    query, key, value = vectors()
    if mask is not None:
        value[1, 3:] = np.nan
    ours, theirs = (
        attend(query, key, value, mask=mask) for attend in (dot_product_attention, jax_nn_attention)
    )
    # Sums of at most 5 terms, of values below 4.
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=5 * 4 * 4 * np.finfo(np.float32).eps)
    if mask is not None and not mask[0, 0, 0].any():
        assert not np.asarray(theirs[:, 0]).any()


@pytest.mark.parametrize("options", [{}, {"dropout_rate": 0}])
def test_a_key_that_would_drop_nothing_is_not_used(options):
    plain = jax_nn_attention(*vectors())
    given = jax_nn_attention(*vectors(), dropout_key=jax.random.key(0), **options)
    np.testing.assert_array_equal(given, plain)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"dropout_rate": 0.5, "dropout_key": jax.random.key(0)}, ValueError, "`dropout_key`"),
        ({"matmul_precision": "highest"}, ValueError, "`matmul_precision`"),
        ({"return_weights": True}, ValueError, "`return_weights`"),
        ({"bias": 1}, TypeError, "`bias` is no option"),
    ],
)
def test_what_it_cannot_do_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        jax_nn_attention(*vectors(), **options)
