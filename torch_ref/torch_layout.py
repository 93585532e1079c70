"""Parameters of ``torch.nn`` modules, laid out as the pure functions take them.

PyTorch's weights are [out, in], with the heads side by side in one axis; kernels here are [in,
out], with an axis of heads. Everything is a view, so that gradients reach the modules.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from torch_ref.dense import Params


def dense_params(
    weight: Float[Tensor, "d_out d_in"], bias: Float[Tensor, " d_out"] | None
) -> dict[str, Tensor]:
    """Return "kernel", and "bias" where there is one."""
    return {"kernel": weight.T} | ({} if bias is None else {"bias": bias})


def linear_params(linear: Any) -> dict[str, Tensor]:
    """Return the parameters of a ``torch.nn.Linear`` by name."""
    return dense_params(linear.weight, linear.bias)


def norm_params(norm: Any) -> dict[str, Tensor]:
    """Return "scale", and "bias" where there is one, of a ``torch.nn.LayerNorm``."""
    return {"scale": norm.weight} | ({} if norm.bias is None else {"bias": norm.bias})


def split_heads(params: Params, num_heads: int) -> dict[str, dict[str, Tensor]]:
    """Give the parameters of attention an axis of heads: in front of "out", behind the others."""
    sizes = (num_heads, -1)
    split = {
        name: {leaf: values.unflatten(-1, sizes) for leaf, values in params[name].items()}
        for name in ("query", "key", "value")
    }
    out = params["out"]
    return {**split, "out": {**out, "kernel": out["kernel"].unflatten(0, sizes)}}


def stacked(layers: Sequence[Params]) -> dict[str, Any]:
    """Return dicts of the same names as one, each tensor with a leading axis of them all."""
    return {
        name: torch.stack([layer[name] for layer in layers])
        if isinstance(first, Tensor)
        else stacked([layer[name] for layer in layers])
        for name, first in layers[0].items()
    }
