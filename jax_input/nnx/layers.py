"""NNX modules of the layers of an encoder."""

from collections.abc import Mapping
from typing import Any

import jax
from flax import nnx
from jax.typing import ArrayLike
from jaxtyping import Float

from jax_input.attention import AttentionFn, dot_product_attention, multi_head_attention
from jax_input.config import EncoderConfig, require_config
from jax_input.layers import encoder_layer
from jax_input.masks import Mask
from jax_input.nnx.input import Randomness, dropout_key, require_rngs
from jax_input.shells import attention_params, layer_params


class MultiHeadAttention(nnx.Module):
    """``multi_head_attention`` with its parameters ``query``, ``key``, ``value`` and ``out``.

    Args:
      config: of the encoder; its sizes, ``use_bias``, ``dropout_rate``, ``matmul_precision`` and
        ``param_dtype`` are read. The dtype of ``x`` is computed in.
      deterministic: True drops nothing; set by ``train()`` and ``eval()``, and by the call.
      attention_fn: as in ``multi_head_attention``.
      rngs: its stream "params" draws the parameters, its stream "dropout" what is dropped.
    """

    def __init__(
        self,
        *,
        config: EncoderConfig,
        deterministic: bool = False,
        attention_fn: AttentionFn = dot_product_attention,
        rngs: nnx.Rngs,
    ) -> None:
        """Draw the parameters; raises TypeError if ``config`` or ``rngs`` is of another kind."""
        self.config = require_config(config)
        self.deterministic = deterministic
        self.attention_fn = attention_fn
        own(self, attention_params(require_rngs(rngs).params(), config))
        self.rngs = nnx.data(rngs.dropout.fork() if config.dropout_rate else None)

    def __call__(
        self,
        x: Float[ArrayLike, "batch seq_len d_model"],
        mask: Mask | None = None,
        *,
        deterministic: bool | None = None,
        rngs: Randomness | None = None,
        return_weights: bool = False,
    ) -> Any:
        """Attend; returns and raises as ``multi_head_attention``, and as ``Encoder``."""
        return multi_head_attention(
            x,
            owned(self),
            mask=mask,
            dropout_rate=self.config.dropout_rate,
            dropout_key=dropout_key(self, self.config.dropout_rate, deterministic, rngs),
            matmul_precision=self.config.matmul_precision,
            attention_fn=self.attention_fn,
            return_weights=return_weights,
        )


class EncoderLayer(nnx.Module):
    """``encoder_layer`` with its parameters, each of its four parts by name.

    Args:
      config: of the encoder. The dtype of ``x`` is computed in.
      deterministic: True drops nothing; set by ``train()`` and ``eval()``, and by the call.
      attention_fn: as in ``multi_head_attention``.
      rngs: its stream "params" draws the parameters, its stream "dropout" what is dropped.
    """

    def __init__(
        self,
        *,
        config: EncoderConfig,
        deterministic: bool = False,
        attention_fn: AttentionFn = dot_product_attention,
        rngs: nnx.Rngs,
    ) -> None:
        """Draw the parameters; raises TypeError if ``config`` or ``rngs`` is of another kind."""
        self.config = require_config(config)
        self.deterministic = deterministic
        self.attention_fn = attention_fn
        own(self, layer_params(require_rngs(rngs).params(), config))
        self.rngs = nnx.data(rngs.dropout.fork() if config.dropout_rate else None)

    def __call__(
        self,
        x: Float[ArrayLike, "batch seq_len d_model"],
        mask: Mask | None = None,
        *,
        deterministic: bool | None = None,
        rngs: Randomness | None = None,
        return_taps: bool = False,
        return_weights: bool = False,
    ) -> Any:
        """Go through the layer; returns and raises as ``encoder_layer``, and as ``Encoder``."""
        return encoder_layer(
            x,
            owned(self),
            self.config,
            mask=mask,
            dropout_key=dropout_key(self, self.config.dropout_rate, deterministic, rngs),
            attention_fn=self.attention_fn,
            return_taps=return_taps,
            return_weights=return_weights,
        )


def own(module: Any, params: Mapping[str, Any]) -> None:
    """Make every array of a tree a parameter of the module, under the names of the tree."""
    for name, tree in params.items():
        setattr(module, name, nnx.data(jax.tree.map(nnx.Param, tree)))
    module.param_names = tuple(params)


def owned(module: Any) -> dict[str, Any]:
    """Return the arrays of these parameters, as the functions take them."""
    trees = {name: getattr(module, name) for name in module.param_names}
    params: dict[str, Any] = jax.tree.map(
        lambda leaf: leaf[...], trees, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable)
    )
    return params
