"""What the package asks of its arguments, in one voice: the argument, what came, what may come.

JAX cuts 64-bit host integers to 32 bits without a word, wraps -1 to the last row, and clamps or
fills beyond it, each in another place. Here an index out of range stays out of range.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Bool, Float, Int32

FLOATS = ("float16", "bfloat16", "float32", "float64")


def require_size(name: str, size: int) -> int:
    """Return a size of an axis, or say what it may be."""
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
        raise TypeError(f"`{name}` must be a Python integer, got {type(size).__name__} {size!r}.")
    if not 1 <= size <= 2**31:
        raise ValueError(f"`{name}` must be at least 1 and at most 2**31, got {size}.")
    return int(size)


def require_dtype(dtype: DTypeLike, name: str = "dtype") -> np.dtype:
    """Return a dtype of results, or say which ones there are."""
    try:
        is_none = dtype is None or isinstance(dtype, np.ndarray | jax.Array)  # NumPy takes these
        kind = None if is_none else jnp.dtype(dtype)
    except TypeError:
        kind = None
    if kind is None or not kind.isnative or kind.name not in FLOATS:
        raise TypeError(
            f"`{name}` must be float32, bfloat16, float16 or float64, got "
            f"{dtype if kind is None or not kind.isnative else kind.name}. "
            "Compute in one of these, and convert the result yourself."
        )
    if kind == np.float64 and jax.dtypes.canonicalize_dtype(kind) != kind:
        raise ValueError(
            f"`{name}` is float64, which JAX has only where x64 is on. "
            "Call it under `with jax.enable_x64(True)`, or ask for float32."
        )
    return kind


def require_flag(name: str, value: bool) -> bool:
    """Return a truth value that is known when the program is built, or say what came instead."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(
            f"`{name}` must be True or False, known when the program is built, got "
            f"{type(value).__name__}. Pass bool({name}), or make it static under jit."
        )
    return bool(value)


def require_one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is not among a few."""
    if not isinstance(value, str) or value not in allowed:
        choices = " or ".join(f'"{word}"' for word in allowed)
        raise ValueError(f"`{name}` must be {choices}, got {value!r}.")


def require_positions(positions: ArrayLike) -> Array:
    """Return integer or float32 positions, those whose values are known within 32 bits.

    Python floats have no width of their own and are taken as float32.
    """
    given = _on_its_side("positions", positions)
    if given.dtype == np.float64 and isinstance(positions, (float, list, tuple)):
        given = given.astype(np.float32)
    is_real = given.dtype == np.float32
    if not is_real and not jnp.issubdtype(given.dtype, jnp.integer):
        raise TypeError(
            f"`positions` must be integers or float32, got {given.dtype}. Cast them to one of "
            "these: 16-bit floats lose integers above 256 (bfloat16) or 2,048 (float16)."
        )
    fits = not is_real and jnp.iinfo(given.dtype).max < 2**31
    if isinstance(given, jax.core.Tracer) or fits:
        return jnp.asarray(given)
    known = np.asarray(given)
    highest = 2**31 if is_real else 2**31 - 1
    bounds = np.array([-(2**31), highest], np.float64)  # exact, and comparable with any integer
    wrong = ~((known >= bounds[0]) & (known <= bounds[1]))
    if wrong.any():
        place = [int(axis) for axis in np.argwhere(wrong)[0]]
        raise ValueError(
            f"`positions` holds {known[tuple(place)]} at {place}, but must be from -(2**31) to "
            "2**31 - 1. Count from a nearer start."
        )
    return jnp.asarray(known if is_real else known.astype(np.int32))


def is_concrete(values: np.ndarray | Array) -> bool:
    """Return whether the values can be read now: not traced, and not spread over other hosts."""
    if isinstance(values, jax.core.Tracer):
        return False
    return not isinstance(values, jax.Array) or values.is_fully_addressable


def as_array(name: str, values: Any) -> Array:
    """Return an array of whatever makes one, or say what came instead.

    Raises:
      TypeError: if it makes none: None, text, objects, nested lists of different lengths.
    """
    try:
        return jnp.asarray(values)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"`{name}` must be an array, or nested lists of one length, got "
            f"{type(values).__name__}. Pad the rows, or pass jnp.asarray of them."
        ) from error


def require_floats(name: str, values: ArrayLike) -> Float[Array, "*shape"]:
    """Return an array of floats, or say what came instead.

    Raises:
      TypeError: if it is not float32, bfloat16, float16 or float64.
    """
    array = as_array(name, values)
    if array.dtype.name not in FLOATS:
        raise TypeError(
            f"`{name}` must hold float32, bfloat16, float16 or float64, got {array.dtype}. "
            "Cast it to one of these."
        )
    return array


def require_table(name: str, values: ArrayLike, axes: tuple[str, str]) -> Float[Array, "rows d"]:
    """Return a matrix of floats with at least one row and column, or say what came instead.

    Args:
      name: what the message calls it.
      values: one row per token or position.
      axes: the names of its sizes.

    Raises:
      TypeError: if it is not float32, bfloat16, float16 or float64.
      ValueError: if it has another rank, or no rows or columns.
    """
    table = require_floats(name, values)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(
            f"`{name}` must have shape [{axes[0]}, {axes[1]}], each at least 1, "
            f"got {list(table.shape)}."
        )
    return table


def require_integers(name: str, values: Any) -> np.ndarray | Array:
    """Return an array of integers as wide as they came, or say what came instead.

    Args:
      name: what the message calls it.
      values: a NumPy or JAX array, a number, or nested lists of numbers.

    Raises:
      TypeError: if it holds anything but integers; booleans are none.
    """
    array = _on_its_side(name, values)
    if isinstance(values, (list, tuple)) and array.size == 0:  # NumPy reads these as floats
        array = array.astype(np.int32)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"`{name}` must hold integers, got {array.dtype}. Cast it to int32.")
    return array


def _on_its_side(name: str, values: Any) -> np.ndarray | Array:
    """Return numbers of the host on the host, and others, or lists of others, as they are."""
    if isinstance(values, jax.Array):
        return values
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values)):
        return as_array(name, values)
    try:
        array = np.asarray(values)
    except ValueError:
        return as_array(name, values)  # which says that the lists have different lengths
    # NumPy reads integers beyond 64 bits, or of both signs there, as objects or floats.
    is_turned = array.dtype.kind in "Of" and array.size and isinstance(values, list | tuple)
    if is_turned and all(isinstance(leaf, int) for leaf in jax.tree.leaves(values)):
        raise ValueError(f"`{name}` holds an integer beyond 64 bits. Reduce it first.")
    return array


def require_inside(name: str, values: np.ndarray | Array, size: int, rows: str) -> None:
    """Refuse integers that are known and not in [0, size).

    Args:
      name: what the message calls them.
      values: concrete integers.
      size: how many rows there are.
      rows: where they are, and the way out, after "but".

    Raises:
      ValueError: naming the first such value and its place.
    """
    known = np.asarray(values)
    outside = (known < 0) | (known >= size)
    if outside.any():
        place = np.unravel_index(np.argmax(outside), outside.shape)
        raise ValueError(
            f"`{name}` holds {known[place]} at {[int(axis) for axis in place]}, but {rows}"
        )


def nearest_index(
    values: np.ndarray | Array, size: int
) -> tuple[Int32[Array, "*shape"], Bool[Array, "*shape"]]:
    """Return the index in [0, size) nearest to each value, and whether that is the value itself.

    Args:
      values: integers of any width, on the host, on a device, or traced.
      size: at most 2**31 - 1.
    """
    kind = jnp.iinfo(values.dtype)
    if kind.min < -(2**31) or kind.max > 2**31 - 1:
        # Limited before it is narrowed, and on the host if it is there.
        xp: Any = np if isinstance(values, np.ndarray) else jnp
        values = xp.minimum(values, values.dtype.type(size))
        if kind.min < 0:
            values = xp.maximum(values, values.dtype.type(-1))
    index = jnp.asarray(values.astype(np.int32))
    nearest = jnp.clip(index, 0, size - 1)
    return nearest, index == nearest
