"""Products and casts that are rounded where they stand, under jit as outside it.

A compiler may contract ``a * b + c`` into one rounding (XLA on CPU and GPU does), and may keep a
bfloat16 intermediate in float32 (``xla_allow_excess_precision``). Either way jit would not give
the bits of the same steps one by one.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float


def wide_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype that arithmetic on ``dtype`` is done in: float64 for itself, or float32."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def widen(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return ``x`` in the dtype that its arithmetic is done in.

    A 16-bit ``x`` is rounded again, since the compiler may hand over what it was rounded from.
    """
    wide = wide_dtype(x.dtype)
    return x if x.dtype == wide else rounded(x.astype(wide), x.dtype)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def product(x: Float[Array, "*shape"], factor: float) -> Float[Array, "*shape"]:
    """Multiply ``x`` by a number of its own dtype, and round the product before anything else.

    Args:
      x: float32 or float64.
      factor: rounded to the dtype of ``x`` first.

    Returns:
      The product. No addition that follows is contracted with it.
    """
    value = x * x.dtype.type(factor)
    # No compiler contracts across an integer operation. This one changes a single pattern, a NaN
    # into another NaN, and costs half of `where(isnan(value), nan, value)`.
    kind = np.dtype(f"int{8 * x.dtype.itemsize}")
    pattern = lax.bitcast_convert_type(value, kind)
    pattern = lax.min(pattern, jnp.full_like(pattern, np.iinfo(kind).max - 1))
    return lax.bitcast_convert_type(pattern, x.dtype)


@product.defjvp
def _product_jvp(
    factor: float, primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    """Leave the integer step out: it has no derivative."""
    (x,), (tangent,) = primals, tangents
    return product(x, factor), tangent * x.dtype.type(factor)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def rounded(x: Float[Array, "*shape"], dtype: np.dtype) -> Float[Array, "*shape"]:
    """Return the values that ``dtype`` would hold, still in the dtype of ``x``.

    Args:
      x: float32 or float64.
      dtype: what its values are rounded to, to nearest even and with gradual underflow.

    Returns:
      The values. The gradient passes through unrounded, so that sums of it stay wide.
    """
    ours, theirs = jnp.finfo(x.dtype), jnp.finfo(dtype)
    if theirs.nmant >= ours.nmant:
        return x
    value = lax.reduce_precision(x, theirs.nexp, theirs.nmant)
    if theirs.nexp == ours.nexp:
        return value
    # reduce_precision flushes what lies below the smallest normal number to zero.
    step = 2.0 ** (theirs.minexp - theirs.nmant)
    tiny = lax.round(x * x.dtype.type(1 / step), lax.RoundingMethod.TO_NEAREST_EVEN)
    tiny = tiny * x.dtype.type(step)
    return jnp.where(jnp.abs(x) < x.dtype.type(theirs.smallest_normal), tiny, value)


@rounded.defjvp
def _rounded_jvp(
    dtype: np.dtype, primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    (x,), (tangent,) = primals, tangents
    return rounded(x, dtype), tangent


def round_to(x: Float[Array, "*shape"], dtype: np.dtype) -> Float[Array, "*shape"]:
    """Cast float32 or float64 to ``dtype`` with one rounding, which no compiler can leave out."""
    return rounded(x, dtype).astype(dtype)
