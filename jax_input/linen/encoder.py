"""The linen module of the whole encoder."""

from functools import partial
from typing import Any, Literal

from flax import linen as nn
from jax import Array
from jax.nn.initializers import Initializer
from jax.typing import ArrayLike
from jaxtyping import Float, Integer

from jax_input.attention import AttentionFn, dot_product_attention
from jax_input.config import EncoderConfig, require_config
from jax_input.initial import encoder_params
from jax_input.linen.input import TransformerInput, dropout_key
from jax_input.linen.layers import own_params
from jax_input.masks import Mask
from jax_input.positions import Positions
from jax_input.shells import input_dtype, require_vectors_alone
from jax_input.sinusoidal import PAPER, Sinusoid
from jax_input.stack import encoder


class Encoder(nn.Module, kw_only=True):
    """``transformer_input`` and ``encoder``, or the second alone where there is no vocabulary.

    ``params`` holds "embedding", "layers" and, where the config has one, "final_norm"; the position
    table is in "constants", as in ``TransformerInput``.

    Attributes:
      config: of the encoder; ``d_model``, ``dropout_rate``, ``dtype`` (or else ``param_dtype``) and
        ``param_dtype`` are those of the input part too.
      vocab_size: rows of the embedding; None for an encoder of vectors, as PyTorch's is.
      max_len: rows of the position table.
      scale: None, a number, or "sqrt" for sqrt(d_model).
      padding_idx: the row of the embedding that starts at zero and gets no gradient. It hides
        nothing from attention, as in PyTorch: pass ``mask=padding_mask(token_ids != padding_idx)``.
      sinusoid: the convention.
      embedding_init: called as ``(key, shape, dtype)``; the padding row is set to zero after it.
      deterministic: True drops nothing; may be given to the call instead.
      attention_fn: as in ``multi_head_attention``.
    """

    config: EncoderConfig
    vocab_size: int | None = None
    max_len: int = 5000
    scale: float | Literal["sqrt"] | None = "sqrt"
    padding_idx: int | None = None
    sinusoid: Sinusoid = PAPER
    embedding_init: Initializer = nn.initializers.normal(1.0)
    deterministic: bool | None = None
    attention_fn: AttentionFn = dot_product_attention

    @nn.compact
    def __call__(
        self,
        inputs: Integer[ArrayLike, "batch seq_len"] | Float[ArrayLike, "batch seq_len d_model"],
        mask: Mask | None = None,
        deterministic: bool | None = None,
        positions: Positions | None = None,
        return_taps: bool = False,
        return_weights: bool = False,
    ) -> Any:
        """Encode token ids, or vectors where there is no vocabulary.

        Args:
          inputs: token ids as in ``embed_tokens``, or vectors.
          mask: True = may attend; by default every token sees every other, padding too.
          deterministic: True drops nothing. Under ``nn.remat`` pass it, and the flags below, by
            position, and make them static there.
          positions: the row each token takes; by default 0, 1, ...
          return_taps: as in ``encoder``.
          return_weights: as in ``encoder``.

        Returns:
          As ``encoder``: ``[batch, seq_len, d_model]``, and the taps where they are asked for.

        Raises:
          ValueError, TypeError: as ``TransformerInput`` and ``encoder``; if ``padding_idx`` or
            ``positions`` are given, or integers, and there is no ``vocab_size``; if
            ``deterministic`` is given nowhere, or twice, and ``dropout_rate`` is above 0.
        """
        config = require_config(self.config)
        return encoder(
            _vectors(self, inputs, positions, deterministic),
            own_params(self, partial(encoder_params, config=config)),
            config,
            mask=mask,
            dropout_key=dropout_key(self, config.dropout_rate, deterministic),
            attention_fn=self.attention_fn,
            return_taps=return_taps,
            return_weights=return_weights,
        )


def _vectors(
    module: Encoder, inputs: Any, positions: Positions | None, deterministic: bool | None
) -> Array:
    """Return what the layers begin with."""
    if module.vocab_size is None:
        needs_tokens = {"padding_idx": module.padding_idx, "positions": positions}
        vectors: Array = require_vectors_alone(inputs, **needs_tokens)
        return vectors
    tokens = TransformerInput(
        vocab_size=module.vocab_size,
        d_model=module.config.d_model,
        max_len=module.max_len,
        scale=module.scale,
        padding_idx=module.padding_idx,
        dropout_rate=module.config.dropout_rate,
        deterministic=module.deterministic,
        dtype=input_dtype(module.config),
        param_dtype=module.config.param_dtype,
        sinusoid=module.sinusoid,
        embedding_init=module.embedding_init,
    )
    nn.share_scope(module, tokens)  # so that "embedding" stands beside "layers"
    x: Array = tokens(inputs, positions, deterministic)
    return x
