"""Dropout, and the input part as a whole: embed, add positions, drop."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Key, UInt32

from jax_input.embedding import embed_tokens
from jax_input.positions import Positions, add_positions
from jax_input.requirements import as_array, require_floats
from jax_input.rounding import product, round_to, widen

PRNGKey = Key[Array, ""] | UInt32[Array, " words"]


def dropout(
    x: Float[ArrayLike, "*shape"],
    rate: int | float,
    *,
    key: PRNGKey | None = None,
    mask: Bool[ArrayLike, "*shape"] | None = None,
) -> Float[Array, "*shape"]:
    """Set a random part of the elements to zero and scale the others up.

    Kept elements are multiplied by 1 / (1 - rate), taken in float32, and rounded once to the dtype
    of ``x`` (in float64 where ``x`` is). Each element is drawn for itself. Without ``key`` and
    ``mask`` the result is ``x``.

    Args:
      x: any shape.
      rate: the chance of a zero, from 0 to 1, known when the program is built; 1 gives zeros.
      key: draws the mask. One key gives one mask: split it between layers and steps, and
        before ``jax.vmap``.
      mask: True = keep, of the shape of ``x``; the way to give two frameworks the same mask.

    Returns:
      The shape and dtype of ``x``. A dropped NaN is zero.

    Raises:
      TypeError: if ``x`` holds no supported floats, ``rate`` is no number known when the program is
        built, ``key`` is not one key, or ``mask`` is not boolean.
      ValueError: if ``rate`` is not in [0, 1], ``mask`` has another shape than ``x``, or ``key``
        and ``mask`` are both given.

    Source: Vaswani et al. 2017, section 5.4. Reference: ``torch_ref.dropout``.
    """
    x = require_floats("x", x)
    rate = require_rate("rate", rate)
    if key is not None and mask is not None:
        raise ValueError("`key` and `mask` are both given. Pass the one that is to decide.")
    if key is not None:
        require_key(key)
    if mask is not None:
        kept = _require_mask(mask, x.shape)
    elif key is None or rate == 0:
        return x
    else:
        kept = draw_kept(key, rate, x.shape)
    if rate == 1:
        return jnp.zeros_like(x)
    wide = widen(x)
    # Selected on both sides of the product, so that neither it nor its transpose meets a sum.
    scaled = product(jnp.where(kept, wide, 0), 1 / (1 - rate))
    return round_to(jnp.where(kept, scaled, 0), x.dtype)


def draw_kept(key: PRNGKey, rate: float, shape: tuple[int, ...]) -> Bool[Array, "..."]:
    """Draw what dropout keeps, each element with the chance 1 - ``rate``."""
    return jax.random.bernoulli(key, np.float32(1 - rate), shape)


def transformer_input(
    token_ids: Integer[ArrayLike, "*batch seq_len"] | list,
    embedding: Float[ArrayLike, "vocab_size d_model"],
    table: Float[ArrayLike, "max_len d_model"],
    *,
    positions: Positions | None = None,
    scale: int | float | Literal["sqrt"] | None = "sqrt",
    padding_idx: int | None = None,
    dropout_rate: int | float = 0.0,
    dropout_key: PRNGKey | None = None,
) -> Float[Array, "*batch seq_len d_model"]:
    """Look up and scale the tokens, add the rows of their positions, drop.

    Args:
      token_ids: integers in [0, vocab_size); see ``embed_tokens`` for others.
      embedding: one row per token.
      table: one row per position; the result has its dtype.
      positions: the row each token takes; by default 0, 1, ...
      scale: of the embedding, as ``embed_tokens`` takes it.
      padding_idx: the id whose row gets no gradient.
      dropout_rate: the chance of a zero, where there is a ``dropout_key``.
      dropout_key: draws the mask; None drops nothing.

    Returns:
      ``token_ids.shape + (d_model,)``.

    Raises:
      TypeError: as ``embed_tokens``, ``add_positions`` and ``dropout``.
      ValueError: as these.

    Source: Vaswani et al. 2017, section 3.4 and 3.5. Reference: ``torch_ref.transformer_input``.
    """
    dtype = require_floats("table", table).dtype
    x = embed_tokens(token_ids, embedding, scale=scale, padding_idx=padding_idx, dtype=dtype)
    x = add_positions(x, table, positions=positions)
    return dropout(x, require_rate("dropout_rate", dropout_rate), key=dropout_key)


def require_rate(name: str, rate: Any) -> float:
    """Return a chance of a zero, or say what it may be."""
    if isinstance(rate, bool) or not isinstance(rate, (int, float, np.integer, np.floating)):
        kind = "JAX array" if isinstance(rate, jax.Array) else f"{type(rate).__name__} {rate!r}"
        raise TypeError(
            f"`{name}` must be a Python number from 0 to 1, got a {kind}. It is part of the "
            f"program: pass float({name})."
        )
    if not 0 <= rate <= 1:
        raise ValueError(f"`{name}` must be from 0 to 1, the chance of a zero, got {rate!r}.")
    return float(rate)


def require_key(key: Any) -> PRNGKey:
    """Return one key, or say what came instead."""
    dtype, rank = getattr(key, "dtype", None), np.ndim(key)
    is_typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    if not (is_typed and rank == 0) and not (dtype == np.uint32 and rank == 1):
        kind = type(key).__name__ if dtype is None else f"{dtype}{list(key.shape)}"
        raise TypeError(
            f"`key` (`dropout_key`) must be one key, such as "
            f"jax.random.key(0), got {kind}. Split keys are given one at a time."
        )
    return key


def _require_mask(mask: Any, shape: tuple[int, ...]) -> Bool[Array, "*shape"]:
    kept = as_array("mask", mask)
    if kept.dtype != np.bool_:
        raise TypeError(
            f"`mask` must be boolean with True = keep, got {kept.dtype}. Write mask == 1."
        )
    if kept.shape != shape:
        raise ValueError(
            f"`mask` must have the shape of `x`, {list(shape)}, got {list(kept.shape)}. "
            "Use jnp.broadcast_to to share it."
        )
    return kept
