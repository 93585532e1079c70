"""Linen modules of the input part."""

from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import Array
from jax.nn.initializers import Initializer
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Float, Integer

from jax_input.embedding import OutOfRange, embed_tokens, require_parameter, zero_padding_row
from jax_input.inputs import dropout, require_rate, transformer_input
from jax_input.origin import require_position_table
from jax_input.positions import Positions, add_positions
from jax_input.rebuild import rebuild_rows
from jax_input.requirements import require_dtype, require_flag, require_size
from jax_input.sinusoidal import PAPER, Sinusoid, sinusoidal_table


class Embed(nn.Module, kw_only=True):
    """``embed_tokens`` with its parameter ``embedding``.

    Attributes:
      vocab_size: rows of the embedding.
      d_model: columns of the embedding.
      scale: None, a number, or "sqrt" for sqrt(d_model).
      padding_idx: the row that starts at zero and gets no gradient.
      out_of_range: what an id without a row does, as in ``embed_tokens``.
      zero_padding: read zeros at ``padding_idx``, whatever is stored.
      dtype: of the result; by default ``param_dtype``.
      param_dtype: of the embedding.
      embedding_init: called as ``(key, shape, dtype)``; the padding row is set to zero after it.
    """

    vocab_size: int
    d_model: int
    scale: float | Literal["sqrt"] | None = "sqrt"
    padding_idx: int | None = None
    out_of_range: OutOfRange = "error"
    zero_padding: bool = False
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    embedding_init: Initializer = nn.initializers.normal(1.0)

    @nn.compact
    def __call__(self, token_ids: Integer[ArrayLike, "*batch"]) -> Float[Array, "*batch d_model"]:
        """Look up and scale the tokens; raises as ``embed_tokens``."""
        return embed_tokens(
            token_ids,
            _embedding(self),
            scale=self.scale,
            padding_idx=self.padding_idx,
            dtype=self.dtype,
            out_of_range=self.out_of_range,
            zero_padding=self.zero_padding,
        )


class PositionalEncoding(nn.Module, kw_only=True):
    """``add_positions`` and ``dropout``, with the table in the collection "constants".

    Attributes:
      d_model: columns of the table.
      max_len: rows of the table.
      dropout_rate: the chance of a zero.
      deterministic: True drops nothing; may be given to the call instead.
      dtype: of the table; the sum has the dtype of ``x``.
      sinusoid: the convention.
    """

    d_model: int
    max_len: int = 5000
    dropout_rate: float = 0.1
    deterministic: bool | None = None
    dtype: DTypeLike = jnp.float32
    sinusoid: Sinusoid = PAPER

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "*batch seq_len d_model"],
        positions: Positions | None = None,
        deterministic: bool | None = None,
    ) -> Float[Array, "*batch seq_len d_model"]:
        """Add the rows and drop; raises as ``TransformerInput``."""
        table, positions = _position_table(self, np.shape(x)[:-1], positions)
        x = add_positions(x, table, positions=positions)
        rate = require_rate("dropout_rate", self.dropout_rate)
        return dropout(x, rate, key=dropout_key(self, rate, deterministic))


class TransformerInput(nn.Module, kw_only=True):
    """``transformer_input`` with its parameter ``embedding`` and its constant ``position_table``.

    Attributes:
      vocab_size: rows of the embedding.
      d_model: columns of both tables.
      max_len: rows of the position table.
      scale: None, a number, or "sqrt" for sqrt(d_model).
      padding_idx: the row of the embedding that starts at zero and gets no gradient.
      dropout_rate: the chance of a zero.
      deterministic: True drops nothing; may be given to the call instead.
      dtype: of the position table and of the result.
      param_dtype: of the embedding.
      sinusoid: the convention.
      embedding_init: called as ``(key, shape, dtype)``; the padding row is set to zero after it.
    """

    vocab_size: int
    d_model: int
    max_len: int = 5000
    scale: float | Literal["sqrt"] | None = "sqrt"
    padding_idx: int | None = None
    dropout_rate: float = 0.1
    deterministic: bool | None = None
    dtype: DTypeLike = jnp.float32
    param_dtype: DTypeLike = jnp.float32
    sinusoid: Sinusoid = PAPER
    embedding_init: Initializer = nn.initializers.normal(1.0)

    @nn.compact
    def __call__(
        self,
        token_ids: Integer[ArrayLike, "*batch seq_len"],
        positions: Positions | None = None,
        deterministic: bool | None = None,
    ) -> Float[Array, "*batch seq_len d_model"]:
        """Embed, add the rows, drop.

        Args:
          token_ids: as in ``embed_tokens``.
          positions: the row each token takes; by default 0, 1, ...
          deterministic: True drops nothing. Pass it by position under ``nn.remat``, and make it
            static there.

        Returns:
          ``token_ids.shape + (d_model,)`` in ``dtype``; NaN where ``position_table`` is traced and
          is not the table of the module (four rows are looked at).

        Raises:
          ValueError, TypeError: as ``transformer_input``; if ``position_table`` is known and is not
            the table of the module; if ``deterministic`` is given nowhere, or twice, and
            ``dropout_rate`` is above 0.
        """
        embedding = _embedding(self)
        table, positions = _position_table(self, np.shape(token_ids), positions)
        return transformer_input(
            token_ids,
            embedding,
            table,
            positions=positions,
            scale=self.scale,
            padding_idx=self.padding_idx,
            dropout_rate=self.dropout_rate,
            dropout_key=dropout_key(self, self.dropout_rate, deterministic),
        )


def _embedding(module: Embed | TransformerInput) -> Float[Array, "vocab_size d_model"]:
    """Return the parameter; at first its padding row is zero, whoever made the others."""
    padding_idx, draw, dtype = module.padding_idx, module.embedding_init, module.param_dtype
    shape = require_parameter(module.vocab_size, module.d_model, dtype, padding_idx, draw)

    def init(key: Array) -> Any:
        # An initialiser may box its array, with names for its axes.
        drawn = draw(key, shape, dtype)
        return jax.tree.map(lambda table: zero_padding_row(table, shape, padding_idx), drawn)

    return module.param("embedding", init)


def _position_table(
    module: PositionalEncoding | TransformerInput, tokens: tuple[int, ...], positions: Any
) -> tuple[Float[Array, "rows d_model"], Any]:
    """Return the table and the positions in it: kept, made to be kept, or of this call alone."""
    name, dtype = "position_table", require_dtype(module.dtype)
    shape = require_size("max_len", module.max_len), require_size("d_model", module.d_model)
    if module.has_variable("constants", name):
        table: Array = module.get_variable("constants", name)
        return require_position_table(table, shape, dtype, module.sinusoid), positions
    if not module.is_mutable_collection("constants"):
        return rebuild_rows(tokens, positions, shape, module.sinusoid, dtype)
    build = partial(sinusoidal_table, *shape, sinusoid=module.sinusoid, dtype=dtype)
    return module.variable("constants", name, build).value, positions


def dropout_key(module: Any, dropout_rate: float, deterministic: bool | None) -> Array | None:
    """Return a key where entries are to be dropped, by the module or its call."""
    if dropout_rate == 0:
        return None
    merged = nn.merge_param("deterministic", module.deterministic, deterministic)
    return None if require_flag("deterministic", merged) else module.make_rng("dropout")
