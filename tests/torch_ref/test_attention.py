"""Attention beside its formula, and beside PyTorch's own: outputs, gradients, masks."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.torch_ref.peers import (
    BATCH,
    HEADS,
    HIDDEN_KEYS,
    LENGTH,
    WIDTH,
    assert_near,
    random,
    randomized,
)
from torch_ref.attention import dot_product_attention, multi_head_attention
from torch_ref.mask_conventions import mask_from_attn_mask, mask_from_key_padding
from torch_ref.masks import block_diagonal_mask, causal_mask, local_window_mask, segment_mask
from torch_ref.torch_layout import dense_params, linear_params, split_heads

SHAPE = (BATCH, LENGTH, HEADS, WIDTH // HEADS)
BY_HEAD = random(BATCH, HEADS, LENGTH, LENGTH, seed=9) > 0
MASKS = {
    "none": None,
    "padding": mask_from_key_padding(HIDDEN_KEYS),
    "causal": causal_mask(LENGTH),
    "window": local_window_mask(LENGTH, (1, 2)),
    "blocks": block_diagonal_mask(LENGTH, 2),
    "segments": segment_mask(torch.tensor([[0, 0, 1, 1, 1]] * BATCH)),
    "padding and causal": mask_from_key_padding(HIDDEN_KEYS) & causal_mask(LENGTH),
    "queries": ~HIDDEN_KEYS[:, None, :, None],
    "by head": BY_HEAD,
    "nothing seen": torch.zeros(1, 1, 1, 1, dtype=torch.bool),
}


def vectors(dtype=torch.float64):
    return [random(*SHAPE, seed=seed, dtype=dtype).requires_grad_() for seed in range(3)]


def gradients(output, inputs, seed=7):
    return torch.autograd.grad(output, inputs, random(*output.shape, seed=seed, dtype=output.dtype))


def by_formula(query, key, value, mask):
    """Take one query at a time, and only the keys that it may see."""
    output = torch.zeros(*query.shape[:3], value.shape[-1], dtype=torch.float64)
    mask = torch.ones(1, 1, 1, 1, dtype=torch.bool) if mask is None else mask
    mask = mask.expand(len(query), query.shape[2], query.shape[1], key.shape[1])
    for b, h, q in torch.cartesian_prod(*(torch.arange(n) for n in mask.shape[:3])).tolist():
        seen = mask[b, h, q]
        if seen.any():
            terms = (key[b, seen, h] @ query[b, q, h] / math.sqrt(query.shape[-1])).exp()
            output[b, q, h] = (terms[:, None] * value[b, seen, h]).sum(0) / terms.sum()
    return output


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_attention_is_its_formula(mask):
    inputs = vectors()
    coarse = dot_product_attention(*(x.float() for x in inputs), mask=mask)
    assert_near(dot_product_attention(*inputs, mask=mask), by_formula(*inputs, mask), coarse)


def test_queries_keys_and_values_may_have_sizes_of_their_own():
    query, key, value = random(2, 3, 2, 4), random(2, 5, 2, 4, seed=1), random(2, 5, 2, 7, seed=2)
    mask = random(2, 2, 3, 5, seed=3) > 0
    coarse = dot_product_attention(query.float(), key.float(), value.float(), mask=mask)
    assert_near(
        dot_product_attention(query, key, value, mask=mask),
        by_formula(query, key, value, mask),
        coarse,
    )


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_outputs_and_gradients_are_those_of_sdpa(mask):
    ours, theirs, coarse = vectors(), vectors(), vectors(torch.float32)
    output = dot_product_attention(*ours, mask=mask)
    rough = dot_product_attention(*coarse, mask=mask)
    peer = functional.scaled_dot_product_attention(
        *(x.transpose(1, 2) for x in theirs), attn_mask=mask
    ).transpose(1, 2)
    assert_near(output, peer, rough)
    for ours_one, peer_one, rough_one in zip(
        gradients(output, ours), gradients(peer, theirs), gradients(rough, coarse), strict=True
    ):
        assert_near(ours_one, peer_one, rough_one)


@pytest.mark.parametrize("mask", ["none", "padding", "by head"])
def test_gradcheck(mask):
    inputs = vectors()
    inputs = [x[:2, :3, :2].detach().requires_grad_() for x in inputs]
    mask = MASKS[mask] if MASKS[mask] is None else MASKS[mask][:2, :2, :3, :3]
    assert torch.autograd.gradcheck(lambda *x: dot_product_attention(*x, mask=mask), inputs)


def torch_attention(bias, dtype=torch.float64):
    return randomized(nn.MultiheadAttention(WIDTH, HEADS, bias=bias, batch_first=True, dtype=dtype))


def params_of(module):
    biases = module.in_proj_bias
    three = [None] * 3 if biases is None else biases.chunk(3)
    weights = module.in_proj_weight.chunk(3)
    linears = {
        name: dense_params(weight, bias)
        for name, weight, bias in zip(("query", "key", "value"), weights, three, strict=True)
    }
    return split_heads({**linears, "out": linear_params(module.out_proj)}, HEADS)


TORCH_MASKS = {
    "none": ({}, None),
    "key padding": (
        {"key_padding_mask": HIDDEN_KEYS},
        mask_from_key_padding(HIDDEN_KEYS),
    ),
    "causal": (
        {"attn_mask": ~causal_mask(LENGTH)[0, 0]},
        mask_from_attn_mask(~causal_mask(LENGTH)[0, 0]),
    ),
    "both": (
        {"attn_mask": ~causal_mask(LENGTH)[0, 0], "key_padding_mask": HIDDEN_KEYS},
        mask_from_key_padding(HIDDEN_KEYS) & mask_from_attn_mask(~causal_mask(LENGTH)[0, 0]),
    ),
    "by head": (
        {"attn_mask": ~(BY_HEAD | torch.eye(LENGTH, dtype=torch.bool)).flatten(0, 1)},
        BY_HEAD | torch.eye(LENGTH, dtype=torch.bool),
    ),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("given", "mask"), TORCH_MASKS.values(), ids=TORCH_MASKS)
def test_outputs_weights_and_gradients_are_those_of_torch_multihead_attention(bias, given, mask):
    results = []
    for dtype, is_peer in ((torch.float64, False), (torch.float64, True), (torch.float32, False)):
        module = torch_attention(bias, dtype)
        x = random(BATCH, LENGTH, WIDTH, dtype=dtype).requires_grad_()
        if is_peer:
            output, weights = module(x, x, x, average_attn_weights=False, **given)
        else:
            output, weights = multi_head_attention(
                x, params_of(module), mask=mask, return_weights=True
            )
        results.append([output, weights, *gradients(output, [x, *module.parameters()])])
    for ours, peer, coarse in zip(*results, strict=True):
        assert_near(ours, peer, coarse)


def test_weights_are_those_before_dropout_and_in_float32():
    query, key, value = vectors(torch.bfloat16)
    kept = random(BATCH, HEADS, LENGTH, LENGTH) > 0
    _, weights = dot_product_attention(
        query, key, value, dropout_rate=0.5, dropout_mask=kept, return_weights=True
    )
    assert weights.dtype == torch.float32
    # Of the five roundings none is above half an ulp of 1.
    assert ((weights.sum(-1) - 1).abs() <= 5 * 2.0**-24).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_are_rounded_once_at_the_end(dtype):
    inputs = [x.detach() for x in vectors(dtype)]
    output = dot_product_attention(*inputs, mask=MASKS["causal"])
    assert output.dtype == dtype
    exact = by_formula(*(x.double() for x in inputs), MASKS["causal"])
    # Half an ulp of the result, and float32 roundings: some twenty, of numbers below 4.
    bound = torch.finfo(dtype).eps / 2 * exact.abs() + 20 * 4 * 2.0**-24
    assert ((output.double() - exact).abs() <= bound).all()


def test_float16_scores_above_its_range_are_no_overflow():
    query = torch.full((1, 2, 1, 4), 200.0, dtype=torch.float16)  # 160,000, halved
    key = torch.tensor([200.0, 1.0], dtype=torch.float16)[None, :, None, None].expand(1, 2, 1, 4)
    value = torch.tensor([3.0, 5.0], dtype=torch.float16)[None, :, None, None]
    assert dot_product_attention(query, key, value).flatten().tolist() == [3, 3]


@pytest.mark.parametrize("axis", range(4))
def test_a_mask_with_an_axis_of_1_says_the_same_for_all(axis):
    mask = BY_HEAD.narrow(axis, 0, 1)
    whole = dot_product_attention(*vectors(), mask=mask.expand(BY_HEAD.shape).clone())
    assert torch.equal(dot_product_attention(*vectors(), mask=mask), whole)


def test_the_given_weights_are_dropped_and_the_others_raised():
    inputs, kept = vectors(), BY_HEAD
    output = dot_product_attention(*inputs, dropout_rate=0.75, dropout_mask=kept)
    _, weights = dot_product_attention(*inputs, return_weights=True)
    expected = torch.einsum("bhqk,bkhd->bqhd", weights * kept * 4, inputs[2])
    coarse = dot_product_attention(
        *(x.float() for x in inputs), dropout_rate=0.75, dropout_mask=kept
    )
    assert_near(output, expected, coarse)


def test_without_a_dropout_mask_nothing_is_dropped():
    x, params = random(2, 3, WIDTH), params_of(torch_attention(True))
    plain = multi_head_attention(x, params)
    assert torch.equal(multi_head_attention(x, params, dropout_rate=0.5), plain)
    kept = torch.zeros(2, HEADS, 3, 3, dtype=torch.bool)
    dropped = multi_head_attention(x, params, dropout_rate=0.5, dropout_mask=kept)
    assert torch.equal(dropped, params["out"]["bias"].expand(2, 3, WIDTH))
