"""The Transformer's input part in plain PyTorch: the reference beside ``jax_input``.

The same concepts under the same names, written for reading. ``torch_ref.published`` holds the
formulas of the articles as they were published.
"""

from torch_ref.embedding import Embeddings, embed_tokens
from torch_ref.inputs import dropout, transformer_input
from torch_ref.modules import PositionalEncoding, TransformerInput
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

__all__ = [
    "DIFFUSERS",
    "FAIRSEQ",
    "MARIAN",
    "PAPER",
    "TENSOR2TENSOR",
    "Embeddings",
    "PositionalEncoding",
    "Sinusoid",
    "TransformerInput",
    "add_positions",
    "dropout",
    "embed_tokens",
    "encode_positions",
    "position_ids",
    "positions_from_mask",
    "positions_from_segments",
    "sinusoidal_table",
    "transformer_input",
]
