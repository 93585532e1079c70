"""The NNX module of the whole encoder."""

from typing import Any, Literal

import jax
from flax import nnx
from jax import Array
from jax.nn.initializers import Initializer
from jax.typing import ArrayLike
from jaxtyping import Float, Integer

from jax_input.attention import AttentionFn, dot_product_attention
from jax_input.config import EncoderConfig, require_config
from jax_input.initial import encoder_params
from jax_input.inputs import PRNGKey, transformer_input
from jax_input.masks import Mask
from jax_input.nnx.input import (
    NO_TOKENS,
    NORMAL,
    Constant,
    Randomness,
    draw_embedding,
    dropout_key,
    require_rngs,
)
from jax_input.nnx.layers import own, owned
from jax_input.origin import require_position_table
from jax_input.positions import Positions
from jax_input.shells import input_dtype, require_vectors_alone
from jax_input.sinusoidal import PAPER, Sinusoid, sinusoidal_table
from jax_input.stack import encoder


class Encoder(nnx.Module):
    """``transformer_input`` and ``encoder``, or the second alone where there is no vocabulary.

    Its parameters are ``embedding``, ``layers`` and, where the config has one, ``final_norm``; the
    constant ``position_table`` is that of ``TransformerInput``.

    Args:
      config: of the encoder; ``d_model``, ``dropout_rate``, ``dtype`` (or else ``param_dtype``) and
        ``param_dtype`` are those of the input part too.
      vocab_size: rows of the embedding; None for an encoder of vectors, as PyTorch's is.
      max_len: rows of the position table.
      scale: None, a number, or "sqrt" for sqrt(d_model).
      padding_idx: the row of the embedding that starts at zero and gets no gradient. It hides
        nothing from attention, as in PyTorch: pass ``mask=padding_mask(token_ids != padding_idx)``.
      sinusoid: the convention.
      embedding_init: called as ``(key, shape, dtype)``; the padding row is set to zero after it.
      deterministic: True drops nothing; set by ``train()`` and ``eval()``, and by the call.
      attention_fn: as in ``multi_head_attention``.
      rngs: its stream "params" draws the parameters, its stream "dropout" what is dropped.
    """

    def __init__(
        self,
        *,
        config: EncoderConfig,
        vocab_size: int | None = None,
        max_len: int = 5000,
        scale: float | Literal["sqrt"] | None = "sqrt",
        padding_idx: int | None = None,
        sinusoid: Sinusoid = PAPER,
        embedding_init: Initializer = NORMAL,
        deterministic: bool = False,
        attention_fn: AttentionFn = dot_product_attention,
        rngs: nnx.Rngs,
    ) -> None:
        """Draw the parameters; raises as ``TransformerInput``, or if one lacks ``vocab_size``."""
        self.config = require_config(config)
        self.has_tokens = vocab_size is not None
        self.shape = (max_len, config.d_model)
        self.scale = scale
        self.padding_idx = padding_idx
        self.sinusoid = sinusoid
        self.deterministic = deterministic
        self.attention_fn = attention_fn
        if vocab_size is None:
            require_vectors_alone(padding_idx=padding_idx)
        else:
            shape, dtype = (vocab_size, config.d_model), config.param_dtype
            self.embedding = draw_embedding(rngs, shape, dtype, padding_idx, embedding_init)
            table = sinusoidal_table(*self.shape, sinusoid=sinusoid, dtype=input_dtype(config))
            self.position_table, self.dtype = Constant(table), table.dtype
            jax.eval_shape(lambda: self._vectors(NO_TOKENS, None, None))
        own(self, encoder_params(require_rngs(rngs).params(), config))
        self.rngs = nnx.data(rngs.dropout.fork() if config.dropout_rate else None)

    def __call__(
        self,
        inputs: Integer[ArrayLike, "batch seq_len"] | Float[ArrayLike, "batch seq_len d_model"],
        mask: Mask | None = None,
        *,
        deterministic: bool | None = None,
        positions: Positions | None = None,
        rngs: Randomness | None = None,
        return_taps: bool = False,
        return_weights: bool = False,
    ) -> Any:
        """Encode token ids, or vectors where there is no vocabulary.

        Args:
          inputs: token ids as in ``embed_tokens``, or vectors.
          mask: True = may attend; by default every token sees every other, padding too.
          deterministic: True drops nothing; by default what the module is set to.
          positions: the row each token takes; by default 0, 1, ...
          rngs: what draws the masks of dropout; by default the module's own stream. One key is
            drawn, and split: for the input part and for the layers.
          return_taps: as in ``encoder``.
          return_weights: as in ``encoder``.

        Returns:
          As ``encoder``: ``[batch, seq_len, d_model]``, and the taps where they are asked for.

        Raises:
          ValueError, TypeError: as ``TransformerInput`` and ``encoder``; if ``positions`` are
            given, or integers, and there is no vocabulary; if entries are to be dropped without
            ``rngs``.
        """
        key = dropout_key(self, self.config.dropout_rate, deterministic, rngs)
        for_input, for_layers = (None, None) if key is None else jax.random.split(key)
        return encoder(
            self._vectors(inputs, positions, for_input),
            owned(self),
            self.config,
            mask=mask,
            dropout_key=for_layers,
            attention_fn=self.attention_fn,
            return_taps=return_taps,
            return_weights=return_weights,
        )

    def _vectors(self, inputs: Any, positions: Positions | None, key: PRNGKey | None) -> Array:
        """Return what the layers begin with."""
        if not self.has_tokens:
            vectors: Array = require_vectors_alone(inputs, positions=positions)
            return vectors
        table = self.position_table[...]
        return transformer_input(
            inputs,
            self.embedding[...],
            require_position_table(table, self.shape, self.dtype, self.sinusoid),
            positions=positions,
            scale=self.scale,
            padding_idx=self.padding_idx,
            dropout_rate=self.config.dropout_rate,
            dropout_key=key,
        )
