"""Queries without a key, NaN in what nobody may see, and what attention refuses."""

import math
import re

import pytest
import torch
from torch import nn

from tests.torch_ref.peers import random
from torch_ref.attention import dot_product_attention, multi_head_attention
from torch_ref.config import EncoderConfig
from torch_ref.initial import encoder_params
from torch_ref.mask_conventions import mask_from_bias, mask_from_key_padding
from torch_ref.masks import causal_mask, mask_to_bias, padding_mask
from torch_ref.stack import encoder

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
# Two samples of three positions and width 4, as one head: the second is padding throughout, and the
# last query of the first may see nothing.
ROWS = torch.tensor([[1, 1, 1], [0, 0, 0]]).bool()
QUERIES = torch.tensor([[1, 1, 0], [1, 1, 1]]).bool()[:, None, :, None]
FULLY_MASKED = padding_mask(ROWS) & QUERIES


def vectors(dtype=torch.float32):
    return [random(2, 3, 1, 4, seed=seed, dtype=dtype).requires_grad_() for seed in range(3)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("least", [None, "min", -math.inf])
def test_queries_without_a_key_give_exactly_0_and_other_rows_keep_their_bits(dtype, least):
    mask = FULLY_MASKED
    if least is not None:
        value = torch.finfo(dtype).min if least == "min" else least
        mask = mask_from_bias(mask_to_bias(mask, dtype).masked_fill(~mask, value))
    inputs = vectors(dtype)
    output, weights = dot_product_attention(*inputs, mask=mask, return_weights=True)
    assert not output[1].any()
    assert not output[0, 2].any()
    assert not weights[1].any()
    unmasked = dot_product_attention(*inputs)
    assert torch.equal(output[0, :2], unmasked[0, :2])
    for gradient in torch.autograd.grad(output.sum(), inputs):
        assert gradient.isfinite().all()
        assert not gradient[1].any()


def test_the_gradient_of_a_query_without_a_key_is_exactly_0():
    inputs = vectors()
    output = dot_product_attention(*inputs, mask=FULLY_MASKED)
    query, key, value = torch.autograd.grad(output[0, 2].sum() + output[1].sum(), inputs)
    assert not query.any()
    assert not key.any()
    assert not value.any()


def test_a_fully_padded_batch_gives_the_bias_and_finite_gradients():
    module = nn.MultiheadAttention(4, 2, batch_first=True)
    config = EncoderConfig(num_layers=1, d_model=4, num_heads=2, d_ff=4)
    layers = encoder_params(config, torch.Generator().manual_seed(0))["layers"]["attention"]
    params = {
        name: {leaf: (values[0] + 0.5).requires_grad_() for leaf, values in each.items()}
        for name, each in layers.items()
    }
    x = random(2, 3, 4, dtype=torch.float32)
    y = multi_head_attention(x, params, mask=padding_mask(torch.zeros(2, 3, dtype=torch.bool)))
    assert torch.equal(y, params["out"]["bias"].expand(2, 3, 4))
    y.sum().backward()
    assert all(
        values.grad is None or values.grad.isfinite().all()
        for each in params.values()
        for values in each.values()
    )
    # PyTorch's own, asked for its weights: NaN throughout.
    hidden = torch.ones(2, 3, dtype=torch.bool)
    assert module(x, x, x, key_padding_mask=hidden)[0].isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_what_nobody_may_see_leaks_neither_forward_nor_backward(dtype, poison):
    mask = padding_mask(torch.tensor([[1, 1, 0], [1, 0, 0]]).bool())
    results = []
    for filler in (0.0, poison):
        query, key, value = vectors(dtype)
        hidden = (~mask).transpose(1, 3).reshape(2, 3, 1, 1)
        inputs = query, key.masked_fill(hidden, filler), value.masked_fill(hidden, filler)
        inputs = [x.detach().requires_grad_() for x in inputs]
        output = dot_product_attention(*inputs, mask=mask)
        results.append([output, *torch.autograd.grad(output.square().sum(), inputs)])
    for clean, poisoned in zip(*results, strict=True):
        assert torch.equal(clean, poisoned)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_query_that_sees_nothing_leaks_neither_forward_nor_backward(poison):
    query, key, value = vectors()
    query = query.masked_fill(~FULLY_MASKED.any(3).transpose(1, 2)[..., None], poison)
    inputs = [x.detach().requires_grad_() for x in (query, key, value)]
    output = dot_product_attention(*inputs, mask=FULLY_MASKED)
    assert output.isfinite().all()
    for gradient in torch.autograd.grad(output.square().sum(), inputs):
        assert gradient.isfinite().all()


def test_what_is_seen_by_one_head_alone_is_left_out_of_the_other():
    mask = torch.ones(1, 2, 2, 2, dtype=torch.bool)
    mask[0, 1, :, 1] = False
    x = [random(1, 2, 2, 4, seed=seed, dtype=torch.float32) for seed in range(3)]
    x[2][0, 1, 1] = math.nan
    assert dot_product_attention(*x, mask=mask).isfinite().all()
    mask[0, 1, 0, 1] = True
    assert dot_product_attention(*x, mask=mask)[0, :, 1].isnan().all()


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_token_ids_at_masked_positions_do_not_matter_at_the_others(norm):
    config = EncoderConfig(num_layers=2, d_model=16, num_heads=4, d_ff=24, norm=norm)
    params = encoder_params(config, torch.Generator().manual_seed(0))
    embedding = random(10, 16, dtype=torch.float32)
    token_ids, other_ids = torch.tensor([[5, 6, 0, 0]]), torch.tensor([[5, 6, 9, 3]])
    mask = mask_from_key_padding(token_ids == 0)
    y = encoder(embedding[token_ids], params, config, mask=mask)
    z = encoder(embedding[other_ids], params, config, mask=mask)
    assert torch.equal(y[:, :2], z[:, :2])
    with pytest.warns(UserWarning, match="True = token here"):
        inverted = padding_mask(token_ids == 0)
    wrong = encoder(embedding[token_ids], params, config, mask=inverted)
    assert (wrong[:, :2] - y[:, :2]).abs().max() > 0.1


X = torch.zeros(2, 3, 1, 4)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((X[0], X, X), "`query` must have shape [batch, seq_len, num_heads, width]"),
        ((X, X[:1], X), "`key` must have shape [2, any, 1, 4] beside `query`, got [1, 3, 1, 4]"),
        ((X, X[..., :3], X), "got [2, 3, 1, 3]"),
        ((X, X, X[:, :2]), "`value` must have shape [2, 3, 1, any] beside"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(inputs, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        dot_product_attention(*inputs)


def test_vectors_of_another_dtype_are_refused():
    with pytest.raises(TypeError, match=r"dtype of `query`, torch\.float32, .* torch\.float64"):
        dot_product_attention(X, X, X.double())
    with pytest.raises(TypeError, match=r"`key` must be torch\.float32, .*int64"):
        dot_product_attention(X, X.long(), X)


@pytest.mark.parametrize("shape", [(3, 3), (2, 1, 3), (2, 1, 3, 2), (3, 1, 3, 3), (2, 2, 3, 3)])
def test_masks_that_do_not_fit_are_refused(shape):
    with pytest.raises(ValueError, match=re.escape(f"as in [2, 1, 3, 3], got {list(shape)}")):
        dot_product_attention(X, X, X, mask=torch.ones(shape, dtype=torch.bool))


def test_masks_that_are_not_boolean_are_refused():
    with pytest.raises(TypeError, match=r"True = may attend, got torch\.float32\. .*_from_bias"):
        dot_product_attention(X, X, X, mask=torch.zeros(2, 1, 3, 3))
    with pytest.raises(TypeError, match=r"got torch\.int64\. .* for 1 = hidden mask == 0"):
        dot_product_attention(X, X, X, mask=causal_mask(3).long())


def test_dropout_masks_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=re.escape("must have shape [2, 1, 3, 3], got [1, 1, 3")):
        dot_product_attention(X, X, X, dropout_mask=causal_mask(3))
    with pytest.raises(TypeError, match=r"True = keep, got torch\.float32\. Write mask == 1"):
        dot_product_attention(X, X, X, dropout_mask=torch.ones(2, 1, 3, 3))
    with pytest.raises(ValueError, match=r"`dropout_rate` must be in \[0, 1\], got 2"):
        dot_product_attention(X, X, X, dropout_rate=2)


def test_flags_and_params_are_checked():
    with pytest.raises(ValueError, match="`return_weights` must be False or True, got 1"):
        dot_product_attention(X, X, X, return_weights=1)
    with pytest.raises(
        ValueError, match="`params` lacks 'query' and lacks 'key' and lacks 'value'"
    ):
        multi_head_attention(torch.zeros(1, 2, 4), {"out": {}})
    with pytest.raises(ValueError, match=re.escape("[batch, seq_len, d_model], got [2, 4]")):
        multi_head_attention(torch.zeros(2, 4), {})
