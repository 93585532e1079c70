"""Where the numbers of a position table come from: exact, the published formula, or elsewhere."""

from contextlib import nullcontext
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from jax_input.requirements import is_concrete
from jax_input.sinusoidal import Sinusoid, encode_positions

Origin = Literal["exact", "published"]


def published_bound(
    positions: Int[np.ndarray, " rows"], d_model: int, sinusoid: Sinusoid
) -> Float[np.ndarray, "rows d_model"]:
    """Return how far the published float32 formula may lie from the exact value, entry by entry.

    In units of 2**-24, half an ulp of float32 at most: a frequency ``f`` is the exponential of a
    number of size ``abs(log(f))`` that took at most four roundings (logarithm, product, quotient,
    cast), so it is off by ``4 * abs(log(f))``, and by 4 more for an exponential, or a power and
    its inverse, good to 2 ulp. The product with the position adds 1. Times the angle, that is the
    error of the angle, which the sine passes on; its own error of 1 ulp, and the rounding of the
    exact table, add less than 2**-23. Measured over PyTorch, NumPy and JAX, eager and jitted, by
    exponential and by power: at most 0.9 of it (``tests/jax_input/test_origin.py``).

    Args:
      positions: not negative.
      d_model: number of columns.
      sinusoid: the convention.

    Returns:
      float64, absolute.
    """
    count = -(-d_model // 2)
    column = np.arange(d_model)
    index = column // 2 if sinusoid.layout == "interleaved" else column % count
    divisor = d_model / 2 if sinusoid.freq_shift == 0 else max(d_model // 2 - 1, 1)
    log_frequency = -np.log(sinusoid.base) * index / divisor
    slope = np.exp(log_frequency) * (4 * np.abs(log_frequency) + 5) * 2.0**-24
    return positions[:, None] * slope[None] + 2.0**-23


def tell_apart(
    name: str,
    rows: Float[np.ndarray, "rows d_model"],
    positions: Int[np.ndarray, " rows"],
    sinusoid: Sinusoid,
) -> tuple[Origin, float]:
    """Return the origin of some rows, and their largest distance from the exact ones.

    Args:
      name: what the message calls the table.
      rows: as they are stored. 16-bit rows may be off by their own rounding as well.
      positions: the position of each row.
      sinusoid: the convention they should follow.

    Raises:
      ValueError: if they are neither exact nor published, naming the first row and column.
    """
    exact = exact_rows(positions, rows.shape[1], sinusoid, rows.dtype)
    distance = np.abs(rows.astype(np.float64) - exact.astype(np.float64))
    wrong = ~(distance <= _allowed(exact, positions, sinusoid))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"`{name}` is neither the exact table of {sinusoid} nor the published float32 formula: "
            f"row {positions[row]}, column {column} holds {float(rows[row, column])!r}, exact is "
            f"{float(exact[row, column])!r}. Name its convention as `sinusoid`, or leave the table "
            "out, so that the exact one is used."
        )
    difference = float(distance.max())
    # Two float64 tables that are each within 2**-53 of the truth are both exact.
    is_exact = difference <= (2.0**-52 if rows.dtype == np.float64 else 0.0)
    return ("exact" if is_exact else "published"), difference


def exact_rows(
    positions: Int[np.ndarray, " rows"], d_model: int, sinusoid: Sinusoid, dtype: np.dtype
) -> Float[np.ndarray, "rows d_model"]:
    """Return rows on the host, also while a caller's program is traced."""
    # float64 rows are exact only in float64, which need not be on where they are told apart.
    width = jax.enable_x64(True) if dtype == np.float64 else nullcontext()
    with jax.ensure_compile_time_eval(), width:
        return np.asarray(encode_positions(positions, d_model, sinusoid=sinusoid, dtype=dtype))


def require_position_table(
    table: Float[Array, "max_len d_model"],
    shape: tuple[int, int],
    dtype: np.dtype,
    sinusoid: Sinusoid,
) -> Float[Array, "max_len d_model"]:
    """Return a module's table without its gradient, if it is the table of the module.

    Its first two rows, the middle one and the last are looked at: at once where the table is
    known, when the program runs where it is traced, and then a wrong one reads as NaN. The first
    two pin the layout and each frequency. Under jit this takes less than 0.05 of a forward
    pass (``benchmarks/params_only.py``).

    Args:
      table: known or traced; exact, or kept from a published checkpoint.
      shape: ``(max_len, d_model)`` of the module.
      dtype: of the module.
      sinusoid: the convention of the module.

    Raises:
      ValueError: if shape or dtype is another one, or a known table is neither exact nor
        published, naming the first row and column.
    """
    if table.shape != shape or table.dtype != dtype:
        raise ValueError(
            f"`position_table` has shape {list(table.shape)} and dtype {table.dtype}, but the "
            f"module has {list(shape)} (max_len, d_model) and {dtype}. Load the state with "
            "jax_input.checkpoints.restore, or leave the table out, so that the exact one is used."
        )
    max_len, d_model = shape
    positions = np.array([0, min(1, max_len - 1), max_len // 2, max_len - 1])
    if is_concrete(table):
        with jax.ensure_compile_time_eval():
            known = np.asarray(jnp.take(table, positions, axis=0))
        tell_apart("position_table", known, positions, sinusoid)
        return table
    exact = exact_rows(positions, d_model, sinusoid, dtype)
    rows = jnp.stack([table[position] for position in positions])  # cheaper than a gather
    distance = jnp.abs(rows.astype(np.float32) - exact.astype(np.float32))
    is_right = jnp.all(distance <= _allowed(exact, positions, sinusoid).astype(np.float32))
    return lax.stop_gradient(jnp.where(is_right, table, jnp.nan))


def _allowed(
    exact: Float[np.ndarray, "rows d_model"],
    positions: Int[np.ndarray, " rows"],
    sinusoid: Sinusoid,
) -> Float[np.ndarray, "rows d_model"]:
    """Return the largest distance that the published formula explains, float64."""
    allowed = published_bound(positions, exact.shape[1], sinusoid)
    if exact.dtype.itemsize > 2:
        return allowed
    kind = jnp.finfo(exact.dtype)
    # Both sides were rounded once more, by half an ulp each; the last term is that of subnormals.
    ulp = np.abs(exact.astype(np.float64)) * float(kind.eps) + float(kind.smallest_subnormal)
    return allowed + ulp
