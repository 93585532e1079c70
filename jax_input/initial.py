"""The parameters that an encoder starts from, drawn as PyTorch draws them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jax_input.config import EncoderConfig, require_config
from jax_input.inputs import PRNGKey, require_key

Draw = Callable[[Array, tuple[int, ...]], Array]


def encoder_params(key: PRNGKey, config: EncoderConfig) -> dict[str, Any]:
    """Draw the parameters of an encoder as PyTorch draws those of its own.

    Kernels of query, key and value are uniform within sqrt(6 / (4 * d_model)), as one packed matrix
    that Glorot's rule is applied to; the other kernels, and the biases of the feed-forward network,
    within 1 / sqrt(rows of the kernel). Biases of attention are zero, scales one. Each layer is
    drawn by itself (PyTorch's layers start as copies of one).

    Args:
      key: draws them.
      config: sizes, ``use_bias``, ``final_norm`` and ``param_dtype``.

    Returns:
      "layers", the parameters of ``encoder_layer``, each array with a leading axis of
      ``num_layers``; and "final_norm" where the config has one.

    Raises:
      TypeError: if ``key`` is no key, or ``config`` no config.

    Source: ``torch.nn.TransformerEncoderLayer``. Reference: ``torch_ref.encoder_params``.
    """
    layers = _layer(require_config(config))
    final = {"final_norm": _norm(config.d_model)} if config.final_norm else {}
    wanted = {"layers": layers, **final}
    leaves, tree = jax.tree.flatten_with_path(wanted, is_leaf=lambda leaf: isinstance(leaf, tuple))
    keys = jax.random.split(require_key(key), len(leaves))
    drawn = []
    for (path, (shape, draw)), each in zip(leaves, keys, strict=True):
        stack = (config.num_layers,) if path[0].key == "layers" else ()
        drawn.append(draw(each, (*stack, *shape)).astype(config.param_dtype))
    params: dict[str, Any] = jax.tree.unflatten(tree, drawn)
    return params if config.use_bias else _without_bias(params)


def _layer(config: EncoderConfig) -> dict[str, Any]:
    """Return the shape of each array of a layer, and what draws it."""
    d_model, d_ff, num_heads = config.d_model, config.d_ff, config.num_heads
    split = (num_heads, d_model // num_heads)
    glorot = _uniform((6 / (4 * d_model)) ** 0.5)
    wide, narrow = _uniform(d_ff**-0.5), _uniform(d_model**-0.5)
    projection = {"kernel": ((d_model, *split), glorot), "bias": (split, _zeros)}
    return {
        "attention": {
            **dict.fromkeys(("query", "key", "value"), projection),
            "out": {"kernel": ((*split, d_model), narrow), "bias": ((d_model,), _zeros)},
        },
        "attention_norm": _norm(d_model),
        "feed_forward": {
            "in": {"kernel": ((d_model, d_ff), narrow), "bias": ((d_ff,), narrow)},
            "out": {"kernel": ((d_ff, d_model), wide), "bias": ((d_model,), wide)},
        },
        "feed_forward_norm": _norm(d_model),
    }


def _norm(d_model: int) -> dict[str, tuple[tuple[int], Draw]]:
    return {"scale": ((d_model,), _ones), "bias": ((d_model,), _zeros)}


def _uniform(bound: float) -> Draw:
    return lambda key, shape: jax.random.uniform(key, shape, np.float32, -bound, bound)


def _zeros(_: Array, shape: tuple[int, ...]) -> Array:
    return jnp.zeros(shape, np.float32)


def _ones(_: Array, shape: tuple[int, ...]) -> Array:
    return jnp.ones(shape, np.float32)


def _without_bias(params: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without_bias(value) if isinstance(value, dict) else value
        for name, value in params.items()
        if name != "bias"
    }
