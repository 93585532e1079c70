"""A matrix product whose gradient is as fast as itself, on a CPU too."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Float

from jax_input.rounding import wide_dtype


@partial(jax.custom_jvp, nondiff_argnums=(2, 3))
def matmul(
    a: Float[Array, "*batch rows inner"],
    b: Float[Array, "inner columns"],
    precision: lax.PrecisionLike = None,
    as_batch: bool = False,
) -> Float[Array, "*batch rows columns"]:
    """Multiply; in float32 (float64 for float64), which is what comes back.

    The gradient of ``b`` is the transpose of ``a`` times the cotangent. XLA has fast products for
    a CPU, but none that sums over the first axis of its first array: there it takes up to three
    times as long as to lay out the smaller array anew. Other devices do either.

    Args:
      a: rows.
      b: columns.
      precision: of the product.
      as_batch: whether ``dots_with_no_batch_dims_saveable``, a policy of ``jax.checkpoint``, is to
        compute it again, as it does batches of products; of two axes alone.

    Returns:
      The product, not yet rounded to the dtype of ``a``.
    """
    return _primal(a, b, precision, as_batch)


@partial(matmul.defjvp, symbolic_zeros=True)
def _matmul_jvp(
    precision: lax.PrecisionLike,
    as_batch: bool,
    primals: tuple[Array, Array],
    tangents: tuple[Any, Any],
) -> tuple[Array, Any]:
    (a, b), (d_a, d_b) = primals, tangents
    y = _primal(a, b, precision, as_batch)
    parts = []
    if not isinstance(d_a, SymbolicZero):
        parts.append(_plain(d_a, b, precision))
    if not isinstance(d_b, SymbolicZero):
        parts.append(_transposed_fast(a, d_b, precision))
    return y, sum(parts[1:], parts[0]) if parts else SymbolicZero(jax.typeof(y))


def _primal(a: Array, b: Array, precision: lax.PrecisionLike, as_batch: bool) -> Array:
    if not as_batch:
        return _plain(a, b, precision)
    one = (((2,), (1,)), ((0,), (0,)))  # a batch of one
    wide = wide_dtype(a.dtype)
    y = lax.dot_general(a[None], b[None], one, precision=precision, preferred_element_type=wide)
    return y[0]


def _plain(a: Array, b: Array, precision: lax.PrecisionLike) -> Array:
    wide = wide_dtype(a.dtype)
    return jnp.matmul(a, b, precision=precision, preferred_element_type=wide)


def _plain_nt(a: Array, b: Array, precision: lax.PrecisionLike) -> Array:
    wide = wide_dtype(a.dtype)
    dims = (((1,), (1,)), ((), ()))
    return lax.dot_general(a, b, dims, precision=precision, preferred_element_type=wide)


def _transposed_fast(a: Array, b: Array, precision: lax.PrecisionLike) -> Array:
    """Multiply; the transpose with respect to ``b`` is one of the fast products of a CPU.

    A barrier keeps what is laid out anew from being merged into the product.
    """
    if a.dtype != wide_dtype(a.dtype):  # which a CPU converts first
        return _plain(a, b, precision)
    keep = lax.optimization_barrier

    def on_cpu(a: Array, b: Array) -> Array:
        flat = a.reshape(-1, a.shape[-1])
        (rows, inner), columns = flat.shape, b.shape[1]
        if rows * inner <= rows * columns + inner * columns:
            y = _plain(keep(flat.T).T, keep(b), precision)
        else:
            y = keep(_plain_nt(keep(b.T), flat, precision)).T
        return y.reshape(*a.shape[:-1], columns)

    return lax.platform_dependent(a, b, cpu=on_cpu, default=partial(_plain, precision=precision))
