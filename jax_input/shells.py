"""What the Flax modules of both kinds ask and hold alike."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from jax_input.config import EncoderConfig
from jax_input.initial import encoder_params
from jax_input.inputs import PRNGKey


def layer_params(key: PRNGKey, config: EncoderConfig) -> dict[str, Any]:
    """Draw the parameters of one layer: those of an encoder that has no other."""
    stacked = encoder_params(key, replace(config, num_layers=1))["layers"]
    params: dict[str, Any] = jax.tree.map(lambda leaf: leaf[0], stacked)
    return params


def attention_params(key: PRNGKey, config: EncoderConfig) -> dict[str, Any]:
    """Draw the parameters of the attention of one layer."""
    params: dict[str, Any] = layer_params(key, config)["attention"]
    return params


def input_dtype(config: EncoderConfig) -> DTypeLike:
    """Return the dtype that tokens become vectors in: token ids have none to follow."""
    return config.param_dtype if config.dtype is None else config.dtype


def require_vectors_alone(inputs: Any = None, **needs_tokens: Any) -> Any:
    """Return ``inputs``, or refuse what a module without a vocabulary has no use for."""
    for name, given in needs_tokens.items():
        if given is not None:
            raise ValueError(
                f"`{name}` is given, but the module has no `vocab_size`, so it takes vectors. "
                f"Give it one, or leave `{name}` out."
            )
    dtype = getattr(inputs, "dtype", None)
    if dtype is not None and not jnp.issubdtype(dtype, jnp.inexact):
        raise TypeError(
            f"`inputs` holds {dtype}, but the module has no `vocab_size`, so it takes vectors. "
            "Give it one, or embed the tokens first."
        )
    return inputs
