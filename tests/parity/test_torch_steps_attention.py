"""Attention that is taken apart computes what PyTorch's own does, in float64."""

import itertools

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from parity.frameworks.torch_tracer import Tracer

BATCH, QUERIES, KEYS, WIDTH, HEADS = 3, 5, 7, 12, 4


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def apart(module: nn.Module, *places, **named):
    tracer = Tracer()
    with tracer.following(module), tracer:
        result = module(*places, **named)
    return result, [found.call.name for found in tracer.results.values()]


def attention(**options) -> nn.MultiheadAttention:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(WIDTH, HEADS, dtype=torch.float64, **options).eval()
    for weight in module.parameters():
        nn.init.normal_(weight, std=0.4)
    return module


def causal(kind: str) -> Tensor | None:
    hidden = torch.ones(QUERIES, KEYS, dtype=torch.bool).triu(1)
    numbers = torch.zeros(QUERIES, KEYS, dtype=torch.float64).masked_fill(hidden, -torch.inf)
    per_head = hidden[None].repeat(BATCH * HEADS, 1, 1)
    return {"none": None, "bool": hidden, "float": numbers, "per head": per_head}[kind]


def padding(kind: str) -> Tensor | None:
    hidden = torch.arange(KEYS) >= torch.tensor([[KEYS], [4], [1]])
    numbers = torch.zeros(BATCH, KEYS, dtype=torch.float64).masked_fill(hidden, -torch.inf)
    return {"none": None, "bool": hidden, "float": numbers}[kind]


MASKS = [
    (mask, pad)
    for mask, pad in itertools.product(
        ("none", "bool", "float", "per head"), ("none", "bool", "float")
    )
    if "none" in (mask, pad) or mask.startswith(pad[:4]) or (mask, pad) == ("per head", "bool")
]


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize(("mask", "pad"), MASKS)
def test_attention_with_masks(mask: str, pad: str, weights: bool) -> None:
    module = attention(batch_first=True, kdim=6, vdim=10)
    given = draw(BATCH, QUERIES, WIDTH), draw(BATCH, KEYS, 6), draw(BATCH, KEYS, 10, seed=1)
    masks = {"attn_mask": causal(mask), "key_padding_mask": padding(pad)}
    own = module(*given, **masks, need_weights=weights)
    ours, names = apart(module, *given, **masks, need_weights=weights)
    torch.testing.assert_close(ours, own, rtol=0, atol=1e-13)
    assert names.count("softmax") == 1
    assert names.count("masked") == (mask != "none") + (pad != "none")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_to_itself_with_packed_projections(batch_first: bool, bias: bool) -> None:
    module = attention(batch_first=batch_first, bias=bias)
    x = draw(BATCH, QUERIES, WIDTH)
    own = module(x, x, x, average_attn_weights=False)
    ours, names = apart(module, x, x, x, average_attn_weights=False)
    torch.testing.assert_close(ours, own, rtol=0, atol=1e-13)
    assert {"q_projection", "split_heads", "merge_heads", "out_projection"} <= {*names}
    assert "attention_inputs" not in names


@pytest.mark.parametrize("options", [{"add_bias_kv": True}, {"add_zero_attn": True}])
def test_attention_with_other_options_is_left_whole(options: dict) -> None:
    module = attention(**options)
    x = draw(QUERIES, BATCH, WIDTH)
    ours, names = apart(module, x, x, x)
    torch.testing.assert_close(ours, module(x, x, x), rtol=0, atol=0)
    assert "scores" not in names


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.3},
        {"attn_mask": causal("bool")},
        {"attn_mask": causal("float")},
        {"attn_mask": torch.zeros(QUERIES, KEYS, dtype=torch.bool)},
    ],
)
def test_dot_product_attention(options: dict) -> None:
    shape = (BATCH, HEADS, KEYS, 8)
    given = draw(BATCH, HEADS, QUERIES, 8), draw(*shape, seed=1), draw(*shape, seed=2)
    own = functional.scaled_dot_product_attention(*given, **options)
    with (tracer := Tracer()):
        ours = functional.scaled_dot_product_attention(*given, **options)
    torch.testing.assert_close(ours, own, rtol=0, atol=1e-13)
    assert "softmax" in {found.call.name for found in tracer.results.values()}


def test_dot_product_attention_of_grouped_queries() -> None:
    shape = (BATCH, 2, KEYS, 8)
    given = draw(BATCH, HEADS, QUERIES, 8), draw(*shape, seed=1), draw(*shape, seed=2)
    own = functional.scaled_dot_product_attention(*given, enable_gqa=True)
    with Tracer():
        ours = functional.scaled_dot_product_attention(*given, enable_gqa=True)
    torch.testing.assert_close(ours, own, rtol=0, atol=1e-13)


def test_a_query_to_which_all_is_hidden_is_nan_where_pytorch_says_so() -> None:
    module, x = attention(batch_first=True), draw(BATCH, QUERIES, WIDTH)
    hidden = torch.zeros(BATCH, QUERIES, dtype=torch.bool)
    hidden[0] = True
    for weights in (True, False):
        own = module(x, x, x, key_padding_mask=hidden, need_weights=weights)[0]
        ours = apart(module, x, x, x, key_padding_mask=hidden, need_weights=weights)[0][0]
        torch.testing.assert_close(ours, own, rtol=0, atol=1e-13, equal_nan=True)


def test_the_function_itself_with_masks_of_truth_values() -> None:
    module, x = attention(), draw(QUERIES, BATCH, WIDTH)
    hidden = torch.arange(QUERIES) >= torch.tensor([[QUERIES], [4], [1]])
    weights = (module.in_proj_weight, module.in_proj_bias, None, None, False, 0.0)
    out = (module.out_proj.weight, module.out_proj.bias, False)
    places = (x, x, x, WIDTH, HEADS, *weights, *out)
    own = functional.multi_head_attention_forward(*places, key_padding_mask=hidden)
    with Tracer():
        ours = functional.multi_head_attention_forward(*places, key_padding_mask=hidden)
    torch.testing.assert_close(ours, own, rtol=0, atol=1e-13)
