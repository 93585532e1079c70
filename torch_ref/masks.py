"""Which query may attend to which key: boolean masks, True = may attend, four axes each.

The axes are (batch, num_heads, query, key), of size 1 where a mask says the same for all. Masks
are combined by logic, ``padding_mask(...) & causal_mask(...)``, never by adding them.
"""

import warnings
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from torch_ref.requirements import (
    require_dtype,
    require_integer,
    require_integers,
    require_one_of,
    require_size,
)


def padding_mask(
    is_token: Bool[Tensor, "batch seq_len"],
    *,
    padding_side: Literal["right", "left", "any"] = "right",
) -> Bool[Tensor, "batch 1 1 key"]:
    """Let every query attend to tokens alone, not to padding.

    Args:
      is_token: True where there is a token, such as ``token_ids != 0``.
      padding_side: where the padding is, which tells a mask that came the wrong way round.

    Returns:
      ``[batch, 1, 1, seq_len]``.

    Raises:
      TypeError: if ``is_token`` is not boolean.
      ValueError: if it has not two axes, or ``padding_side`` is another word.

    Warns:
      UserWarning: if some row has padding at its start and a token later (at its end and a token
        before, for "left"): most likely True and False are exchanged.

    Source: Vaswani et al. 2017, section 3.2.3. Port: ``jax_input.padding_mask``.
    """
    require_one_of("padding_side", padding_side, ("right", "left", "any"))
    require_mask("is_token", is_token)
    if is_token.ndim != 2:
        raise ValueError(
            f"`is_token` must have shape [batch, seq_len], got {list(is_token.shape)}."
        )
    if padding_side != "any" and is_token.shape[1] and not is_token.is_meta:
        _warn_if_inverted(is_token, padding_side)
    return is_token[:, None, None, :]


def causal_mask(seq_len: int) -> Bool[Tensor, "1 1 query key"]:
    """Let each query attend to its own position and those before it.

    Args:
      seq_len: at least 1.

    Returns:
      ``[1, 1, seq_len, seq_len]``, on the default device.

    Raises:
      TypeError, ValueError: if ``seq_len`` is no size.

    Source: Vaswani et al. 2017, section 3.2.3. Port: ``jax_input.causal_mask``.
    """
    query, key = _positions(seq_len)
    return key <= query


def local_window_mask(seq_len: int, window: int | tuple[int, int]) -> Bool[Tensor, "1 1 query key"]:
    """Let each query attend to the positions near its own.

    Args:
      seq_len: at least 1.
      window: how many positions to the left and to the right, or one number for both sides; 0 is
        the position itself alone. (A band of three positions is ``window=1``.)

    Returns:
      ``[1, 1, seq_len, seq_len]``: True where ``query - left <= key <= query + right``; on the
      default device.

    Raises:
      TypeError, ValueError: if ``seq_len`` is no size, or ``window`` not one or two integers from
        0.

    Source: Beltagy et al. 2020, section 3.1. Port: ``jax_input.local_window_mask``.
    """
    sides = window if isinstance(window, tuple) else (window, window)
    if len(sides) != 2:
        raise TypeError(
            f"`window` must be an integer, or two as (left, right), got {window!r}. "
            "A band of three positions is window=1."
        )
    left, right = (require_integer("window", side, "or two") for side in sides)
    if min(left, right) < 0:
        raise ValueError(f"`window` must be at least 0 on either side, got {window!r}.")
    query, key = _positions(seq_len)
    # A wider window than the sequence sees all of it; 64-bit sums never overflow then.
    return (key >= query - min(left, seq_len)) & (key <= query + min(right, seq_len))


def block_diagonal_mask(seq_len: int, block_size: int) -> Bool[Tensor, "1 1 query key"]:
    """Let each query attend within its own block of neighbouring positions.

    Args:
      seq_len: at least 1.
      block_size: positions in a block; the last block may be shorter.

    Returns:
      ``[1, 1, seq_len, seq_len]``, on the default device.

    Raises:
      TypeError, ValueError: if one is no size.

    Source: Child et al. 2019, section 4. Port: ``jax_input.block_diagonal_mask``.
    """
    block_size = require_size("block_size", block_size)
    query, key = _positions(seq_len)
    return query // block_size == key // block_size


def segment_mask(
    segment_ids: Int[Tensor, "batch seq_len"],
) -> Bool[Tensor, "batch 1 query key"]:
    """Let each query attend within its own segment of a packed row.

    Args:
      segment_ids: one integer per token, equal within a segment, as ``positions_from_segments``
        takes them. Padding is a segment like another: hide it with ``padding_mask``.

    Returns:
      ``[batch, 1, seq_len, seq_len]``.

    Raises:
      TypeError: if they are no integers.
      ValueError: if they have not two axes.

    Source: Raffel et al. 2020, section 2.1 (packing). Port: ``jax_input.segment_mask``.
    """
    require_integers("segment_ids", segment_ids)
    if segment_ids.ndim != 2:
        raise ValueError(
            f"`segment_ids` must have shape [batch, seq_len], got {list(segment_ids.shape)}."
        )
    return segment_ids[:, None, :, None] == segment_ids[:, None, None, :]


def mask_to_bias(
    mask: Bool[Tensor, "*shape"], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "*shape"]:
    """Return what a function that adds to the scores takes: 0, or the least finite number.

    Combine masks before, not their biases: two of these add to -inf.

    Args:
      mask: True = may attend.
      dtype: of the result.

    Returns:
      The shape of ``mask``; 0 where it is True, ``torch.finfo(dtype).min`` where it is not.

    Raises:
      TypeError: if ``mask`` is not boolean, or ``dtype`` not supported.

    Port: ``jax_input.mask_to_bias``.
    """
    require_mask("mask", mask)
    require_dtype("dtype", dtype)
    zeros = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return zeros.masked_fill(~mask, torch.finfo(dtype).min)


def require_mask(name: str, mask: Any, shape: tuple[int, ...] | None = None) -> None:
    """Refuse what is no boolean tensor, or doesn't broadcast to the scores.

    Args:
      name: what the message calls it.
      mask: True = may attend.
      shape: of the scores, (batch, num_heads, query, key); by default any shape will do.

    Raises:
      TypeError: if it is anything else than booleans.
      ValueError: if it hasn't four axes, each of them 1 or that of ``shape``.
    """
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        is_float = isinstance(mask, Tensor) and mask.dtype.is_floating_point
        way_out = (
            "For 0 = may attend and large negatives, added to scores, use `mask_from_bias`"
            if is_float
            else "For 1 = may attend write mask == 1, for 1 = hidden mask == 0"
        )
        raise TypeError(
            f"`{name}` must be a torch.bool tensor with True = may attend, got {kind}. {way_out}."
        )
    if shape is None:
        return
    fits = mask.ndim == 4 and all(
        size in (1, whole) for size, whole in zip(mask.shape, shape, strict=True)
    )
    if not fits:
        raise ValueError(
            f"`{name}` must have the axes [batch, num_heads, query, key], each 1 or as in "
            f"{list(shape)}, got {list(mask.shape)}. For keys alone pass {name}[:, None, None, :]."
        )


def _positions(seq_len: int) -> tuple[Tensor, Tensor]:
    """Return the position of each query, and of each key, with four axes."""
    positions = torch.arange(require_size("seq_len", seq_len))
    return positions[None, None, :, None], positions[None, None, None, :]


def _warn_if_inverted(is_token: Tensor, padding_side: str) -> None:
    ordered = is_token if padding_side == "right" else is_token.flip(1)
    wrong = ~ordered[:, 0] & ordered.any(1)
    if wrong.any():
        end, other = ("first", "left") if padding_side == "right" else ("last", "right")
        warnings.warn(
            f"`is_token` hides the {end} position of row {int(wrong.nonzero()[0])} and not all of "
            f"the others, though `padding_side` is {padding_side!r}. True = token here: if yours "
            f"says True = padding, pass ~is_token; if padding is on the {other}, say "
            f'padding_side="{other}" ("any" for neither).',
            stacklevel=3,
        )
