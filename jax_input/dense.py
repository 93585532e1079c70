"""A linear layer: what attention and the feed-forward network are made of."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from jax_input.matmul import matmul
from jax_input.requirements import require_floats

Params = Mapping[str, Any]


def dense(
    x: Float[Array, "..."],
    params: Params,
    axes: int = 1,
    *,
    name: str = "params",
    matmul_precision: lax.PrecisionLike = None,
) -> Float[Array, "..."]:
    """Multiply by a kernel and add a bias, summed in float32 (float64 for float64).

    Args:
      x: its last ``axes`` axes are contracted with the first of the kernel.
      params: "kernel", and "bias" of the kernel's other axes, which may be absent.
      axes: how many axes are contracted.
      name: what messages call ``params``.
      matmul_precision: of the product.

    Returns:
      The dtype of ``x``, rounded once.

    Raises:
      TypeError: if a leaf holds no supported floats.
      ValueError: if a leaf is missing, unknown, or has another shape.
    """
    return linear(x, *require_leaves(name, params, x, axes), axes, matmul_precision)


# What is cast, joined or laid out anew on the way is not kept for the backward pass.
@partial(jax.checkpoint, prevent_cse=False, static_argnums=(3, 4))
def linear(
    x: Float[Array, "..."],
    kernel: Float[Array, "..."],
    bias: Float[Array, "..."] | None,
    axes: int,
    matmul_precision: lax.PrecisionLike,
) -> Float[Array, "..."]:
    """Do what ``dense`` does with leaves that are as they should be."""
    # Two axes, since a product of more is laid out anew on its way.
    contracted, rest = math.prod(kernel.shape[:axes]), kernel.shape[axes:]
    rows = x.reshape(*x.shape[: x.ndim - axes], contracted)
    y = matmul(rows, kernel.reshape(contracted, -1).astype(x.dtype), matmul_precision)
    if bias is not None:
        y += jnp.broadcast_to(bias.reshape(-1).astype(y.dtype), y.shape)
    return y.astype(x.dtype).reshape(*x.shape[: x.ndim - axes], *rest)


def require_leaves(name: str, params: Any, x: Array, axes: int) -> tuple[Array, Array | None]:
    """Return kernel and bias, which may be absent, or say what is wrong with them."""
    require_names(name, params, ("kernel",), ("bias",))
    kernel = require_floats(f"{name}['kernel']", params["kernel"])
    contracted, rest = kernel.shape[:axes], kernel.shape[axes:]
    if not rest or contracted != x.shape[-axes:]:
        raise ValueError(
            f"`{name}['kernel']` has shape {list(kernel.shape)}, but must begin with the last "
            f"{'axis' if axes == 1 else f'{axes} axes'} of what it multiplies, "
            f"{list(x.shape[-axes:])}, and end with its outputs. "
            "A PyTorch weight is [out, in]: transpose it."
        )
    if params.get("bias") is None:
        return kernel, None
    bias = require_floats(f"{name}['bias']", params["bias"])
    if bias.shape != rest:
        raise ValueError(
            f"`{name}['bias']` must have the shape of the kernel's outputs, {list(rest)}, "
            f"got {list(bias.shape)}."
        )
    return kernel, bias


def require_names(
    name: str, params: Any, needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> None:
    """Refuse parameters with a name too few or too many.

    Raises:
      TypeError: if they are no mapping.
      ValueError: if a name is missing or unknown.
    """
    if not isinstance(params, Mapping):
        raise TypeError(f"`{name}` must be a dict of parameters, got {type(params).__name__}.")
    missing = [key for key in needed if key not in params]
    unknown = [key for key in params if key not in (*needed, *optional)]
    if missing or unknown:
        allowed = ", ".join([*needed, *(f"{key} (optional)" for key in optional)])
        wrong = [*(f"lacks {key!r}" for key in missing), *(f"has {key!r}" for key in unknown)]
        raise ValueError(f"`{name}` {' and '.join(wrong)}; it must hold {allowed}.")


def require_vectors(x: Any, d_model: int | None = None) -> Float[Array, "batch seq_len d_model"]:
    """Return ``x`` as an array of vectors along a sequence, or say what came instead.

    Raises:
      TypeError: if it holds no supported floats.
      ValueError: if it has not three axes, or the last is not ``d_model``.
    """
    array = require_floats("x", x)
    if array.ndim != 3 or (d_model is not None and array.shape[-1] != d_model):
        last = "d_model" if d_model is None else f"d_model {d_model}"
        raise ValueError(
            f"`x` must have shape [batch, seq_len, {last}], got {list(np.shape(array))}."
        )
    return array
