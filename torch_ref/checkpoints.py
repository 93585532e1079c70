"""A position table that comes with a checkpoint: exact, published, or foreign."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from torch_ref.requirements import require_floats, require_size
from torch_ref.sinusoidal import PAPER, Sinusoid, arrange, sinusoidal_table


@dataclass(frozen=True)
class RestoredTable:
    """What a stored table turned out to be.

    Attributes:
      origin: "exact", or "published" for the float32 formula of the articles.
      difference: the largest distance of a stored entry from the exact table in the same dtype.
      table: the stored rows, bit for bit, cut or continued with exact rows to ``max_len``.
    """

    origin: Literal["exact", "published"]
    difference: float
    table: Float[Tensor, "max_len d_model"]


def restore_table(
    stored: Float[Tensor, "rows d_model"]
    | Float[Tensor, "1 rows d_model"]
    | Float[Tensor, "rows 1 d_model"],
    max_len: int,
    d_model: int,
    *,
    sinusoid: Sinusoid = PAPER,
    name: str = "table",
) -> RestoredTable:
    """Tell a stored table apart, and bring it to ``max_len`` rows.

    A table is "published" if each entry lies within `published_bound` of the exact one; in 16 bits
    an ulp more, since both sides were rounded once more.

    Args:
      stored: the table, of any number of rows, perhaps with an axis of 1 before or after them.
      max_len: rows of the result.
      d_model: columns of the result.
      sinusoid: the convention the table should have.
      name: what a message calls the table.

    Raises:
      ValueError: if the table is neither, naming the first row and column that differ, or has
        another shape.
      TypeError: if it is not floating.

    Port: ``jax_input.checkpoints.restore_table``.
    """
    max_len, d_model = require_size("max_len", max_len), require_size("d_model", d_model)
    rows = _require_rows(name, stored, d_model)
    count = rows.shape[0]
    exact = sinusoidal_table(max(count, max_len), d_model, sinusoid=sinusoid, dtype=rows.dtype)
    distance = (rows.double() - exact[:count].double()).abs()
    allowed = published_bound(count, d_model, sinusoid)
    kind = torch.finfo(rows.dtype)
    if kind.bits == 16:
        allowed += exact[:count].double().abs() * kind.eps + kind.smallest_normal * kind.eps
    foreign = ~(distance <= allowed)
    if foreign.any():
        row, column = foreign.nonzero()[0].tolist()
        raise ValueError(
            f"`{name}` is neither the exact table of {sinusoid} nor the published float32 formula: "
            f"row {row}, column {column} holds {rows[row, column].item()!r}, exact is "
            f"{exact[row, column].item()!r}, and {allowed[row, column].item():.1e} is allowed. "
            "Name its convention as `sinusoid`, or delete it from the state to use the exact table."
        )
    difference = distance.max().item()
    table = torch.cat([rows, exact[count:]])[:max_len].clone()
    # Two float64 tables that are each within 2**-53 of the truth are both exact.
    is_exact = difference <= (2.0**-52 if rows.dtype == torch.float64 else 0.0)
    return RestoredTable("exact" if is_exact else "published", difference, table)


def _require_rows(name: str, stored: Tensor, d_model: int) -> Float[Tensor, "rows d_model"]:
    """Return a stored table as a matrix on the CPU."""
    require_floats(name, stored)
    rows = stored.detach().cpu()
    if rows.ndim == 3 and 1 in rows.shape[:2]:
        rows = rows.flatten(0, 1)
    if rows.ndim != 2 or rows.shape[0] == 0 or rows.shape[1] != d_model:
        raise ValueError(
            f"`{name}` must have shape [rows, {d_model}], [1, rows, {d_model}] or "
            f"[rows, 1, {d_model}], got {list(stored.shape)}. "
            "A table of another width belongs to a model of another width."
        )
    return rows


def published_bound(
    rows: int, d_model: int, sinusoid: Sinusoid = PAPER
) -> Float[Tensor, "rows d_model"]:
    """Return how far the published float32 formula may lie from the exact value, entry by entry.

    In units of 2**-24, half an ulp of float32 at most: a frequency ``f`` is the exponential of a
    number of size ``abs(log(f))`` that took at most four roundings (logarithm, product, quotient,
    cast), so it is off by ``4 * abs(log(f))``, and by 4 more for an exponential, or a power and
    its inverse, good to 2 ulp. The product with the position adds 1. Times the angle, that is the
    error of the angle, which the sine passes on; its own error of 1 ulp, and the rounding of the
    exact table, add less than 2**-23. Measured over PyTorch, NumPy and JAX, eager and jitted, by
    exponential and by power: at most 0.6 of it (``tests/torch_ref/test_checkpoints.py``).

    Args:
      rows: positions 0 to ``rows - 1``.
      d_model: number of columns.
      sinusoid: the convention.

    Returns:
      float64, absolute.
    """
    step = float(sinusoid.step(d_model)) * math.log(sinusoid.base)
    size = step * torch.arange(-(-d_model // 2), dtype=torch.float64, device="cpu")  # -log(f)
    slope = torch.exp(-size) * (4 * size.abs() + 5) * 2.0**-24
    positions = torch.arange(rows, dtype=torch.float64, device="cpu")[:, None]
    return positions * arrange(slope, slope, d_model, sinusoid) + 2.0**-23
