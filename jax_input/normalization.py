"""Normalisation of vectors."""

from functools import partial
from typing import Any, get_args

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from jax_input.config import NormForm, require_eps
from jax_input.dense import Params, require_names
from jax_input.requirements import require_floats, require_one_of
from jax_input.rounding import wide_dtype


def layer_norm(
    x: Float[ArrayLike, "*batch d_model"],
    params: Params,
    *,
    eps: float = 1e-5,
    form: NormForm = "standard",
) -> Float[Array, "*batch d_model"]:
    """Give each vector mean 0 and variance 1, then scale and shift it.

    The mean is taken off before the variance is summed, in float32 (float64 for float64): the
    difference of two sums that is common in JAX loses all digits where the mean is 1,000 times the
    deviation.

    Args:
      x: any shape; the last axis is normalised.
      params: "scale" and, if there is one, "bias", each ``[d_model]``.
      eps: added to the variance; PyTorch's 1e-5 by default, where Flax has 1e-6 and BERT 1e-12.
      form: "standard" is (x - mean) / sqrt(variance + eps); "annotated", of the Annotated
        Transformer, is (x - mean) / (deviation + eps) with d_model - 1 in the deviation.

    Returns:
      The shape and dtype of ``x``, rounded once.

    Raises:
      TypeError: if arrays hold no supported floats or ``eps`` is no number.
      ValueError: if the shapes don't fit, or ``eps`` or ``form`` is not one of those allowed.

    Source: Ba et al. 2016, section 3. Reference: ``torch_ref.layer_norm``.
    """
    require_names("params", params, ("scale",), ("bias",))
    require_one_of("form", form, get_args(NormForm))
    eps, x = require_eps(eps), require_floats("x", x)
    size = x.shape[-1] if x.ndim else 0
    if size == 0 or (form == "annotated" and size == 1):
        least = "two elements" if form == "annotated" else "one element"
        raise ValueError(
            f"`x` must have {least} at least along its last axis, got {list(x.shape)}."
        )
    wide = x.astype(wide_dtype(x.dtype))
    centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
    squares = jnp.sum(centred * centred, axis=-1, keepdims=True)
    given = ("scale",) if params.get("bias") is None else ("scale", "bias")
    rows = {name: _require_row(name, params[name], size) for name in given}
    return _scaled(centred, squares, rows, eps, form).astype(x.dtype)


# Of all that is as large as `x`, the centred vectors alone are kept for the backward pass.
@partial(jax.checkpoint, prevent_cse=False, static_argnums=(3, 4))
def _scaled(
    centred: Array, squares: Array, rows: dict[str, Array], eps: float, form: NormForm
) -> Array:
    """Divide by the deviation, then scale and shift."""
    size = centred.shape[-1]
    if form == "standard":
        y = centred * lax.rsqrt(squares / size + eps)
    else:
        y = centred / (_deviation(squares / (size - 1)) + eps)
    for name, combine in (("scale", jnp.multiply), ("bias", jnp.add)):
        if name in rows:
            y = combine(y, jnp.broadcast_to(rows[name].astype(y.dtype), y.shape))
    return y


def _require_row(name: str, leaf: Any, size: int) -> Array:
    row = require_floats(f"params[{name!r}]", leaf)
    if row.shape != (size,):
        raise ValueError(
            f"`params[{name!r}]` must have the shape of the last axis of `x`, [{size}], "
            f"got {list(row.shape)}."
        )
    return row


def _deviation(variance: Array) -> Array:
    """Return the square root, whose gradient at zero is zero, as PyTorch's is."""
    is_zero = variance == 0
    return jnp.where(is_zero, 0, jnp.sqrt(jnp.where(is_zero, 1, variance)))
