"""Flax NNX modules: they own the variables and the keys, the pure functions compute.

Give optimizers ``wrt=nnx.Param``. A wider filter with weight decay moves the position table, and
then the module and ``jax_input.checkpoints.restore`` refuse it.
"""

from jax_input.nnx.encoder import Encoder
from jax_input.nnx.input import Constant, Embed, PositionalEncoding, TransformerInput
from jax_input.nnx.layers import EncoderLayer, MultiHeadAttention

__all__ = [
    "Constant",
    "Embed",
    "Encoder",
    "EncoderLayer",
    "MultiHeadAttention",
    "PositionalEncoding",
    "TransformerInput",
]
