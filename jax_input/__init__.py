"""The Transformer's input part and encoder as pure JAX functions.

``jax_input.linen`` and ``jax_input.nnx`` hold Flax modules over them, ``jax_input.checkpoints``
tells a stored position table apart.
"""

from jax_input.attention import dot_product_attention, multi_head_attention
from jax_input.config import EncoderConfig
from jax_input.embedding import embed_tokens
from jax_input.ffn import feed_forward
from jax_input.initial import encoder_params
from jax_input.inputs import dropout, transformer_input
from jax_input.layers import encoder_layer
from jax_input.library_attention import jax_nn_attention
from jax_input.mask_conventions import (
    mask_from_attn_mask,
    mask_from_bias,
    mask_from_key_padding,
    mask_from_sdpa,
)
from jax_input.masks import (
    block_diagonal_mask,
    causal_mask,
    local_window_mask,
    mask_to_bias,
    padding_mask,
    segment_mask,
)
from jax_input.normalization import layer_norm
from jax_input.positions import (
    add_positions,
    position_ids,
    positions_from_mask,
    positions_from_segments,
)
from jax_input.sinusoidal import (
    DIFFUSERS,
    FAIRSEQ,
    MARIAN,
    PAPER,
    TENSOR2TENSOR,
    Sinusoid,
    encode_positions,
    sinusoidal_table,
)
from jax_input.stack import encoder

__all__ = [
    "DIFFUSERS",
    "FAIRSEQ",
    "MARIAN",
    "PAPER",
    "TENSOR2TENSOR",
    "EncoderConfig",
    "Sinusoid",
    "add_positions",
    "block_diagonal_mask",
    "causal_mask",
    "dot_product_attention",
    "dropout",
    "embed_tokens",
    "encode_positions",
    "encoder",
    "encoder_layer",
    "encoder_params",
    "feed_forward",
    "jax_nn_attention",
    "layer_norm",
    "local_window_mask",
    "mask_from_attn_mask",
    "mask_from_bias",
    "mask_from_key_padding",
    "mask_from_sdpa",
    "mask_to_bias",
    "multi_head_attention",
    "padding_mask",
    "position_ids",
    "positions_from_mask",
    "positions_from_segments",
    "segment_mask",
    "sinusoidal_table",
    "transformer_input",
]
