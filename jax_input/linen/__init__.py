"""Flax linen modules: they own the variables and the keys, the pure functions compute.

Of the input part ``params`` holds the embedding alone. The position table is the variable
``position_table`` of the collection "constants". Name that collection as broadcast in ``nn.scan``
and with axis None in ``nn.vmap``, or leave it out: without it the rows of each call are built
again, with the same bits.
"""

from jax_input.linen.encoder import Encoder
from jax_input.linen.input import Embed, PositionalEncoding, TransformerInput
from jax_input.linen.layers import EncoderLayer, MultiHeadAttention

__all__ = [
    "Embed",
    "Encoder",
    "EncoderLayer",
    "MultiHeadAttention",
    "PositionalEncoding",
    "TransformerInput",
]
