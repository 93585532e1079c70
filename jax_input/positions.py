"""Positions: their numbers from offsets, masks and segments, and the rows they add."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int32, Integer

from jax_input.embedding import read_rows
from jax_input.requirements import (
    as_array,
    is_concrete,
    nearest_index,
    require_floats,
    require_inside,
    require_integers,
    require_size,
    require_table,
)
from jax_input.rounding import round_to, rounded, wide_dtype, widen

Positions = Integer[ArrayLike, "*batch seq_len"] | Integer[ArrayLike, " seq_len"] | list


def position_ids(seq_len: int, *, offset: Integer[ArrayLike, ""] = 0) -> Int32[Array, " seq_len"]:
    """Return ``offset, offset + 1, ...``: the positions of one sequence.

    Args:
      seq_len: how many, at least 1.
      offset: the first one; may be traced, as in decoding. One that is traced and leaves no room
        counts from the nearest that does.

    Returns:
      int32 positions.

    Raises:
      TypeError: if ``seq_len`` is no Python integer or ``offset`` no integer.
      ValueError: if ``seq_len`` is below 1, ``offset`` is no scalar, or a known position is not
        from -(2**31) to 2**31 - 1.
    """
    seq_len = require_size("seq_len", seq_len)
    first = require_integers("offset", offset)
    if first.ndim != 0:
        raise ValueError(
            f"`offset` must be a scalar, got shape {list(first.shape)}. "
            "For one offset a sequence write offset[:, None] + position_ids(seq_len)."
        )
    if is_concrete(first) and not -(2**31) <= int(first) <= 2**31 - seq_len:
        raise ValueError(
            f"`offset` must be from -(2**31) to 2**31 - `seq_len` = {2**31 - seq_len}, "
            f"got {int(first)}. Count from a nearer start."
        )
    if not is_concrete(first):
        # Limited before it is narrowed: a wrapped one would read the rows of other positions.
        kind = jnp.iinfo(first.dtype)
        first = jnp.clip(first, max(kind.min, -(2**31)), min(kind.max, 2**31 - seq_len))
    return jnp.arange(seq_len, dtype=np.int32) + jnp.asarray(first.astype(np.int32))


def positions_from_mask(
    mask: Bool[ArrayLike, "*batch seq_len"] | list,
) -> Int32[Array, "*batch seq_len"]:
    """Count the tokens of each sequence, wherever its padding stands.

    Args:
      mask: True at tokens, False at padding.

    Returns:
      0 for the first token, 1 for the second, and so on; 0 at padding.

    Raises:
      TypeError: if ``mask`` is not boolean.
      ValueError: if it is a scalar.
    """
    tokens = as_array("mask", mask)
    if tokens.dtype != np.bool_:
        raise TypeError(
            f"`mask` must be boolean, True at tokens and False at padding, got {tokens.dtype}. "
            "Write token_ids != padding_idx, or mask == 1."
        )
    if tokens.ndim == 0:
        raise ValueError("`mask` must have shape [*batch, seq_len], got a scalar.")
    counted = jnp.cumsum(tokens, axis=-1, dtype=np.int32) - 1
    return jnp.where(tokens, counted, 0)


def positions_from_segments(
    segment_ids: Integer[ArrayLike, "*batch seq_len"] | list,
) -> Int32[Array, "*batch seq_len"]:
    """Count from the start of each segment of a packed row.

    Args:
      segment_ids: equal side by side for the tokens of one segment; an id may come again later.

    Returns:
      0 at the start of each run of equal ids, 1 after it, and so on.

    Raises:
      TypeError: if ``segment_ids`` hold no integers.
      ValueError: if it is a scalar.
    """
    segments = require_integers("segment_ids", segment_ids)
    if segments.ndim == 0:
        raise ValueError("`segment_ids` must have shape [*batch, seq_len], got a scalar.")
    # Compared before anything narrows them: 0 and 2**32 are two segments.
    changes = jnp.asarray(segments[..., 1:] != segments[..., :-1])
    starts = jnp.concatenate([jnp.ones_like(segments[..., :1], dtype=bool), changes], axis=-1)
    index = lax.broadcasted_iota(np.int32, starts.shape, starts.ndim - 1)
    return index - lax.cummax(jnp.where(starts, index, 0), axis=starts.ndim - 1)


def add_positions(
    x: Float[ArrayLike, "*batch seq_len d_model"],
    table: Float[ArrayLike, "max_len d_model"],
    *,
    positions: Positions | None = None,
) -> Float[Array, "*batch seq_len d_model"]:
    """Add to each vector the table row of its position.

    Args:
      x: embedded tokens.
      table: one row per position, rounded to the dtype of ``x`` before it is added. Its gradient
        is summed in float32 (float64 if it is float64).
      positions: the row each token takes, of shape ``x.shape[:-1]`` or ``(seq_len,)``; by default
        0, 1, ... along the last but one axis.

    Returns:
      ``x`` plus its rows, rounded once to the dtype of ``x``. A traced position without a row
      gives NaN, never another row.

    Raises:
      TypeError: if ``x`` or ``table`` holds no supported floats, or ``positions`` no integers.
      ValueError: if the shapes don't fit, ``seq_len`` is above ``max_len`` and no ``positions``
        are given, or a known position is not in [0, max_len).

    Source: Vaswani et al. 2017, section 3.5. Reference: ``torch_ref.add_positions``.
    """
    x = require_floats("x", x)
    rows = require_table("table", table, ("max_len", "d_model"))
    if x.ndim < 2 or x.shape[-1] != rows.shape[1]:
        raise ValueError(
            f"`x` must have shape [*batch, seq_len, d_model] with the d_model of `table`, "
            f"{rows.shape[1]}; got {list(x.shape)}."
        )
    if positions is None:
        added = _leading_rows(rows, x.shape[-2], x.dtype)
    else:
        added = _rows_at(rows, positions, x.shape[:-1], x.dtype)
    return round_to(widen(x) + jnp.broadcast_to(added, x.shape), x.dtype)


def _leading_rows(table: Array, seq_len: int, dtype: np.dtype) -> Array:
    """Return the first rows as they are added to ``dtype``."""
    max_len = table.shape[0]
    if seq_len > max_len:
        raise ValueError(
            f"`x` has seq_len {seq_len}, but the position table has max_len {max_len}. "
            f"Build the table with max_len >= {seq_len}, or shorten the sequence."
        )
    return _as_added(widen(table[:seq_len]), dtype)


def _rows_at(table: Array, positions: Any, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Return the rows of these positions as they are added to ``dtype``; NaN where none is."""
    max_len = table.shape[0]
    values = require_integers("positions", positions)
    if values.shape not in (shape, shape[-1:]):
        raise ValueError(
            f"`positions` must have shape {list(shape)} or {list(shape[-1:])}, as `x` without "
            f"d_model, got {list(values.shape)}."
        )
    nearest, is_inside = nearest_index(values, max_len)
    rows = read_rows(table, nearest)
    if is_concrete(values):
        has = f"the position table has max_len {max_len}: its rows run from 0 to {max_len - 1}."
        way_out = "Build it with more rows, or count from a nearer start."
        require_inside("positions", values, max_len, f"{has} {way_out}")
    else:
        rows = jnp.where(is_inside[..., None], rows, jnp.nan)
    return _as_added(rows, dtype)


def _as_added(rows: Array, dtype: np.dtype) -> Array:
    """Return the values that ``dtype`` holds, in the dtype of the sum: gradients sum up in it."""
    return rounded(rows, dtype).astype(wide_dtype(dtype))
