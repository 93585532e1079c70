"""The Transformer's input part as pure JAX functions.

``jax_input.linen`` and ``jax_input.nnx`` hold Flax modules over them, ``jax_input.checkpoints``
tells a stored position table apart.
"""

from jax_input.embedding import embed_tokens
from jax_input.inputs import dropout, transformer_input
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

__all__ = [
    "DIFFUSERS",
    "FAIRSEQ",
    "MARIAN",
    "PAPER",
    "TENSOR2TENSOR",
    "Sinusoid",
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
