"""Masks of PyTorch, each converted by its own function."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_input.attention import dot_product_attention
from jax_input.mask_conventions import (
    mask_from_attn_mask,
    mask_from_bias,
    mask_from_key_padding,
    mask_from_sdpa,
)
from jax_input.masks import causal_mask, local_window_mask, mask_to_bias, padding_mask

TOKENS = np.array([[5, 6, 0, 0], [3, 4, 5, 0]])
DRAWN = np.random.default_rng(0).random((6, 4, 4)) < 0.5  # batch 2, 3 heads
DTYPES = [np.float32, jnp.bfloat16, np.float16]


# Values


def test_key_padding_is_turned_round():
    mask = mask_from_key_padding(TOKENS == 0)
    assert mask.dtype == np.bool_
    np.testing.assert_array_equal(mask, padding_mask(TOKENS != 0))


def test_an_attn_mask_is_turned_round():
    mask = mask_from_attn_mask(~np.tri(4, dtype=bool))
    np.testing.assert_array_equal(mask, causal_mask(4))


@pytest.mark.parametrize("num_heads", [1, 2, 3, 6, np.int64(3)])
def test_heads_of_an_attn_mask_count_within_each_example(num_heads):
    mask = mask_from_attn_mask(DRAWN, num_heads=num_heads)
    assert mask.shape == (6 // num_heads, num_heads, 4, 4)
    for row in range(6):
        np.testing.assert_array_equal(mask[row // num_heads, row % num_heads], ~DRAWN[row])


@pytest.mark.parametrize("axes", [2, 3, 4])
def test_the_mask_of_sdpa_keeps_its_sense(axes):
    given = DRAWN.reshape(2, 3, 4, 4)[(0,) * (4 - axes)]
    mask = mask_from_sdpa(given)
    assert mask.shape == (1,) * (4 - axes) + given.shape
    np.testing.assert_array_equal(mask[(0,) * (4 - axes)], given)


def test_the_same_mask_by_every_convention():
    kept = np.tri(4, dtype=bool) & np.array([1, 1, 1, 0], bool)
    expected = kept[None, None]
    of_keys = mask_from_key_padding(np.array([[0, 0, 0, 1]], bool))
    for mask in (
        mask_from_attn_mask(~np.tri(4, dtype=bool)) & of_keys,
        mask_from_sdpa(kept),
        mask_from_bias(np.where(kept, 0, -np.inf).astype(np.float32)),
        mask_from_bias(np.where(kept, 0, -1e9).astype(np.float32)),
    ):
        np.testing.assert_array_equal(mask, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hidden", ["min", -np.inf, -1e4, -1000.0, "min + min"])
def test_a_bias_is_hidden_where_it_is_very_negative(dtype, hidden):
    if isinstance(hidden, str):
        hidden = float(jnp.finfo(dtype).min) * (1 if hidden == "min" else 2)
    bias = np.where(np.tri(4, dtype=bool), 0, hidden)
    with np.errstate(over="ignore"):
        bias = bias.astype(dtype)
    np.testing.assert_array_equal(mask_from_bias(bias), causal_mask(4))
    np.testing.assert_array_equal(jax.jit(mask_from_bias)(bias), causal_mask(4))


@pytest.mark.parametrize("dtype", DTYPES)
def test_three_biases_added_give_the_mask_of_the_three_combined(dtype):
    masks = [padding_mask(TOKENS != 0), causal_mask(4), local_window_mask(4, 1)]
    added = sum(mask_to_bias(mask, dtype) for mask in masks)
    assert np.isinf(np.asarray(added, np.float32)).any()
    mask = mask_from_bias(added)
    np.testing.assert_array_equal(mask, masks[0] & masks[1] & masks[2])
    x = np.random.default_rng(1).standard_normal((3, 2, 4, 1, 8)).astype(dtype)
    assert np.isfinite(np.asarray(dot_product_attention(*x, mask=mask), np.float32)).all()


def test_negative_zero_may_attend_and_nan_may_not_come():
    assert mask_from_bias(np.array([[-0.0, -1e9]], np.float32)).ravel().tolist() == [True, False]
    with pytest.raises(ValueError, match=r"`bias` holds nan at \[0, 0, 0, 1\]"):
        mask_from_bias(np.array([[0, np.nan]], np.float32))


def test_biases_keep_their_axes():
    bias = np.zeros((2, 1, 1, 4), np.float32)
    assert mask_from_bias(bias).shape == (2, 1, 1, 4)
    assert mask_from_bias(bias[0]).shape == (1, 1, 1, 4)
    assert mask_from_bias(bias[0, 0]).shape == (1, 1, 1, 4)


def test_traced_biases_may_attend_wherever_they_do_not_hide():
    bias = np.array([[0, 1, -999, -1000]], np.float32)
    traced = jax.jit(mask_from_bias)(bias)
    assert traced.ravel().tolist() == [True, True, True, False]


@pytest.mark.parametrize("num_heads", [1, 2])
def test_the_masks_are_those_of_pytorch(num_heads):
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(2)
    x = generator.standard_normal((2, 4, 8))
    hidden = generator.random((2 * num_heads, 4, 4)) < 0.4
    hidden[:, :, 0] = False  # or PyTorch gives NaN
    padding = np.array([[0, 0, 0, 1], [0, 0, 1, 1]], bool)
    module = torch.nn.MultiheadAttention(8, num_heads, batch_first=True, dtype=torch.float64)
    inputs = torch.from_numpy(x)
    _, theirs = module(
        *(inputs, inputs, inputs),
        key_padding_mask=torch.from_numpy(padding),
        attn_mask=torch.from_numpy(hidden),
        average_attn_weights=False,
    )
    mask = mask_from_key_padding(padding) & mask_from_attn_mask(hidden, num_heads=num_heads)
    np.testing.assert_array_equal(theirs.detach().numpy() != 0, mask)


# Refused


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (mask_from_key_padding, "key_padding_mask"),
        (mask_from_attn_mask, "attn_mask"),
        (mask_from_sdpa, "attn_mask"),
    ],
)
def test_masks_that_are_not_boolean_are_refused(function, name):
    message = f"`{name}` must be boolean with True = may attend, got float32. For 0 = may attend"
    with pytest.raises(TypeError, match=re.escape(message) + ".*`mask_from_bias`"):
        function(np.zeros((2, 3), np.float32))
    with pytest.raises(TypeError, match=f"`{name}` must be .* got uint8. For 1 = may attend write"):
        function(np.zeros((2, 3), np.uint8))


@pytest.mark.parametrize("shape", [(3,), (2, 1, 1, 3)])
def test_key_padding_needs_two_axes(shape):
    message = f"`key_padding_mask` must have shape [batch, key], got {list(shape)}."
    with pytest.raises(ValueError, match=re.escape(message)):
        mask_from_key_padding(np.zeros(shape, bool))


@pytest.mark.parametrize("shape", [(3,), (1, 1, 3, 3)])
def test_an_attn_mask_needs_two_axes_or_three(shape):
    message = (
        "`attn_mask` must have shape [query, key] or [batch * num_heads, query, key], got "
        f"{list(shape)}. For the mask of scaled_dot_product_attention, where True = may attend, "
        "use `mask_from_sdpa`."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        mask_from_attn_mask(np.zeros(shape, bool))


@pytest.mark.parametrize("num_heads", [None, 4])
def test_the_number_of_heads_has_to_divide_the_first_axis(num_heads):
    message = f"`num_heads` must divide the first axis of `attn_mask`, 6, got {num_heads}."
    with pytest.raises(ValueError, match=re.escape(message)):
        mask_from_attn_mask(DRAWN, num_heads=num_heads)
    with pytest.raises(TypeError, match="`num_heads` must be a Python integer, got str '2'"):
        mask_from_attn_mask(DRAWN, num_heads="2")


@pytest.mark.parametrize("shape", [(3,), (1, 1, 1, 3, 3)])
def test_sdpa_and_bias_need_two_to_four_axes(shape):
    for function, name, dtype in (
        (mask_from_sdpa, "attn_mask", bool),
        (mask_from_bias, "bias", np.float32),
    ):
        message = (
            f"`{name}` must have two to four axes, the last ones [query, key], got {list(shape)}. "
            f"For a mask of keys alone pass {name}[:, None, None, :]."
        )
        with pytest.raises(ValueError, match=re.escape(message)):
            function(np.zeros(shape, dtype))


@pytest.mark.parametrize("value", [1.0, 0.5, -999.0, np.inf])
def test_a_bias_that_weighs_keys_is_refused(value):
    bias = np.zeros((3, 4), np.float32)
    bias[1, 2] = value
    message = (
        f"`bias` holds {value} at [0, 0, 1, 2], but as a mask that is added it may hold 0 (may "
        "attend) and numbers up to -1,000 (hidden). If 1 = may attend, pass bias == 1 as the mask."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        mask_from_bias(bias)


def test_a_bias_of_booleans_is_refused():
    with pytest.raises(TypeError, match=r"`bias` must hold float32, .*, got bool"):
        mask_from_bias(np.zeros((2, 2), bool))
