"""What the package asks of its arguments, in one voice: the argument, what came, what may come."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike


def require_size(name: str, size: int) -> int:
    """Return a size of an axis, or say what it may be."""
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
        raise TypeError(f"`{name}` must be a Python integer, got {type(size).__name__} {size!r}.")
    if not 1 <= size <= 2**31:
        raise ValueError(f"`{name}` must be at least 1 and at most 2**31, got {size}.")
    return int(size)


def require_dtype(dtype: DTypeLike) -> np.dtype:
    """Return the dtype of a table, or say which ones there are."""
    kind = jnp.dtype(dtype)
    if kind.name not in ("float16", "bfloat16", "float32", "float64"):
        raise TypeError(
            f"`dtype` must be float32, bfloat16, float16 or float64, got {kind.name}. "
            "Build the table in one of these, and convert it yourself."
        )
    if kind == np.float64 and jax.dtypes.canonicalize_dtype(kind) != kind:
        raise ValueError(
            "`dtype` is float64, which JAX has only where x64 is on. "
            "Call it under `with jax.enable_x64(True)`, or ask for float32."
        )
    return kind


def require_positions(positions: ArrayLike) -> Array:
    """Return integer or float32 positions, those whose values are known within 32 bits.

    Python floats have no width of their own and are taken as float32.
    """
    given = positions if isinstance(positions, jax.Array) else np.asarray(positions)
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
