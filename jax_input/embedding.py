"""The scaled look-up of token ids: padding row, ids out of range, gradient summed in float32."""

import math
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import checkify
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Bool, Float, Int32, Integer

from jax_input.requirements import (
    is_concrete,
    nearest_index,
    require_dtype,
    require_flag,
    require_inside,
    require_integers,
    require_size,
    require_table,
)
from jax_input.rounding import product, round_to, wide_dtype, widen

OutOfRange = Literal["error", "nan", "clip", "zero", "checkify"]


def embed_tokens(
    token_ids: Integer[ArrayLike, "*batch"] | list,
    embedding: Float[ArrayLike, "vocab_size d_model"],
    *,
    scale: int | float | Literal["sqrt"] | None = None,
    padding_idx: int | None = None,
    dtype: DTypeLike | None = None,
    out_of_range: OutOfRange = "error",
    zero_padding: bool = False,
) -> Float[Array, "*batch d_model"]:
    """Look up the row of each token and scale it.

    Rows are read in the dtype of ``embedding``, multiplied in float32 (float64 if they are
    float64) by the scale rounded to it, and rounded once to ``dtype``. The gradient is summed in
    that wide dtype, and rounded once to the dtype of ``embedding``.

    Args:
      token_ids: integers in [0, vocab_size), of any shape and width.
      embedding: one row per token.
      scale: None, a finite number known when the program is built, or "sqrt" for sqrt(d_model).
      padding_idx: the id whose row gets a gradient of exactly zero. The row itself is read as it
        is stored, as in PyTorch.
      dtype: of the result; by default that of ``embedding``.
      out_of_range: what an id without a row does. "error" raises where the ids are known, and
        reads NaN where they are traced. "nan" and "zero" read such a row and drop its gradient,
        "clip" reads and trains the nearest row. "checkify" raises where the ids are known, and
        is a ``checkify.check`` where they are traced. An id of -1 never wraps to the last row.
      zero_padding: read zeros at ``padding_idx``, whatever is stored.

    Returns:
      ``token_ids.shape + (d_model,)``.

    Raises:
      TypeError: if ``token_ids`` hold no integers, ``embedding`` or ``dtype`` is not a supported
        float, or ``scale`` or ``padding_idx`` is no number known when the program is built.
      ValueError: if ``embedding`` is no matrix or empty, an option is none of its values, a known
        id is out of range, or float64 is asked for without x64.

    Source: Vaswani et al. 2017, section 3.4. Reference: ``torch_ref.embed_tokens``.
    """
    table = require_table("embedding", embedding, ("vocab_size", "d_model"))
    vocab_size, d_model = table.shape
    padding_idx = _require_padding(
        padding_idx, vocab_size, require_flag("zero_padding", zero_padding)
    )
    factor = _require_scale(scale, d_model, table.dtype)
    kind = table.dtype if dtype is None else require_dtype(dtype)
    ids, is_inside = _require_ids(token_ids, vocab_size, out_of_range)

    rows = read_rows(table, ids)
    if factor is not None:
        rows = product(rows, factor)
    if padding_idx is not None:
        is_padding = (ids == padding_idx)[..., None]
        rows = jnp.where(is_padding, 0 if zero_padding else lax.stop_gradient(rows), rows)
    if is_inside is not None:
        rows = jnp.where(is_inside[..., None], rows, 0 if out_of_range == "zero" else jnp.nan)
    return round_to(rows, kind)


@jax.custom_jvp
def read_rows(
    table: Float[Array, "rows d_model"], indices: Int32[Array, "*batch"]
) -> Float[Array, "*batch d_model"]:
    """Read rows in the dtype of ``table``, and return them in float32 (float64 if it has that).

    Args:
      table: one row per index.
      indices: in [0, rows).

    Returns:
      The rows. Their gradient is summed wide: a 16-bit sum would stop growing at 256 or 2,048.
    """
    return widen(_gather(table, indices))


@read_rows.defjvp
def _read_rows_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array, Any]
) -> tuple[Array, Array]:
    """Gather from the widened table, so that the transpose scatters into a wide one."""
    (table, indices), (tangent, _) = primals, tangents
    wide = wide_dtype(table.dtype)
    return read_rows(table, indices), _gather(tangent.astype(wide), indices)


def _gather(table: Array, indices: Array) -> Array:
    return table.at[indices].get(mode="clip", wrap_negative_indices=False)


def require_parameter(
    vocab_size: int, d_model: int, dtype: DTypeLike, padding_idx: int | None, init: Any
) -> tuple[int, int]:
    """Return the shape of an embedding that is to be drawn, or say why none could be."""
    shape = require_size("vocab_size", vocab_size), require_size("d_model", d_model)
    require_dtype(dtype, "param_dtype")
    _require_padding(padding_idx, shape[0], zero_padding=False)
    if not callable(init):
        raise TypeError(
            "`embedding_init` must be callable as (key, shape, dtype), got "
            f"{type(init).__name__}. Pass one of jax.nn.initializers."
        )
    return shape


def zero_padding_row(
    drawn: Float[Array, "vocab_size d_model"], shape: tuple[int, int], padding_idx: int | None
) -> Float[Array, "vocab_size d_model"]:
    """Return what an initialiser made with zeros in its padding row; refuse another shape."""
    if jnp.shape(drawn) != shape:
        raise ValueError(
            f"`embedding_init` made shape {list(jnp.shape(drawn))}, but [vocab_size, d_model] is "
            f"{list(shape)}. Use the shape that it is given."
        )
    return drawn if padding_idx is None else _without_row(drawn, padding_idx)


@jax.jit
def _without_row(table: Array, row: int) -> Array:
    """Do it in one program, also where a module is made eagerly."""
    return table.at[row].set(0)


def _require_ids(
    token_ids: Any, vocab_size: int, out_of_range: OutOfRange
) -> tuple[Int32[Array, "*batch"], Bool[Array, "*batch"] | None]:
    """Return the row nearest to each id, and whether it is the id's (None where all count)."""
    if not isinstance(out_of_range, str) or out_of_range not in get_args(OutOfRange):
        allowed = ", ".join(map(repr, get_args(OutOfRange)))
        raise ValueError(f"`out_of_range` must be one of {allowed}, got {out_of_range!r}.")
    values = require_integers("token_ids", token_ids)
    rows = f"`embedding` has vocab_size {vocab_size}, so ids run from 0 to {vocab_size - 1}."
    if out_of_range in ("error", "checkify") and is_concrete(values):
        way_out = "Use the tokenizer of this embedding, or out_of_range='nan', 'clip' or 'zero'."
        require_inside("token_ids", values, vocab_size, f"{rows} {way_out}")
        return nearest_index(values, vocab_size)[0], None
    nearest, is_inside = nearest_index(values, vocab_size)
    if out_of_range == "checkify" and values.size:
        first = jnp.argmin(is_inside.ravel())
        checkify.check(
            jnp.all(is_inside),
            f"`token_ids` holds {{value}} at flat index {{place}}, but {rows}",
            value=jnp.ravel(values)[first],
            place=first,
        )
    return nearest, None if out_of_range == "clip" else is_inside


def _require_scale(scale: Any, d_model: int, dtype: np.dtype) -> float | None:
    """Return the number to multiply by, None where there is none."""
    if scale is None:
        return None
    if isinstance(scale, str) and scale == "sqrt":
        return math.sqrt(d_model)
    if isinstance(scale, jax.Array):
        raise TypeError(
            "`scale` must be known when the program is built, got a JAX array. "
            "Pass float(scale), or multiply the result yourself."
        )
    allowed = "`scale` must be None, a finite number or 'sqrt'"
    if isinstance(scale, str):
        raise ValueError(f"{allowed}, got {scale!r}.")
    if isinstance(scale, bool) or not isinstance(scale, (int, float, np.integer, np.floating)):
        raise TypeError(f"{allowed}, got {type(scale).__name__} {scale!r}. Pass a Python number.")
    number = scale if isinstance(scale, int) else float(scale)
    wide = wide_dtype(dtype)
    limit = float(np.finfo(wide).max)
    if not -limit <= number <= limit:
        raise ValueError(
            f"`scale` must be finite in {wide}, got {scale!r}. Pass another number, None or 'sqrt'."
        )
    return float(number)


def _require_padding(padding_idx: Any, vocab_size: int, zero_padding: bool) -> int | None:
    """Return the id of the padding row, None where there is none."""
    if padding_idx is None:
        if zero_padding:
            raise ValueError("`zero_padding` is True, but `padding_idx` is None. Name the row.")
        return None
    if isinstance(padding_idx, bool) or not isinstance(padding_idx, (int, np.integer)):
        raise TypeError(
            f"`padding_idx` must be None or a Python integer, got {type(padding_idx).__name__} "
            f"{padding_idx!r}."
        )
    if not 0 <= padding_idx < vocab_size:
        raise ValueError(
            f"`padding_idx` must be from 0 to {vocab_size - 1} (vocab_size - 1), got "
            f"{padding_idx}. Where PyTorch has -1, write vocab_size - 1."
        )
    return int(padding_idx)
