"""What the package asks of its arguments, in one voice: the argument, what came, what may come."""

import jax
import numpy as np
from jax.typing import DTypeLike


def require_size(name: str, size: int) -> int:
    """Return a size of an axis, or say what it may be."""
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
        raise TypeError(f"`{name}` must be a Python integer, got {type(size).__name__} {size!r}.")
    if not 1 <= size <= 2**31:
        raise ValueError(f"`{name}` must be at least 1 and at most 2**31, got {size}.")
    return int(size)


def require_dtype(dtype: DTypeLike) -> np.dtype:
    kind = np.dtype(dtype)
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
