import math
import re

import pytest
import torch

from torch_ref.mask_conventions import (
    mask_from_attn_mask,
    mask_from_bias,
    mask_from_key_padding,
    mask_from_sdpa,
)
from torch_ref.masks import causal_mask, mask_to_bias


def booleans(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) > 0.5


def test_key_padding_of_pytorch_says_hidden():
    hidden = torch.tensor([[False, True], [False, False]])
    assert mask_from_key_padding(hidden).tolist() == [[[[True, False]]], [[[True, True]]]]
    with pytest.raises(ValueError, match=re.escape("[batch, key], got [2]")):
        mask_from_key_padding(hidden[0])


def test_attn_mask_of_pytorch_says_hidden():
    hidden = torch.nn.Transformer.generate_square_subsequent_mask(4) < 0
    assert torch.equal(mask_from_attn_mask(hidden), causal_mask(4))


def test_attn_mask_of_heads_counts_heads_within_each_example():
    hidden = booleans(6, 4, 5)
    mask = mask_from_attn_mask(hidden, num_heads=2)
    assert mask.shape == (3, 2, 4, 5)
    assert torch.equal(mask[2, 1], ~hidden[5])
    assert torch.equal(mask[1, 0], ~hidden[2])


@pytest.mark.parametrize("num_heads", [None, 4])
def test_heads_that_do_not_divide_the_first_axis_are_refused(num_heads):
    with pytest.raises(ValueError, match=f"must divide the first axis .*, 6, got {num_heads}"):
        mask_from_attn_mask(booleans(6, 4, 5), num_heads=num_heads)


@pytest.mark.parametrize("shape", [(3,), (1, 1, 3, 3)])
def test_attn_masks_have_two_or_three_axes(shape):
    with pytest.raises(ValueError, match=re.escape(f"got {list(shape)}")) as caught:
        mask_from_attn_mask(booleans(*shape))
    assert "`mask_from_sdpa`" in str(caught.value)


@pytest.mark.parametrize("shape", [(4, 5), (2, 4, 5), (3, 2, 4, 5)])
def test_the_mask_of_sdpa_says_may_attend(shape):
    mask = mask_from_sdpa(booleans(*shape))
    assert mask.shape == (1,) * (4 - len(shape)) + shape
    assert torch.equal(mask.reshape(shape), booleans(*shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("least", ["min", "-inf", "twice", -1e4])
def test_a_bias_of_zeros_and_large_negatives_is_a_mask(dtype, least):
    kept = booleans(2, 1, 4, 5)
    if least == "twice":  # what two masks give that are added
        bias = mask_to_bias(kept, dtype) + mask_to_bias(kept, dtype)
    else:
        value = {"min": torch.finfo(dtype).min, "-inf": -math.inf}.get(least, least)
        bias = torch.zeros(kept.shape, dtype=dtype).masked_fill(~kept, value)
    assert torch.equal(mask_from_bias(bias), kept)
    assert torch.equal(mask_from_bias(bias[0, 0]), kept[:1])


@pytest.mark.parametrize("value", [1.0, -1.0, -999.0, math.nan, math.inf])
def test_another_bias_is_no_mask(value):
    bias = torch.zeros(2, 3)
    bias[1, 2] = value
    with pytest.raises(ValueError, match=re.escape(f"`bias` holds {value} at [0, 0, 1, 2]")) as e:
        mask_from_bias(bias)
    assert "numbers up to -1,000 (hidden)" in str(e.value)
    assert "pass bias == 1" in str(e.value)


def test_what_is_hidden_has_no_weight_in_any_dtype():
    for dtype in (torch.float32, torch.float64):
        scores = torch.tensor([0.0, -1e3], dtype=dtype)
        assert scores.softmax(0).tolist() == [1, 0]


def test_a_bias_without_values_passes():
    assert mask_from_bias(torch.zeros(2, 3, device="meta")).shape == (1, 1, 2, 3)


@pytest.mark.parametrize("call", [mask_from_sdpa, lambda mask: mask_from_bias(mask.float())])
@pytest.mark.parametrize("shape", [(3,), (1, 1, 1, 3, 3)])
def test_other_numbers_of_axes_are_refused(call, shape):
    with pytest.raises(ValueError, match="must have two to four axes") as caught:
        call(booleans(*shape))
    assert "[:, None, None, :]" in str(caught.value)


@pytest.mark.parametrize("call", [mask_from_key_padding, mask_from_attn_mask, mask_from_sdpa])
def test_floats_are_sent_to_mask_from_bias(call):
    with pytest.raises(TypeError, match=r"True = may attend, got torch\.float32\. .*_from_bias"):
        call(torch.zeros(2, 3))


def test_booleans_are_no_bias():
    with pytest.raises(TypeError, match=r"`bias` must be torch\.float32, .* got torch\.bool"):
        mask_from_bias(booleans(2, 3))
