"""The Transformer's input part and encoder in plain PyTorch: the reference beside ``jax_input``.

The same concepts under the same names, written for reading. ``torch_ref.published`` holds the
formulas of the articles as they were published.
"""

from torch_ref.attention import dot_product_attention, multi_head_attention
from torch_ref.config import EncoderConfig
from torch_ref.dropout_masks import encoder_dropout_masks
from torch_ref.embedding import Embeddings, embed_tokens
from torch_ref.encoder_modules import Encoder, EncoderLayer, MultiHeadAttention
from torch_ref.ffn import feed_forward
from torch_ref.initial import encoder_params
from torch_ref.inputs import dropout, transformer_input
from torch_ref.layers import encoder_layer
from torch_ref.mask_conventions import (
    mask_from_attn_mask,
    mask_from_bias,
    mask_from_key_padding,
    mask_from_sdpa,
)
from torch_ref.masks import (
    block_diagonal_mask,
    causal_mask,
    local_window_mask,
    mask_to_bias,
    padding_mask,
    segment_mask,
)
from torch_ref.modules import PositionalEncoding, TransformerInput
from torch_ref.normalization import layer_norm
from torch_ref.positions import (
    add_positions,
    position_ids,
    positions_from_mask,
    positions_from_segments,
)
from torch_ref.sinusoidal import (
    DIFFUSERS,
    FAIRSEQ,
    MARIAN,
    PAPER,
    TENSOR2TENSOR,
    Sinusoid,
    encode_positions,
    sinusoidal_table,
)
from torch_ref.stack import encoder
from torch_ref.torch_encoder import from_torch_encoder

__all__ = [
    "DIFFUSERS",
    "FAIRSEQ",
    "MARIAN",
    "PAPER",
    "TENSOR2TENSOR",
    "Embeddings",
    "Encoder",
    "EncoderConfig",
    "EncoderLayer",
    "MultiHeadAttention",
    "PositionalEncoding",
    "Sinusoid",
    "TransformerInput",
    "add_positions",
    "block_diagonal_mask",
    "causal_mask",
    "dot_product_attention",
    "dropout",
    "embed_tokens",
    "encode_positions",
    "encoder",
    "encoder_dropout_masks",
    "encoder_layer",
    "encoder_params",
    "feed_forward",
    "from_torch_encoder",
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
