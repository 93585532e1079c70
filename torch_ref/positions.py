"""Positions of tokens, and adding the rows of a position table to them."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from torch_ref.requirements import (
    require_between,
    require_floats,
    require_integer,
    require_integers,
    require_size,
)
from torch_ref.rounding import narrow, rounded, widen


def position_ids(seq_len: int, *, offset: int = 0) -> Int[Tensor, " seq_len"]:
    """Count ``offset``, ``offset + 1``, ...: the positions of one sequence.

    Args:
      seq_len: how many positions, at least 1.
      offset: the first position.

    Returns:
      int32 positions.

    Raises:
      ValueError: if ``seq_len`` is below 1, or a position does not fit int32.
      TypeError: if an argument is not an integer.

    Port: ``jax_input.position_ids``.
    """
    seq_len = require_size("seq_len", seq_len)
    offset = require_integer("offset", offset)
    if not -(2**31) <= offset <= 2**31 - seq_len:
        raise ValueError(
            f"`offset` must be from -(2**31) to 2**31 - `seq_len` = {2**31 - seq_len}, "
            f"got {offset}. Count from a nearer start."
        )
    return torch.arange(offset, offset + seq_len, dtype=torch.int32)


def positions_from_mask(mask: Bool[Tensor, "*batch seq_len"]) -> Int[Tensor, "*batch seq_len"]:
    """Count the tokens of each row from 0; padding, on either side or between, gets 0.

    Args:
      mask: True where there is a token.

    Returns:
      int32 positions.

    Raises:
      TypeError: if ``mask`` is not bool.
      ValueError: if it has no axis.

    Port: ``jax_input.positions_from_mask``.
    """
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"`mask` must be a torch.bool tensor, True for a token, got {kind}.")
    _require_an_axis("mask", mask)
    count = mask.cumsum(-1) - 1
    return count.masked_fill(~mask, 0).to(torch.int32)


def positions_from_segments(
    segment_ids: Int[Tensor, "*batch seq_len"],
) -> Int[Tensor, "*batch seq_len"]:
    """Count from 0 within each run of equal segment ids (several texts packed into a row).

    Args:
      segment_ids: integers; a run ends where the id changes.

    Returns:
      int32 positions.

    Raises:
      TypeError: if ``segment_ids`` are not integers.
      ValueError: if they have no axis.

    Port: ``jax_input.positions_from_segments``.
    """
    require_integers("segment_ids", segment_ids)
    _require_an_axis("segment_ids", segment_ids)
    index = torch.arange(segment_ids.shape[-1], device=segment_ids.device)
    starts = torch.ones_like(segment_ids, dtype=torch.bool)
    starts[..., 1:] = segment_ids[..., 1:] != segment_ids[..., :-1]
    if segment_ids.numel() == 0:
        return torch.zeros_like(segment_ids, dtype=torch.int32)
    latest_start = (index * starts).cummax(-1).values
    return (index - latest_start).to(torch.int32)


def add_positions(
    x: Float[Tensor, "*batch seq_len d_model"],
    table: Float[Tensor, "max_len d_model"],
    *,
    positions: Int[Tensor, "*batch seq_len"] | Int[Tensor, " seq_len"] | None = None,
) -> Float[Tensor, "*batch seq_len d_model"]:
    """Add to each vector the table row of its position.

    Args:
      x: embedded tokens; the last axis but one is the sequence.
      table: one row per position, rounded to the dtype of ``x`` before it is added. Its gradient
        is summed in float32 (float64 for float64) and rounded once.
      positions: the row each token takes; by default 0, 1, ... along the sequence.

    Returns:
      ``x`` plus its rows, in the dtype of ``x``.

    Raises:
      ValueError: if ``seq_len`` is above ``max_len`` and no ``positions`` are given, a position is
        not a row (naming it and its place), or a shape does not fit.
      TypeError: if ``x`` or ``table`` is not floating, or ``positions`` are not integers.

    Source: Vaswani et al. 2017, section 3.5. Port: ``jax_input.add_positions``.
    """
    require_floats("x", x)
    require_floats("table", table, rank=2)
    max_len, d_model = table.shape
    if x.ndim < 2 or x.shape[-1] != d_model:
        raise ValueError(
            f"`x` must have shape [..., seq_len, {d_model}], the width of `table`, "
            f"got {list(x.shape)}."
        )
    seq_len = x.shape[-2]
    if positions is None:
        if seq_len > max_len:
            raise ValueError(
                f"`x` has seq_len {seq_len}, but the position table has max_len {max_len}. "
                f"Build the table with max_len >= {seq_len}, or shorten the sequence."
            )
        return _add_rows(x, widen(table)[:seq_len])
    require_integers("positions", positions)
    if positions.shape not in {x.shape[:-1], x.shape[-2:-1]}:
        raise ValueError(
            f"`positions` must have shape {list(x.shape[:-1])} or [{seq_len}], "
            f"got {list(positions.shape)}."
        )
    way_out = "Build the table with more rows, or count from a nearer start."
    require_between("positions", positions, 0, max_len - 1, way_out)
    return _add_rows(x, functional.embedding(positions.to(torch.int64), widen(table)))


def _add_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Add in float32 (float64 for float64) and round once, as a sum of 16-bit numbers is.

    Kept wide, the gradient of the table is summed in float32 too.
    """
    wide = widen(x)
    return narrow(wide + rounded(rows, x.dtype).to(wide.dtype), x.dtype)


def _require_an_axis(name: str, values: Tensor) -> None:
    if values.ndim == 0:
        raise ValueError(f"`{name}` must have a sequence axis, got a single number.")
