"""Masks: which query sees which key, how they combine, and which way round they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_input.attention import dot_product_attention
from jax_input.masks import (
    block_diagonal_mask,
    causal_mask,
    local_window_mask,
    mask_to_bias,
    padding_mask,
    segment_mask,
)

DTYPES = [np.float32, jnp.bfloat16, np.float16]


def booleans(rows):
    return np.array(rows, bool)


def band(seq_len, left, right):
    offset = np.arange(seq_len)[None, :] - np.arange(seq_len)[:, None]
    return (offset >= -left) & (offset <= right)


# Values


def test_padding_is_hidden_from_every_query():
    is_token = booleans([[1, 1, 0], [1, 1, 1]])
    mask = padding_mask(is_token)
    assert mask.dtype == np.bool_
    np.testing.assert_array_equal(mask, is_token[:, None, None, :])


@pytest.mark.parametrize("seq_len", [1, 4, 9])
def test_a_causal_query_sees_itself_and_what_was_before(seq_len):
    mask = causal_mask(seq_len)
    assert mask.dtype == np.bool_
    np.testing.assert_array_equal(mask, np.tri(seq_len, dtype=bool)[None, None])


@pytest.mark.parametrize("window", [0, 1, 5, 99, 2**62, np.int32(2), (2, 0), (0, 2), (1, 2**40)])
def test_a_window_is_a_band(window):
    left, right = window if isinstance(window, tuple) else (window, window)
    expected = band(6, left, right)[None, None]
    np.testing.assert_array_equal(local_window_mask(6, window), expected)


def test_the_window_is_the_local_window_size_of_jax_nn():
    x = np.random.default_rng(0).standard_normal((3, 1, 7, 2, 4)).astype(np.float32)
    theirs = jax.nn.dot_product_attention(*x, local_window_size=(2, 1))
    ours = jax.nn.dot_product_attention(*x, mask=local_window_mask(7, (2, 1)))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("seq_len", "block_size"), [(10, 4), (3, 1), (3, 2**31), (8, 4)])
def test_blocks_stand_along_the_diagonal(seq_len, block_size):
    block = np.arange(seq_len) // min(block_size, seq_len)
    expected = block[:, None] == block[None, :]
    np.testing.assert_array_equal(block_diagonal_mask(seq_len, block_size), expected[None, None])


@pytest.mark.parametrize("kind", [np.int32, np.int8, np.uint32, np.int64, list])
def test_equal_segments_see_each_other(kind):
    ids = [[7, 7, 1], [0, 1, 0]]
    mask = segment_mask(ids if kind is list else np.array(ids, kind))
    assert mask.shape == (2, 1, 3, 3)
    np.testing.assert_array_equal(
        mask[:, 0],
        booleans([[[1, 1, 0], [1, 1, 0], [0, 0, 1]], [[1, 0, 1], [0, 1, 0], [1, 0, 1]]]),
    )


def test_segments_that_agree_in_their_lower_32_bits_stay_apart():
    for ids in (np.array([[1, 1 + 2**32, -(2**40)]]), [[1, 1 + 2**32, -(2**40)]]):
        np.testing.assert_array_equal(segment_mask(ids)[0, 0], np.eye(3, dtype=bool))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_bias_is_0_or_the_least_finite_number(dtype):
    bias = mask_to_bias(causal_mask(3), dtype)
    assert bias.dtype == dtype
    expected = np.where(np.tri(3, dtype=bool), 0, float(jnp.finfo(dtype).min))[None, None]
    np.testing.assert_array_equal(np.asarray(bias, np.float64), expected)


def test_a_bias_is_float32_by_default_and_float64_where_there_is_such():
    assert mask_to_bias(causal_mask(2)).dtype == np.float32
    with jax.enable_x64(True):
        bias = mask_to_bias(causal_mask(2), np.float64)
    assert float(bias[0, 0, 0, 1]) == np.finfo(np.float64).min
    with pytest.raises(ValueError, match="`dtype` is float64, which JAX has only where x64 is on"):
        mask_to_bias(causal_mask(2), np.float64)


def test_a_mask_takes_a_quarter_of_the_bytes_of_a_bias():
    mask = causal_mask(512)
    assert mask.nbytes == 512**2
    assert 4 * mask.nbytes == mask_to_bias(mask).nbytes


# Combined: by logic, so that no sentinel is added to another.


@pytest.mark.parametrize("dtype", DTYPES)
def test_padding_causal_and_window_combined_give_one_sentinel_and_a_finite_softmax(dtype):
    # The first query of row 0 is masked by padding, and sees nothing else: by all three.
    with pytest.warns(UserWarning, match="row 0"):
        padding = padding_mask(booleans([[0, 1, 1, 0], [1, 1, 1, 0]]))
    mask = padding & causal_mask(4) & local_window_mask(4, 1)
    expected = (
        booleans([[0, 1, 1, 0], [1, 1, 1, 0]])[:, None, None]
        & np.tri(4, dtype=bool)
        & band(4, 1, 1)
    )
    np.testing.assert_array_equal(mask, expected)
    bias = mask_to_bias(mask, dtype)
    assert set(np.unique(np.asarray(bias, np.float64))) == {float(jnp.finfo(dtype).min), 0}
    assert np.isfinite(np.asarray(jax.nn.softmax(bias, axis=-1), np.float32)).all()
    # What is added elsewhere: -inf in every dtype.
    both = mask_to_bias(padding, dtype) + mask_to_bias(causal_mask(4), dtype)
    assert np.isinf(np.asarray(both, np.float32)).any()

    x = np.random.default_rng(0).standard_normal((3, 2, 4, 1, 8)).astype(dtype)
    output = dot_product_attention(*x, mask=mask)
    assert np.isfinite(np.asarray(output, np.float32)).all()
    assert not np.asarray(output[0, 0]).any()
    kept = mask_to_bias(mask, dtype) == 0
    np.testing.assert_array_equal(output, dot_product_attention(*x, mask=kept))


def test_masks_combine_by_or_as_well():
    either = causal_mask(5) | local_window_mask(5, (0, 1))
    np.testing.assert_array_equal(either, band(5, 5, 1)[None, None])


# The wrong way round


@pytest.mark.parametrize(
    ("side", "row", "end", "other"),
    [
        ("right", [0, 0, 1, 1], "first", "left"),
        ("right", [0, 1, 1, 1], "first", "left"),
        ("left", [1, 1, 0, 0], "last", "right"),
    ],
)
def test_an_inverted_padding_mask_is_told(side, row, end, other):
    with pytest.warns(UserWarning, match=f"hides the {end} position of row 1 ") as caught:
        padding_mask(booleans([[1, 1, 1, 1], row]), padding_side=side)
    message = str(caught[0].message)
    assert "pass ~is_token" in message
    assert f'padding is on the {other}, say padding_side="{other}"' in message
    assert caught[0].filename == __file__


def test_the_mask_of_ids_5_6_0_0_warns_the_wrong_way_round_alone():
    token_ids = jnp.array([[5, 6, 0, 0]])
    assert padding_mask(token_ids != 0).ravel().tolist() == [True, True, False, False]
    with pytest.warns(UserWarning, match="position of row 0"):
        padding_mask(token_ids == 0)


@pytest.mark.parametrize(
    ("side", "rows"),
    [
        ("right", [[1, 0, 1], [0, 0, 0]]),
        ("left", [[0, 0, 1], [0, 0, 0]]),
        ("any", [[0, 1, 0], [1, 0, 1]]),
    ],
)
def test_other_padding_masks_give_no_warning(side, rows):  # which would be an error here
    np.testing.assert_array_equal(
        padding_mask(booleans(rows), padding_side=side)[:, 0, 0], booleans(rows)
    )


def test_traced_and_empty_masks_give_no_warning():
    wrong = booleans([[0, 1]])
    np.testing.assert_array_equal(jax.jit(padding_mask)(wrong)[:, 0, 0], wrong)
    assert padding_mask(np.ones((2, 0), bool)).shape == (2, 1, 1, 0)
    assert padding_mask(np.ones((0, 3), bool)).shape == (0, 1, 1, 3)
