"""Linen modules of the layers of an encoder."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from flax import linen as nn
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from jax_input.attention import AttentionFn, dot_product_attention, multi_head_attention
from jax_input.config import EncoderConfig, require_config
from jax_input.layers import encoder_layer
from jax_input.linen.input import dropout_key
from jax_input.masks import Mask
from jax_input.shells import attention_params, layer_params


class MultiHeadAttention(nn.Module, kw_only=True):
    """``multi_head_attention`` with its parameters "query", "key", "value" and "out".

    Attributes:
      config: of the encoder; its sizes, ``use_bias``, ``dropout_rate``, ``matmul_precision`` and
        ``param_dtype`` are read. The dtype of ``x`` is computed in.
      deterministic: True drops nothing; may be given to the call instead.
      attention_fn: as in ``multi_head_attention``.
    """

    config: EncoderConfig
    deterministic: bool | None = None
    attention_fn: AttentionFn = dot_product_attention

    @nn.compact
    def __call__(
        self,
        x: Float[ArrayLike, "batch seq_len d_model"],
        mask: Mask | None = None,
        deterministic: bool | None = None,
        return_weights: bool = False,
    ) -> Any:
        """Attend; returns and raises as ``multi_head_attention``, and as ``Encoder``."""
        config = require_config(self.config)
        return multi_head_attention(
            x,
            own_params(self, partial(attention_params, config=config)),
            mask=mask,
            dropout_rate=config.dropout_rate,
            dropout_key=dropout_key(self, config.dropout_rate, deterministic),
            matmul_precision=config.matmul_precision,
            attention_fn=self.attention_fn,
            return_weights=return_weights,
        )


class EncoderLayer(nn.Module, kw_only=True):
    """``encoder_layer`` with its parameters, each of its four parts by name.

    Attributes:
      config: of the encoder. The dtype of ``x`` is computed in.
      deterministic: True drops nothing; may be given to the call instead.
      attention_fn: as in ``multi_head_attention``.
    """

    config: EncoderConfig
    deterministic: bool | None = None
    attention_fn: AttentionFn = dot_product_attention

    @nn.compact
    def __call__(
        self,
        x: Float[ArrayLike, "batch seq_len d_model"],
        mask: Mask | None = None,
        deterministic: bool | None = None,
        return_taps: bool = False,
        return_weights: bool = False,
    ) -> Any:
        """Go through the layer; returns and raises as ``encoder_layer``, and as ``Encoder``."""
        config = require_config(self.config)
        return encoder_layer(
            x,
            own_params(self, partial(layer_params, config=config)),
            config,
            mask=mask,
            dropout_key=dropout_key(self, config.dropout_rate, deterministic),
            attention_fn=self.attention_fn,
            return_taps=return_taps,
            return_weights=return_weights,
        )


def own_params(module: nn.Module, draw: Callable[[Array], dict[str, Any]]) -> dict[str, Any]:
    """Return the parameters by name, each of which is a tree of arrays."""
    names = jax.eval_shape(draw, jax.random.key(0))
    return {name: module.param(name, lambda key, name=name: draw(key)[name]) for name in names}
