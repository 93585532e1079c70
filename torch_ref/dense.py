"""A linear layer, and what is asked of parameters: dicts of names and tensors."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from torch_ref.requirements import require_floats
from torch_ref.rounding import narrow, rounded, widen

Params = Mapping[str, Any]
"""Tensors by name, or further such dicts."""


def dense(
    x: Float[Tensor, "*batch d_in"], params: Params, axes: int = 1, *, name: str = "params"
) -> Float[Tensor, "*batch d_out"]:
    """Multiply by a kernel and add a bias, summed in float32 (float64 for float64).

    Args:
      x: its last ``axes`` axes are contracted with the first of the kernel.
      params: "kernel", rounded to the dtype of ``x`` where that is narrower, and "bias" of the
        kernel's other axes, which may be absent.
      axes: how many axes are contracted.
      name: what messages call ``params``.

    Returns:
      The dtype of ``x``, rounded once.

    Raises:
      TypeError: if a leaf holds no supported floats.
      ValueError: if a leaf is missing, unknown, or has another shape.

    Port: ``jax_input.dense.dense``.
    """
    require_names(name, params, ("kernel",), ("bias",))
    kernel = params["kernel"]
    require_floats(f"{name}['kernel']", kernel)
    contracted, rest = kernel.shape[:axes], kernel.shape[axes:]
    if not rest or contracted != x.shape[-axes:]:
        raise ValueError(
            f"`{name}['kernel']` has shape {list(kernel.shape)}, but must begin with the last "
            f"{'axis' if axes == 1 else f'{axes} axes'} of what it multiplies, "
            f"{list(x.shape[-axes:])}, and end with its outputs. "
            "A PyTorch weight is [out, in]: transpose it."
        )
    wide = widen(x)
    weights = rounded(widen(kernel), x.dtype).to(wide.dtype)
    y = torch.tensordot(wide, weights, dims=axes)
    if params.get("bias") is not None:
        y = y + vector(params, "bias", rest, name=name).to(wide.dtype)
    return narrow(y, x.dtype)


def vector(params: Params, leaf: str, shape: tuple[int, ...], *, name: str) -> Tensor:
    """Return a scale or bias, or say what shape it must have."""
    values: Tensor = params[leaf]
    require_floats(f"{name}['{leaf}']", values)
    if values.shape != shape:
        raise ValueError(
            f"`{name}['{leaf}']` must have shape {list(shape)}, got {list(values.shape)}."
        )
    return values


def map_params(params: Params, change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """Return the dicts anew, with every tensor changed."""
    return {
        name: map_params(leaf, change) if isinstance(leaf, Mapping) else change(leaf)
        for name, leaf in params.items()
    }


def require_names(
    name: str, params: Any, needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> None:
    """Refuse a dict with a name too few or too many.

    Raises:
      TypeError: if it is no mapping.
      ValueError: if a name is missing or unknown.
    """
    if not isinstance(params, Mapping):
        raise TypeError(f"`{name}` must be a dict, got {type(params).__name__}.")
    missing = [key for key in needed if key not in params]
    unknown = [key for key in params if key not in (*needed, *optional)]
    if missing or unknown:
        allowed = ", ".join([*needed, *(f"{key} (optional)" for key in optional)])
        wrong = [*(f"lacks {key!r}" for key in missing), *(f"has {key!r}" for key in unknown)]
        raise ValueError(f"`{name}` {' and '.join(wrong)}; it must hold {allowed}.")


def require_vectors(x: Any, d_model: int | None = None) -> None:
    """Refuse what are no vectors along a sequence, [batch, seq_len, d_model].

    Raises:
      TypeError: if it holds no supported floats.
      ValueError: if it has not three axes, or the last is not ``d_model``.
    """
    require_floats("x", x)
    if x.ndim != 3 or (d_model is not None and x.shape[-1] != d_model):
        last = "d_model" if d_model is None else f"d_model {d_model}"
        raise ValueError(f"`x` must have shape [batch, seq_len, {last}], got {list(x.shape)}.")
