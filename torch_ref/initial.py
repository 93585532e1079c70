"""The parameters that an encoder starts from, drawn as PyTorch draws them."""

import math
from typing import Any

import torch
from torch import Tensor

from torch_ref.config import EncoderConfig, require_config
from torch_ref.rounding import narrow, widen

Shapes = dict[str, tuple[tuple[int, ...], float]]
"""By name of a leaf its shape, and the bound it is drawn within."""


def encoder_params(
    config: EncoderConfig, generator: torch.Generator | None = None
) -> dict[str, Any]:
    """Draw the parameters of an encoder as PyTorch draws those of its own.

    Kernels of query, key and value are uniform within sqrt(6 / (4 * d_model)), as one packed matrix
    that Glorot's rule is applied to; the other kernels, and the biases of the feed-forward network,
    within 1 / sqrt(rows of the kernel). Biases of attention are zero, scales one. Each layer is
    drawn by itself (PyTorch's layers start as copies of one).

    Args:
      config: sizes, ``use_bias``, ``final_norm`` and ``param_dtype``.
      generator: draws them, on its device; by default PyTorch's global generator.

    Returns:
      "layers", the parameters of ``encoder_layer``, each tensor with a leading axis of
      ``num_layers``; and "final_norm" where the config has one. Drawn in float32 (float64 for
      float64), and rounded.

    Source: ``torch.nn.TransformerEncoderLayer``. Port: ``jax_input.encoder_params``.
    """
    require_config(config)
    d_model, d_ff, heads = config.d_model, config.d_ff, (config.num_heads, config.head_dim)
    by_width, by_inner = 1 / math.sqrt(d_model), 1 / math.sqrt(d_ff)
    projection: Shapes = {
        "kernel": ((d_model, *heads), projection_bound(d_model)),
        "bias": (heads, 0.0),
    }
    attention: dict[str, Shapes] = {
        "query": projection,
        "key": projection,
        "value": projection,
        "out": {"kernel": ((*heads, d_model), by_width), "bias": ((d_model,), 0.0)},
    }
    hidden: dict[str, Shapes] = {
        "in": {"kernel": ((d_model, d_ff), by_width), "bias": ((d_ff,), by_width)},
        "out": {"kernel": ((d_ff, d_model), by_inner), "bias": ((d_model,), by_inner)},
    }

    def draw(shapes: Shapes) -> dict[str, Tensor]:
        return {
            name: _uniform((config.num_layers, *shape), bound, config.param_dtype, generator)
            for name, (shape, bound) in shapes.items()
            if name != "bias" or config.use_bias
        }

    layers: dict[str, Any] = {
        "attention": {name: draw(shapes) for name, shapes in attention.items()},
        "attention_norm": _norm((config.num_layers, d_model), config, generator),
        "feed_forward": {name: draw(shapes) for name, shapes in hidden.items()},
        "feed_forward_norm": _norm((config.num_layers, d_model), config, generator),
    }
    final = {"final_norm": _norm((d_model,), config, generator)} if config.final_norm else {}
    return {"layers": layers, **final}


def projection_bound(d_model: int) -> float:
    """Return Glorot's bound for the kernels of query, key and value as one matrix."""
    return math.sqrt(6 / (d_model + 3 * d_model))


def _uniform(
    shape: tuple[int, ...], bound: float, dtype: torch.dtype, generator: torch.Generator | None
) -> Tensor:
    """Draw in a wide dtype, and round: in a narrow one few numbers could be drawn at all."""
    wide = widen(torch.empty((), dtype=dtype)).dtype
    drawn = torch.empty(shape, dtype=wide, device=_device(generator))
    return narrow(drawn.uniform_(-bound, bound, generator=generator), dtype)


def _device(generator: torch.Generator | None) -> torch.device:
    return torch.get_default_device() if generator is None else generator.device


def _norm(
    shape: tuple[int, ...], config: EncoderConfig, generator: torch.Generator | None
) -> dict[str, Tensor]:
    scale = torch.ones(shape, dtype=config.param_dtype, device=_device(generator))
    return {"scale": scale, **({"bias": torch.zeros_like(scale)} if config.use_bias else {})}
