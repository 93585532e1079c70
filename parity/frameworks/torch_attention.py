"""PyTorch: attention, step by step, so that each step can be seen.

Each takes ``step``, which makes one call under a name, and what the function of PyTorch was given.
It returns what that does, or NotImplemented for options it does not know.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Step = Callable[..., Any]


def split_heads(*values: Any) -> tuple[Tensor, ...]:
    """Turn each [batch, seq_len, d_model] into [batch, num_heads, seq_len, head_dim].

    Args:
      values: query, key, value, and the number of heads.
    """
    *projected, num_heads = values
    return tuple(x.unflatten(-1, (num_heads, -1)).transpose(-2, -3) for x in projected)


def merge_heads(x: Tensor) -> Tensor:
    """Turn [batch, num_heads, seq_len, head_dim] into [batch, seq_len, d_model]."""
    return x.transpose(-2, -3).flatten(-2)


def masked(scores: Tensor, mask: Tensor) -> Tensor:
    """Hide what a mask of truth values has False for, or add a mask of numbers."""
    if mask.dtype == torch.bool:
        return scores.masked_fill(~mask, -math.inf)
    return scores + mask


def softmax_or_zero(scores: Tensor, axis: int) -> Tensor:
    """Take softmax; where all is hidden, all weights are 0."""
    hidden = (scores == -math.inf).all(axis, keepdim=True)
    return functional.softmax(scores, axis).masked_fill(hidden, 0.0)


def _attended(
    step: Step, heads: tuple[Tensor, ...], masks: list[Tensor], softmax: Any, **options: Any
) -> tuple[Tensor, Tensor]:
    query, key, value = heads
    scores = step("scores", torch.matmul, query, key.transpose(-1, -2))
    own = options.get("scale")
    scale = 1 / math.sqrt(query.shape[-1]) if own is None else own
    scores = step("scaled", torch.mul, scores, scale)
    for mask in masks:
        scores = step("masked", masked, scores, mask)
    weights = step("softmax", softmax, scores, -1)
    if options.get("dropout_p", 0.0) > 0:
        weights = step("dropout", functional.dropout, weights, options["dropout_p"], True)
    return step("attended", torch.matmul, weights, value), weights


def scaled_dot_product_attention(
    step: Step,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attend as `torch.nn.functional.scaled_dot_product_attention` does."""
    if query.dim() < 3:
        return NotImplemented
    if enable_gqa:
        key, value = (
            step("repeat_heads", torch.repeat_interleave, x, query.shape[-3] // x.shape[-3], -3)
            for x in (key, value)
        )
    masks = [attn_mask] if attn_mask is not None else []
    if is_causal:
        masks.append(torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril())
    heads, options = (query, key, value), {"dropout_p": dropout_p, "scale": scale}
    return _attended(step, heads, masks, softmax_or_zero, **options)[0]


def multi_head_attention_forward(
    step: Step,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:
    """Attend as `torch.nn.functional.multi_head_attention_forward` does."""
    unknown = (bias_k, bias_v, static_k, static_v)
    if any(value is not None for value in unknown) or add_zero_attn or query.dim() != 3:
        return NotImplemented
    if in_proj_weight is not None:
        q_proj_weight, k_proj_weight, v_proj_weight = in_proj_weight.chunk(3)
    weights = (q_proj_weight, k_proj_weight, v_proj_weight)
    heads = _projected(step, (query, key, value), weights, in_proj_bias, num_heads)
    masks = _masks(attn_mask, key_padding_mask, heads[0].shape)
    softmax = functional.softmax if need_weights else softmax_or_zero
    rate = dropout_p if training else 0.0
    attended, probabilities = _attended(step, heads, masks, softmax, dropout_p=rate)
    merged = step("merge_heads", merge_heads, attended)
    output = step("out_projection", functional.linear, merged, out_proj_weight, out_proj_bias)
    if not need_weights:
        return output.transpose(0, 1), None
    shown = probabilities.mean(1) if average_attn_weights else probabilities
    return output.transpose(0, 1), shown


def _projected(
    step: Step,
    given: tuple[Tensor, ...],
    weights: tuple[Tensor | None, ...],
    packed_bias: Tensor | None,
    num_heads: int,
) -> tuple[Tensor, ...]:
    """Return query, key and value as heads; the sequence is the first axis of what is given."""
    biases = packed_bias.chunk(3) if packed_bias is not None else (None,) * 3
    if given[0] is not given[1]:
        given = step("attention_inputs", _views, *given)
    projected = [
        step(f"{name}_projection", functional.linear, x.transpose(0, 1), weight, bias)
        for name, x, weight, bias in zip("qkv", given, weights, biases, strict=True)
    ]
    return step("split_heads", split_heads, *projected, num_heads)


def _views(*values: Tensor) -> tuple[Tensor, ...]:
    return tuple(value.view_as(value) for value in values)


def _masks(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, heads: tuple[int, ...]
) -> list[Tensor]:
    """Return the masks, True where they may attend; PyTorch's own say True where they may not."""
    masks = []
    if attn_mask is not None:
        is_one_per_head = attn_mask.dim() == 3
        shape = (*heads[:2], *attn_mask.shape[-2:])
        masks.append(attn_mask.view(shape) if is_one_per_head else attn_mask)
    if key_padding_mask is not None:
        masks.append(key_padding_mask[:, None, None, :])
    return [~mask if mask.dtype == torch.bool else mask for mask in masks]
