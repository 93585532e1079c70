"""Scaled dot-product attention, and the multi-head attention made of it."""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from torch_ref.dense import Params, dense, require_names, require_vectors
from torch_ref.dropout_masks import require_dropout_mask
from torch_ref.inputs import dropout
from torch_ref.masks import require_mask
from torch_ref.requirements import require_floats, require_one_of, require_rate
from torch_ref.rounding import narrow, widen

_PROJECTIONS = ("query", "key", "value")


def dot_product_attention(
    query: Float[Tensor, "batch query num_heads head_dim"],
    key: Float[Tensor, "batch key num_heads head_dim"],
    value: Float[Tensor, "batch key num_heads value_dim"],
    *,
    mask: Bool[Tensor, "batch_or_1 num_heads_or_1 query_or_1 key_or_1"] | None = None,
    dropout_rate: float = 0.0,
    dropout_mask: Bool[Tensor, "batch num_heads query key"] | None = None,
    return_weights: bool = False,
) -> Any:
    """Average the values by the softmax of query . key / sqrt(head_dim).

    All of it is float32 (float64 for float64), rounded once at the end.

    Args:
      query: what looks.
      key: what is looked at.
      value: what is averaged.
      mask: True = may attend. A query without any key gives exactly 0 and passes no gradient. What
        no query may see, and queries that see nothing, are left out of every sum: a NaN or inf in
        padding shows neither in the output nor in a gradient. (A key that some query may see, as
        under a causal mask, has to be finite.)
      dropout_rate: the chance of a dropped weight that ``dropout_mask`` was drawn with.
      dropout_mask: True = keep a weight; None drops nothing.
      return_weights: also return the weights, before dropout.

    Returns:
      ``[batch, query, num_heads, value_dim]`` in the dtype of ``query``; with ``return_weights``
      also float32 (or float64) ``[batch, num_heads, query, key]``.

    Raises:
      TypeError: if tensors hold no supported floats or are of different dtypes, or a mask is not
        boolean.
      ValueError: if the shapes don't fit, or as ``dropout``.

    Source: Vaswani et al. 2017, section 3.2.1. Port: ``jax_input.dot_product_attention``.
    """
    _require_fitting(query, key, value)
    require_one_of("return_weights", return_weights, (False, True))
    dropout_rate = require_rate("dropout_rate", dropout_rate)
    batch, length, heads, head_dim = query.shape
    shape = (batch, heads, length, key.shape[1])
    if mask is None:
        mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=query.device)
    require_mask("mask", mask, shape)
    mask = mask.expand(shape)
    # Selected before any product: 0 * NaN is NaN, on the way back too.
    sees, is_seen = mask.any(3), mask.any(2)
    q = _select(widen(query), sees)
    k, v = _select(widen(key), is_seen), _select(widen(value), is_seen)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(head_dim)
    # The least finite number, since -inf throughout a row would make NaN of its softmax.
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1).masked_fill(~mask, 0.0)
    kept = weights
    if dropout_mask is not None:
        require_dropout_mask("dropout_mask", dropout_mask, shape)
        kept = dropout(weights, dropout_rate, mask=dropout_mask)
    output = narrow(torch.einsum("bhqk,bkhd->bqhd", kept, v), query.dtype)
    return (output, weights) if return_weights else output


def multi_head_attention(
    x: Float[Tensor, "batch seq_len d_model"],
    params: Params,
    *,
    mask: Bool[Tensor, "batch_or_1 num_heads_or_1 query_or_1 key_or_1"] | None = None,
    dropout_rate: float = 0.0,
    dropout_mask: Bool[Tensor, "batch num_heads query key"] | None = None,
    return_weights: bool = False,
) -> Any:
    """Let each vector attend to the others, in several heads.

    Args:
      x: vectors along a sequence; their dtype is computed in.
      params: "query", "key" and "value", each {"kernel": [d_model, num_heads, head_dim], "bias":
        [num_heads, head_dim]}, and "out", {"kernel": [num_heads, head_dim, d_model], "bias":
        [d_model]}; each "bias" may be absent.
      mask: as in ``dot_product_attention``; a query without any key gives the bias of "out".
      dropout_rate: as in ``dot_product_attention``.
      dropout_mask: as in ``dot_product_attention``.
      return_weights: also return the weights, before dropout.

    Returns:
      The shape and dtype of ``x``; with ``return_weights`` also ``[batch, num_heads, query, key]``.

    Raises:
      TypeError, ValueError: as ``dot_product_attention``, or if ``params`` lack a tensor or one
        has another shape.

    Source: Vaswani et al. 2017, section 3.2.2. Port: ``jax_input.multi_head_attention``.
    """
    require_vectors(x)
    require_names("params", params, (*_PROJECTIONS, "out"))
    query, key, value = (dense(x, params[name], name=f"params['{name}']") for name in _PROJECTIONS)
    heads, weights = dot_product_attention(
        *(query, key, value),
        mask=mask,
        dropout_rate=dropout_rate,
        dropout_mask=dropout_mask,
        return_weights=True,
    )
    y = dense(heads, params["out"], axes=2, name="params['out']")
    require_one_of("return_weights", return_weights, (False, True))
    return (y, weights) if return_weights else y


def _select(x: Tensor, chosen: Bool[Tensor, "batch num_heads length"]) -> Tensor:
    """Return [batch, length, num_heads, width] with zeros where a head has no use for a vector."""
    return x.masked_fill(~chosen.transpose(1, 2)[..., None], 0.0)


def _require_fitting(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Refuse vectors that are not of one dtype, or whose axes differ where they must not."""
    for name, x in zip(_PROJECTIONS, (query, key, value), strict=True):
        require_floats(name, x)
        if x.ndim != 4 or x.dtype != query.dtype:
            raise (ValueError if x.ndim != 4 else TypeError)(
                f"`{name}` must have shape [batch, seq_len, num_heads, width] and the dtype of "
                f"`query`, {query.dtype}, got {list(x.shape)} of {x.dtype}."
            )
    batch, _, heads, head_dim = query.shape
    length = key.shape[1]
    if key.shape != (batch, length, heads, head_dim):
        raise ValueError(
            f"`key` must have shape [{batch}, any, {heads}, {head_dim}] beside `query`, got "
            f"{list(key.shape)}."
        )
    if value.shape[:3] != (batch, length, heads):
        raise ValueError(
            f"`value` must have shape [{batch}, {length}, {heads}, any] beside `query` and `key`, "
            f"got {list(value.shape)}."
        )
