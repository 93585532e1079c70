"""NNX modules of the input part."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from jax.nn.initializers import Initializer
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Float, Integer

from jax_input.embedding import OutOfRange, embed_tokens, require_parameter, zero_padding_row
from jax_input.inputs import dropout, require_rate, transformer_input
from jax_input.origin import require_position_table
from jax_input.positions import Positions, add_positions
from jax_input.requirements import require_flag
from jax_input.sinusoidal import PAPER, Sinusoid, sinusoidal_table

Randomness = nnx.Rngs | nnx.RngStream | Array
NORMAL = nnx.initializers.normal(1.0)
# Constructors call themselves on these, abstractly, so that wrong arguments raise there.
NO_TOKENS = np.zeros(0, np.int32)


class Constant(nnx.Variable):
    """State that is saved and moved with its module; its gradient is zero."""


class Embed(nnx.Module):
    """``embed_tokens`` with its parameter ``embedding``.

    Args:
      vocab_size: rows of the embedding.
      d_model: columns of the embedding.
      scale: None, a number, or "sqrt" for sqrt(d_model).
      padding_idx: the row that starts at zero and gets no gradient.
      out_of_range: what an id without a row does, as in ``embed_tokens``.
      zero_padding: read zeros at ``padding_idx``, whatever is stored.
      dtype: of the result; by default ``param_dtype``.
      param_dtype: of the embedding.
      embedding_init: called as ``(key, shape, dtype)``; the padding row is set to zero after it.
      rngs: its stream "params" draws the embedding.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        d_model: int,
        scale: float | Literal["sqrt"] | None = "sqrt",
        padding_idx: int | None = None,
        out_of_range: OutOfRange = "error",
        zero_padding: bool = False,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        embedding_init: Initializer = NORMAL,
        rngs: nnx.Rngs,
    ) -> None:
        """Draw the embedding; raises as ``embed_tokens``."""
        self.scale = scale
        self.padding_idx = padding_idx
        self.out_of_range = out_of_range
        self.zero_padding = zero_padding
        self.dtype = dtype
        shape = vocab_size, d_model
        self.embedding = draw_embedding(rngs, shape, param_dtype, padding_idx, embedding_init)
        jax.eval_shape(lambda: self(NO_TOKENS))

    def __call__(self, token_ids: Integer[ArrayLike, "*batch"]) -> Float[Array, "*batch d_model"]:
        """Look up and scale the tokens; raises as ``embed_tokens``."""
        return embed_tokens(
            token_ids,
            self.embedding[...],
            scale=self.scale,
            padding_idx=self.padding_idx,
            dtype=self.dtype,
            out_of_range=self.out_of_range,
            zero_padding=self.zero_padding,
        )


class PositionalEncoding(nnx.Module):
    """``add_positions`` and ``dropout``, with the table as a ``Constant``.

    Args:
      d_model: columns of the table.
      max_len: rows of the table.
      dropout_rate: the chance of a zero.
      deterministic: True drops nothing; set by ``train()`` and ``eval()``, and by the call.
      dtype: of the table; the sum has the dtype of ``x``.
      sinusoid: the convention.
      rngs: its stream "dropout" draws the masks; None where none are drawn.
    """

    def __init__(
        self,
        *,
        d_model: int,
        max_len: int = 5000,
        dropout_rate: float = 0.1,
        deterministic: bool = False,
        dtype: DTypeLike = jnp.float32,
        sinusoid: Sinusoid = PAPER,
        rngs: nnx.Rngs | None = None,
    ) -> None:
        """Build the table; raises as ``sinusoidal_table`` and ``dropout``."""
        self.shape = (max_len, d_model)
        self.dropout_rate = dropout_rate
        self.deterministic = deterministic
        self.sinusoid = sinusoid
        table = sinusoidal_table(max_len, d_model, sinusoid=sinusoid, dtype=dtype)
        self.position_table, self.dtype = Constant(table), table.dtype
        self.rngs = nnx.data(None if rngs is None else rngs.dropout.fork())
        require_rate("dropout_rate", dropout_rate)

    def __call__(
        self,
        x: Float[Array, "*batch seq_len d_model"],
        positions: Positions | None = None,
        *,
        deterministic: bool | None = None,
        rngs: Randomness | None = None,
    ) -> Float[Array, "*batch seq_len d_model"]:
        """Add the rows and drop; raises as ``TransformerInput``."""
        table = self.position_table[...]
        table = require_position_table(table, self.shape, self.dtype, self.sinusoid)
        x = add_positions(x, table, positions=positions)
        key = dropout_key(self, self.dropout_rate, deterministic, rngs)
        return dropout(x, self.dropout_rate, key=key)


class TransformerInput(nnx.Module):
    """``transformer_input`` with its parameter ``embedding`` and its constant ``position_table``.

    Args:
      vocab_size: rows of the embedding.
      d_model: columns of both tables.
      max_len: rows of the position table.
      scale: None, a number, or "sqrt" for sqrt(d_model).
      padding_idx: the row of the embedding that starts at zero and gets no gradient.
      dropout_rate: the chance of a zero.
      deterministic: True drops nothing; set by ``train()`` and ``eval()``, and by the call.
      dtype: of the position table and of the result.
      param_dtype: of the embedding.
      sinusoid: the convention.
      embedding_init: called as ``(key, shape, dtype)``; the padding row is set to zero after it.
      rngs: its stream "params" draws the embedding, its stream "dropout" the masks.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        d_model: int,
        max_len: int = 5000,
        scale: float | Literal["sqrt"] | None = "sqrt",
        padding_idx: int | None = None,
        dropout_rate: float = 0.1,
        deterministic: bool = False,
        dtype: DTypeLike = jnp.float32,
        param_dtype: DTypeLike = jnp.float32,
        sinusoid: Sinusoid = PAPER,
        embedding_init: Initializer = NORMAL,
        rngs: nnx.Rngs,
    ) -> None:
        """Draw and build both tables; raises as ``sinusoidal_table`` and ``transformer_input``."""
        self.shape = (max_len, d_model)
        self.scale = scale
        self.padding_idx = padding_idx
        self.dropout_rate = dropout_rate
        self.deterministic = deterministic
        self.sinusoid = sinusoid
        shape = vocab_size, d_model
        self.embedding = draw_embedding(rngs, shape, param_dtype, padding_idx, embedding_init)
        table = sinusoidal_table(max_len, d_model, sinusoid=sinusoid, dtype=dtype)
        self.position_table, self.dtype = Constant(table), table.dtype
        self.rngs = nnx.data(rngs.dropout.fork() if dropout_rate else None)
        jax.eval_shape(lambda: self(NO_TOKENS, deterministic=True))

    def __call__(
        self,
        token_ids: Integer[ArrayLike, "*batch seq_len"],
        positions: Positions | None = None,
        *,
        deterministic: bool | None = None,
        rngs: Randomness | None = None,
    ) -> Float[Array, "*batch seq_len d_model"]:
        """Embed, add the rows, drop.

        Args:
          token_ids: as in ``embed_tokens``.
          positions: the row each token takes; by default 0, 1, ...
          deterministic: True drops nothing; by default what the module is set to.
          rngs: what draws the mask; by default the module's own stream.

        Returns:
          ``token_ids.shape + (d_model,)`` in ``dtype``; NaN where ``position_table`` is traced and
          is not the table of the module (four rows are looked at).

        Raises:
          ValueError, TypeError: as ``transformer_input``; if ``position_table`` is known and is not
            the table of the module; if entries are to be dropped without ``rngs``.
        """
        table = self.position_table[...]
        return transformer_input(
            token_ids,
            self.embedding[...],
            require_position_table(table, self.shape, self.dtype, self.sinusoid),
            positions=positions,
            scale=self.scale,
            padding_idx=self.padding_idx,
            dropout_rate=self.dropout_rate,
            dropout_key=dropout_key(self, self.dropout_rate, deterministic, rngs),
        )


def draw_embedding(
    rngs: nnx.Rngs, shape: tuple[int, int], dtype: DTypeLike, padding_idx: int | None, init: Any
) -> nnx.Param:
    """Draw the parameter, its padding row zero."""
    shape = require_parameter(*shape, dtype, padding_idx, init)
    drawn = init(require_rngs(rngs).params(), shape, dtype)
    parameter = nnx.Param(drawn)  # may bring metadata, so kept whole
    parameter[...] = zero_padding_row(parameter[...], shape, padding_idx)
    return parameter


def require_rngs(rngs: Any) -> nnx.Rngs:
    """Return streams of keys, or say what came instead."""
    if not isinstance(rngs, nnx.Rngs):
        raise TypeError(f"`rngs` must be nnx.Rngs, got {type(rngs).__name__}. Pass nnx.Rngs(0).")
    return rngs


def dropout_key(
    module: Any, dropout_rate: float, deterministic: bool | None, rngs: Any
) -> Array | None:
    """Return a key where entries are to be dropped, by the module or its call."""
    is_off = module.deterministic if deterministic is None else deterministic
    if require_flag("deterministic", is_off) or dropout_rate == 0:
        return None
    if (source := module.rngs if rngs is None else rngs) is None:
        raise ValueError(
            f"`rngs` is None, but `dropout_rate` is {dropout_rate} and `deterministic` is "
            "False. Pass rngs to the constructor or to the call, or call eval()."
        )
    source = source.dropout if isinstance(source, nnx.Rngs) else source
    return source() if isinstance(source, nnx.RngStream) else source
