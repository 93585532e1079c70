"""Which query may attend to which key: boolean masks, True = may attend, four axes each.

The axes are (batch, num_heads, query, key), of size 1 where a mask says the same for all, so that
masks are combined by logic without further ado: ``padding_mask(...) & causal_mask(...)``. Adding
them would be wrong in every framework: floats of two masks overflow, and ``True + True`` is True.
"""

import warnings
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Bool, Float, Integer

from jax_input.requirements import (
    as_array,
    is_concrete,
    require_dtype,
    require_integers,
    require_one_of,
    require_size,
)

# What attention takes: an axis of size 1 serves all.
Mask = Bool[ArrayLike, "#batch #num_heads #query #key"]


def padding_mask(
    is_token: Bool[ArrayLike, "batch seq_len"],
    *,
    padding_side: Literal["right", "left", "any"] = "right",
) -> Bool[Array, "batch 1 1 key"]:
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
      UserWarning: if the values are known and some row has padding at its start and a token later
        (at its end and a token before, for "left"): most likely True and False are exchanged.

    Source: Vaswani et al. 2017, section 3.2.3. Reference: ``torch_ref.padding_mask``.
    """
    require_one_of("padding_side", padding_side, ("right", "left", "any"))
    kept = require_mask("is_token", is_token)
    if kept.ndim != 2:
        raise ValueError(f"`is_token` must have shape [batch, seq_len], got {list(kept.shape)}.")
    if padding_side != "any" and is_concrete(kept) and kept.shape[1]:
        _warn_if_inverted(np.asarray(kept), padding_side)
    return kept[:, None, None, :]


def causal_mask(seq_len: int) -> Bool[Array, "1 1 query key"]:
    """Let each query attend to its own position and those before it.

    Args:
      seq_len: at least 1.

    Returns:
      ``[1, 1, seq_len, seq_len]``.

    Raises:
      TypeError, ValueError: if ``seq_len`` is no size.

    Source: Vaswani et al. 2017, section 3.2.3. Reference: ``torch_ref.causal_mask``.
    """
    query, key = _positions(seq_len)
    return key <= query


def local_window_mask(seq_len: int, window: int | tuple[int, int]) -> Bool[Array, "1 1 query key"]:
    """Let each query attend to the positions near its own.

    Args:
      seq_len: at least 1.
      window: how many positions to the left and to the right, or one number for both sides; 0 is
        the position itself alone. (A band of three positions is ``window=1``.)

    Returns:
      ``[1, 1, seq_len, seq_len]``: True where ``query - left <= key <= query + right``.

    Raises:
      TypeError, ValueError: if ``seq_len`` is no size, or ``window`` not one or two integers from
        0.

    Source: Beltagy et al. 2020, section 3.1; ``local_window_size`` of ``jax.nn``. Reference:
    ``torch_ref.local_window_mask``.
    """
    sides = window if isinstance(window, tuple) else (window, window)
    is_right = len(sides) == 2 and all(
        isinstance(side, int | np.integer) and not isinstance(side, bool) for side in sides
    )
    if not is_right:
        raise TypeError(
            f"`window` must be an integer, or two as (left, right), got {window!r}. "
            "A band of three positions is window=1."
        )
    if min(sides) < 0:
        raise ValueError(f"`window` must be at least 0 on either side, got {window!r}.")
    query, key = _positions(seq_len)
    left, right = (min(int(side), seq_len) for side in sides)
    return (query - left <= key) & (key <= query + right)


def block_diagonal_mask(seq_len: int, block_size: int) -> Bool[Array, "1 1 query key"]:
    """Let each query attend within its own block of neighbouring positions.

    Args:
      seq_len: at least 1.
      block_size: positions in a block; the last block may be shorter.

    Returns:
      ``[1, 1, seq_len, seq_len]``.

    Raises:
      TypeError, ValueError: if one is no size.

    Source: Child et al. 2019, section 4. Reference: ``torch_ref.block_diagonal_mask``.
    """
    size = min(require_size("block_size", block_size), require_size("seq_len", seq_len))
    query, key = _positions(seq_len)
    return query // size == key // size


def segment_mask(
    segment_ids: Integer[ArrayLike, "batch seq_len"],
) -> Bool[Array, "batch 1 query key"]:
    """Let each query attend within its own segment of a packed row.

    Args:
      segment_ids: one integer per token, equal within a segment, as ``positions_from_segments``
        takes them. Padding is a segment like another: hide it with ``padding_mask``.

    Returns:
      ``[batch, 1, seq_len, seq_len]``.

    Raises:
      TypeError: if they are no integers.
      ValueError: if they have not two axes.

    Source: Raffel et al. 2020, section 2.1 (packing). Reference: ``torch_ref.segment_mask``.
    """
    ids = jnp.asarray(_narrowed(require_integers("segment_ids", segment_ids)))
    if ids.ndim != 2:
        raise ValueError(f"`segment_ids` must have shape [batch, seq_len], got {list(ids.shape)}.")
    return ids[:, None, :, None] == ids[:, None, None, :]


def mask_to_bias(
    mask: Bool[ArrayLike, "*shape"], dtype: DTypeLike = jnp.float32
) -> Float[Array, "*shape"]:
    """Return what a function that adds to the scores takes: 0, or the least finite number.

    Combine masks before, not their biases: two of these add to -inf.

    Args:
      mask: True = may attend.
      dtype: of the result.

    Returns:
      The shape of ``mask``; 0 where it is True, ``jnp.finfo(dtype).min`` where it is not.

    Raises:
      TypeError: if ``mask`` is not boolean, or ``dtype`` not supported.
      ValueError: if ``dtype`` is float64 where x64 is off.

    Reference: ``torch_ref.mask_to_bias``.
    """
    kept, kind = require_mask("mask", mask), require_dtype(dtype)
    return jnp.where(kept, jnp.zeros((), kind), jnp.finfo(kind).min)


def require_mask(name: str, mask: ArrayLike) -> Bool[Array, "*shape"]:
    """Return a boolean array, or say which way round masks are.

    Raises:
      TypeError: if it is anything else than booleans.
    """
    array = as_array(name, mask)
    if array.dtype != np.bool_:
        way_out = (
            "For 0 = may attend and large negatives, added to scores, use `mask_from_bias`"
            if jnp.issubdtype(array.dtype, jnp.inexact)
            else "For 1 = may attend write mask == 1, for 1 = hidden mask == 0"
        )
        raise TypeError(
            f"`{name}` must be boolean with True = may attend, got {array.dtype}. {way_out}."
        )
    return array


def _positions(seq_len: int) -> tuple[Array, Array]:
    """Return the position of each query, and of each key, with four axes."""
    positions = jnp.arange(require_size("seq_len", seq_len), dtype=jnp.int32)
    return positions[None, None, :, None], positions[None, None, None, :]


def _narrowed(ids: np.ndarray | Array) -> np.ndarray | Array:
    """Return 64-bit ids of the host as their ranks: JAX would cut them, and join two segments."""
    if not isinstance(ids, np.ndarray) or ids.dtype.itemsize < 8:
        return ids
    return np.unique(ids, return_inverse=True)[1].reshape(ids.shape).astype(np.int32)


def _warn_if_inverted(kept: np.ndarray, padding_side: str) -> None:
    ordered = kept if padding_side == "right" else kept[:, ::-1]
    wrong = ~ordered[:, 0] & ordered.any(axis=1)
    if wrong.any():
        end, other = ("first", "left") if padding_side == "right" else ("last", "right")
        warnings.warn(
            f"`is_token` hides the {end} position of row {int(np.argmax(wrong))} and not all of "
            f"the others, though `padding_side` is {padding_side!r}. True = token here: if yours "
            f"says True = padding, pass ~is_token; if padding is on the {other}, say "
            f'padding_side="{other}" ("any" for neither).',
            stacklevel=3,
        )
