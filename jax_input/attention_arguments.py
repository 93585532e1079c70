"""What attention asks of its arguments, and what it leaves out of them, whoever computes it."""

from typing import Any

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool

from jax_input.masks import require_mask
from jax_input.requirements import require_floats


def require_heads(query: Any, key: Any, value: Any) -> tuple[Array, Array, Array]:
    """Return the three arrays of attention, or say what came instead.

    Raises:
      TypeError: if they hold no supported floats, or are of different dtypes.
      ValueError: if they have not four axes, or these don't fit each other.
    """
    query, key, value = (
        require_floats(name, array)
        for name, array in (("query", query), ("key", key), ("value", value))
    )
    shapes = ", ".join(str(list(x.shape)) for x in (query, key, value))
    if not query.ndim == key.ndim == value.ndim == 4:
        raise ValueError(
            "`query`, `key` and `value` must have shape [batch, seq_len, num_heads, head_dim], got "
            f"{shapes}. Split the last axis with x.reshape(*x.shape[:-1], num_heads, -1)."
        )
    if key.shape[1] == 0 or query.shape[3] == 0:
        raise ValueError(
            f"`key` must have at least one position, and head_dim must be at least 1, got {shapes}."
        )
    sizes = [(x.shape[0], x.shape[2]) for x in (query, key, value)]
    if len(set(sizes)) > 1 or key.shape[1] != value.shape[1] or query.shape[3] != key.shape[3]:
        raise ValueError(
            "`query`, `key` and `value` must agree in batch and num_heads, `key` and `value` in "
            f"seq_len, `query` and `key` in head_dim; got {shapes}."
        )
    if len({x.dtype for x in (query, key, value)}) > 1:
        kinds = ", ".join(x.dtype.name for x in (query, key, value))
        raise TypeError(f"`query`, `key` and `value` must have one dtype, got {kinds}. Cast them.")
    return query, key, value


def require_fitting(mask: Any, query: Array, key: Array) -> Bool[Array, "batch heads query key"]:
    """Return a mask whose every axis has the size of the scores or 1."""
    array = require_mask("mask", mask)
    scores = (query.shape[0], query.shape[2], query.shape[1], key.shape[1])
    fits = array.ndim == 4 and all(
        size in (1, whole) for size, whole in zip(array.shape, scores, strict=True)
    )
    if not fits:
        raise ValueError(
            f"`mask` must have shape [batch, num_heads, query, key], here {list(scores)}, with 1 "
            f"where it is the same for all; got {list(array.shape)}. `padding_mask` and its kin "
            "make such."
        )
    return array


def select_seen(query: Array, key: Array, value: Array, mask: Array) -> tuple[Array, Array, Array]:
    """Replace by zeros what takes part in no average: 0 times NaN is NaN, in a gradient too."""
    looks = jnp.any(mask, axis=3)[..., None]
    is_seen = jnp.any(mask, axis=2)[..., None]
    query, key, value = (
        jnp.where(jnp.broadcast_to(keep, x.shape), x, 0)
        for keep, x in ((looks, query), (is_seen, key), (is_seen, value))
    )
    return query, key, value
