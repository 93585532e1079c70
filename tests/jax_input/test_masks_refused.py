"""What makers of masks refuse, and what they say."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

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


@pytest.mark.parametrize(("function", "name"), [(padding_mask, "is_token"), (mask_to_bias, "mask")])
@pytest.mark.parametrize(
    ("values", "got", "way_out"),
    [
        (np.zeros((2, 3), np.float32), "float32", "added to scores, use `mask_from_bias`."),
        (np.zeros((2, 3), jnp.bfloat16), "bfloat16", "use `mask_from_bias`."),
        (np.ones((2, 3), np.int32), "int32", "write mask == 1, for 1 = hidden mask == 0."),
    ],
)
def test_masks_that_are_not_boolean_are_refused(function, name, values, got, way_out):
    start = f"`{name}` must be boolean with True = may attend, got {got}. "
    with pytest.raises(TypeError, match=re.escape(start) + ".*" + re.escape(way_out)):
        function(values)


@pytest.mark.parametrize("shape", [(3,), (1, 2, 3), ()])
def test_padding_and_segments_need_two_axes(shape):
    for call, name, dtype in ((padding_mask, "is_token", bool), (segment_mask, "segment_ids", int)):
        message = f"`{name}` must have shape [batch, seq_len], got {list(shape)}."
        with pytest.raises(ValueError, match=re.escape(message)):
            call(np.ones(shape, dtype))


def test_another_padding_side_is_refused():
    with pytest.raises(
        ValueError, match='`padding_side` must be "right" or "left" or "any", got \'both\''
    ):
        padding_mask(booleans([[1]]), padding_side="both")


@pytest.mark.parametrize("window", [(1, 2, 3), (1,), 1.0, True, (True, 1), "1", (1, None), [1, 1]])
def test_what_is_no_window_is_refused(window):
    message = f"`window` must be an integer, or two as (left, right), got {window!r}. A band of"
    with pytest.raises(TypeError, match=re.escape(message)):
        local_window_mask(4, window)


@pytest.mark.parametrize("window", [-1, (1, -1)])
def test_a_negative_window_is_refused(window):
    message = f"`window` must be at least 0 on either side, got {window!r}."
    with pytest.raises(ValueError, match=re.escape(message)):
        local_window_mask(4, window)


@pytest.mark.parametrize(
    "call", [causal_mask, lambda n: local_window_mask(n, 1), lambda n: block_diagonal_mask(n, 1)]
)
def test_what_is_no_length_is_refused(call):
    with pytest.raises(ValueError, match=r"`seq_len` must be at least 1 and at most .*, got 0"):
        call(0)
    with pytest.raises(TypeError, match=r"`seq_len` must be a Python integer, got float 2\.0"):
        call(2.0)


def test_what_is_no_block_size_or_segment_is_refused():
    with pytest.raises(ValueError, match=r"`block_size` must be at least 1 .*, got 0"):
        block_diagonal_mask(3, 0)
    with pytest.raises(TypeError, match="`segment_ids` must hold integers, got float32"):
        segment_mask(np.zeros((1, 2), np.float32))
    with pytest.raises(TypeError, match="`segment_ids` must hold integers, got bool"):
        segment_mask(np.zeros((1, 2), bool))
