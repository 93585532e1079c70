"""States that come from elsewhere: position tables are told apart, weights are matched by name."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Float

from jax_input.origin import Origin, tell_apart
from jax_input.requirements import require_dtype, require_flag, require_size
from jax_input.sinusoidal import PAPER, Sinusoid, sinusoidal_table
from jax_input.states import Path, by_name, like, require_same_weights

# Rows compared at a time, so that their float64 copies stay small.
_ROWS = 8192


@dataclass(frozen=True)
class RestoredTable:
    """What a stored position table turned out to be.

    Attributes:
      origin: "exact", or "published" for the float32 formula of the articles.
      difference: the largest distance of a stored entry from the exact table in the same dtype.
      table: the table to go on with.
    """

    origin: Origin
    difference: float
    table: Float[Array, "max_len d_model"]


def restore_table(
    stored: Float[ArrayLike, "rows d_model"] | Float[ArrayLike, "1 rows d_model"],
    max_len: int,
    d_model: int,
    *,
    sinusoid: Sinusoid = PAPER,
    dtype: DTypeLike | None = None,
    exact: bool = False,
    name: str = "table",
) -> RestoredTable:
    """Tell a stored position table apart, and bring it to ``max_len`` rows.

    A table is exact, or published (each entry within ``origin.published_bound`` of the exact one,
    and in 16 bits within an ulp more), or foreign. A published one is kept bit for bit, since
    the model was trained on it, and cut, or continued with exact rows. Those differ at the seam
    by the error of the published formula: 3e-6 after 60 rows, 4e-4 after 5,000
    (``tests/jax_input/test_checkpoints.py``).

    Args:
      stored: the table, with any number of rows and perhaps an axis of 1.
      max_len: rows of the result. All stored rows are looked at.
      d_model: columns of the result.
      sinusoid: the convention that the table should follow.
      dtype: of the result; by default that of ``stored``. Kept rows are rounded to it once.
      exact: use the exact table in place of a published one; ``difference`` says how far it is.
      name: what a message calls the table.

    Returns:
      The table, in memory of its own, with what it was.

    Raises:
      ValueError: if the table is foreign, naming the first row and column that differ; if its
        shape is another one; if it is published, in 16 bits, and wanted in more; if a size is below
        1, or float64 is asked for without x64.
      TypeError: if it holds no floats, a size is no integer, or ``dtype`` is another one.

    Reference: ``torch_ref.checkpoints.restore_table``.
    """
    max_len, d_model = require_size("max_len", max_len), require_size("d_model", d_model)
    exact = require_flag("exact", exact)
    rows = _require_rows(name, stored)
    if rows.shape[1] != d_model:
        raise ValueError(
            f"`{name}` has {rows.shape[1]} columns, but `d_model` is {d_model}. It belongs to a "
            "model of another width."
        )
    kind = require_dtype(rows.dtype if dtype is None else dtype)
    positions = np.arange(len(rows))
    blocks = [slice(start, start + _ROWS) for start in range(0, len(rows), _ROWS)]
    found = [tell_apart(name, rows[block], positions[block], sinusoid) for block in blocks]
    is_exact = all(origin == "exact" for origin, _ in found)
    origin: Origin = "exact" if is_exact else "published"
    difference = max(distance for _, distance in found)
    table = sinusoidal_table(max_len, d_model, sinusoid=sinusoid, dtype=kind)
    if is_exact or exact:
        return RestoredTable(origin, difference, table)
    if rows.dtype.itemsize == 2 < kind.itemsize:
        raise ValueError(
            f"`{name}` holds the published formula in {rows.dtype}, which is too coarse for "
            f"{kind}. Pass exact=True to use the exact table, or dtype={rows.dtype}."
        )
    kept = jnp.asarray(rows[:max_len].astype(kind))  # a copy, which no one else can write to
    return RestoredTable(origin, difference, jnp.concatenate([kept, table[len(kept) :]]))


def restore(
    stored: Mapping[str, Any],
    target: Mapping[str, Any],
    *,
    sinusoid: Sinusoid = PAPER,
    exact: bool = False,
    padding_idx: int | None = None,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Bring a stored state into the names, shapes and dtypes of a model, with the right table.

    Names are matched by their path, dots counting as steps and the collections "params" and
    "constants" left out. So a linen state fits an nnx one, and a PyTorch one with the same names.
    Position tables (``position_table`` or ``pe``) need not be in both: one that the model has and
    the state has not is built; one that the model has no place for is told apart all the same,
    and left out. Where both have one, ``restore_table`` decides, for any number of rows.

    Args:
      stored: nested mappings of arrays.
      target: nested mappings of arrays or ``jax.ShapeDtypeStruct``: linen variables, perhaps from
        ``jax.eval_shape``, or ``nnx.state(model, (nnx.Param, Constant))``.
      sinusoid: the convention of the model.
      exact: use the exact table in place of a published one.
      padding_idx: the padding row, to be told whether it is zero in ``embedding``.

    Returns:
      Nested dicts like ``target``, their arrays in memory of their own; and a line for each thing
      to know: a published table kept, replaced or left out; a padding row that is not zero.

    Raises:
      ValueError: naming the weights that are missing, left over, of another shape or there twice;
        if ``padding_idx`` is no row of ``embedding``; and as ``restore_table``.
      TypeError: if a leaf of ``stored`` is no array of numbers, or not of the kind of the model's.
    """
    given, wanted = by_name(stored, "stored"), by_name(target, "target")
    require_same_weights(given.keys(), wanted.keys())
    notes: list[str] = []
    restored: dict[Path, Array | None] = {}
    for path in sorted(given.keys() | wanted.keys()):
        if path[-1] != "position_table":
            restored[path] = _restore_weight(path, given[path], wanted[path], padding_idx, notes)
        elif path in given:
            place = wanted.get(path)
            restored[path] = _keep_table(path, given[path], place, sinusoid, exact, notes)
        else:
            restored[path] = _build_table(wanted[path], sinusoid)
    return like(target, restored), tuple(sorted(notes))


def _restore_weight(
    path: Path, stored: Any, place: Any, padding_idx: int | None, notes: list[str]
) -> Array:
    """Return a weight in the dtype of its place, and note a padding row that is not zero."""
    name = ".".join(path)
    value = _numbers(name, stored)
    if not hasattr(place, "dtype") or not hasattr(place, "shape"):
        raise TypeError(f"`{name}` of `target` must be an array, got {type(place).__name__}.")
    if jnp.issubdtype(value.dtype, jnp.floating) != jnp.issubdtype(place.dtype, jnp.floating):
        raise TypeError(f"`{name}` holds {value.dtype} in the state, but the model {place.dtype}.")
    if value.shape != place.shape:
        raise ValueError(
            f"`{name}` has shape {list(value.shape)} in the state, but the model has "
            f"{list(place.shape)}. Build the model with these sizes, or cut the weight."
        )
    if path[-1] == "embedding" and padding_idx is not None:
        if type(padding_idx) is not int or not 0 <= padding_idx < len(value):
            raise ValueError(
                f"`padding_idx` must be from 0 to {len(value) - 1}, the rows of `{name}`, "
                f"got {padding_idx!r}."
            )
        norm = float(np.linalg.norm(value[padding_idx].astype(np.float64)))
        if norm != 0:
            notes.append(
                f"`{name}`: padding row {padding_idx} is not zero (norm {norm:.3g}) and is read as "
                "it is; embed_tokens(..., zero_padding=True) reads zeros."
            )
    with np.errstate(over="ignore"):
        cast = value.astype(place.dtype)  # a copy, which no one else can write to
    if jnp.issubdtype(cast.dtype, jnp.floating) and (np.isfinite(value) & ~np.isfinite(cast)).any():
        raise ValueError(
            f"`{name}` holds numbers beyond {place.dtype}, the model's dtype. Give it a wider one."
        )
    return jnp.asarray(cast)


def _keep_table(
    path: Path, stored: Any, place: Any, sinusoid: Sinusoid, exact: bool, notes: list[str]
) -> Array | None:
    """Return a stored table for its place, None where there is none, and note a published one."""
    name = ".".join(path)
    rows = _require_rows(name, stored)
    max_len, d_model = rows.shape if place is None else _table_shape(place)
    narrow = np.float32 if rows.dtype == np.float64 else rows.dtype  # x64 may be off
    dtype = narrow if place is None else place.dtype
    found = restore_table(
        rows, max_len, d_model, sinusoid=sinusoid, dtype=dtype, exact=exact, name=name
    )
    if found.origin == "published":
        done = "kept" if not exact else "replaced by the exact table"
        done = "left out, since the model has no place for it" if place is None else done
        notes.append(
            f"`{name}`: the published float32 formula, up to {found.difference:.1e} from the exact "
            f"table; {done}."
        )
    return None if place is None else found.table.reshape(place.shape)


def _build_table(place: Any, sinusoid: Sinusoid) -> Array:
    table = sinusoidal_table(*_table_shape(place), sinusoid=sinusoid, dtype=place.dtype)
    return table.reshape(place.shape)


def _require_rows(name: str, stored: Any) -> Float[np.ndarray, "rows d_model"]:
    """Return a table as a matrix on the host."""
    table = _numbers(name, stored)
    if not jnp.issubdtype(table.dtype, jnp.floating):
        raise TypeError(f"`{name}` must hold floats, got {table.dtype}.")
    if table.ndim == 3 and 1 in table.shape[:2]:
        table = table.reshape(-1, table.shape[-1])
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(
            f"`{name}` must have shape [rows, d_model] or [1, rows, d_model], each at least 1, "
            f"got {list(np.shape(stored))}."
        )
    return table


def _table_shape(place: Any) -> tuple[int, int]:
    """Return ``(max_len, d_model)`` of a place that may have an axis of 1 before them."""
    shape = tuple(place.shape)
    if len(shape) not in (2, 3) or (len(shape) == 3 and 1 not in shape[:2]):
        raise ValueError(
            "`position_table` of `target` must have shape [max_len, d_model], perhaps with an axis "
            f"of 1 before d_model, got {list(shape)}. Restore one layer of a stack at a time."
        )
    return math.prod(shape[:-1]), shape[-1]


def _numbers(name: str, stored: Any) -> np.ndarray:
    """Return the numbers on the host, perhaps in the memory of their source."""
    if not hasattr(stored, "dtype") or not hasattr(stored, "shape"):
        raise TypeError(f"`{name}` must be an array of numbers, got {type(stored).__name__}.")
    value = np.asarray(stored)
    if not jnp.issubdtype(value.dtype, jnp.number):
        raise TypeError(f"`{name}` must be an array of numbers, got dtype {value.dtype}.")
    return value
