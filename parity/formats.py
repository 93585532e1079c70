"""Number formats: how fine they are, how they round, which bits they have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Shaped, UInt


@dataclass(frozen=True)
class Format:
    """A binary floating format.

    Attributes:
      digits: bits of the significand, the hidden one included.
      min_exponent: the smallest normal number is 2 to this.
    """

    digits: int
    min_exponent: int


FORMATS = {
    "bfloat16": Format(8, -126),
    "float16": Format(11, -14),
    "float32": Format(24, -126),
    "float64": Format(53, -1022),
}


def is_floating(dtype: np.dtype) -> bool:
    """Say whether this is one of the floating formats."""
    return dtype.name in FORMATS


def is_whole(dtype: np.dtype) -> bool:
    """Say whether this holds integers or truth values."""
    return dtype.kind in "iub"


def ulp(values: Float[np.ndarray, "*shape"], dtype: np.dtype | str) -> Float[np.ndarray, "*shape"]:
    """Return the distance of neighbours in a format, at float64 values.

    Args:
      values: where; of inf and NaN it is that of 0.
      dtype: a name in `FORMATS`, or a dtype of that name.

    Returns:
      float64, at least the smallest subnormal number of the format.
    """
    form = FORMATS[np.dtype(dtype).name if not isinstance(dtype, str) else dtype]
    finite = np.where(np.isfinite(values), values, 0.0)
    exponents = np.frexp(finite)[1] - 1
    exponents = np.where(finite == 0, form.min_exponent, exponents)
    return np.ldexp(1.0, np.maximum(exponents, form.min_exponent) - (form.digits - 1))


def round_to(
    values: Float[np.ndarray, "*shape"], dtype: np.dtype | str
) -> Shaped[np.ndarray, "*shape"]:
    """Round float64 values once to a format: to nearest even, with gradual underflow.

    A cast would go through float32 on its way to bfloat16, and round twice.
    """
    kind = dtype_of(dtype)
    if kind == np.float64:
        return np.array(values, dtype=np.float64)
    step = ulp(values, kind)
    with np.errstate(over="ignore", invalid="ignore"):
        return (np.rint(values / step) * step).astype(kind)


def dtype_of(name: np.dtype | str) -> np.dtype:
    """Return the dtype of a name; bfloat16 is one that NumPy has to be taught."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def bits(values: Shaped[np.ndarray, "*shape"]) -> UInt[np.ndarray, "*shape"]:
    """Return the bit patterns as unsigned integers, of truth values as 0 and 1."""
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").reshape(values.shape)


def differing_bits(
    ours: Shaped[np.ndarray, "*shape"], theirs: Shaped[np.ndarray, "*shape"]
) -> Bool[np.ndarray, "*shape"]:
    """Return where two arrays of one dtype differ in their bits; a NaN is as good as another."""
    return (bits(ours) != bits(theirs)) & ~(is_nan(ours) & is_nan(theirs))


def is_nan(values: Shaped[np.ndarray, "*shape"]) -> Bool[np.ndarray, "*shape"]:
    """Return where an array of any dtype is NaN, nowhere if it holds integers."""
    return np.isnan(widen(values)) if is_floating(values.dtype) else np.zeros(values.shape, bool)


def widen(values: Shaped[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Return an array in float64, without the warning that a signalling NaN calls up."""
    with np.errstate(invalid="ignore"):
        return values.astype(np.float64)


def fits_float32(values: Float[np.ndarray, "*shape"]) -> bool:
    """Say whether every float64 value is one of float32's."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32).astype(np.float64)
    return bool(np.all((narrow == values) | np.isnan(values)))
