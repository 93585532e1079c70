"""Masks as PyTorch writes them, each by its own name, since True means three things there.

``key_padding_mask`` and ``attn_mask`` of its modules say True = hidden, the ``attn_mask`` of
``scaled_dot_product_attention`` says True = may attend, and floats are added to the scores. Here
True = may attend, always.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from jax_input.masks import require_mask
from jax_input.requirements import is_concrete, require_floats, require_size

# Between them lies what softmax makes neither 0 nor nothing: a learned or relative bias.
_HIDDEN = -1e3


def mask_from_key_padding(
    key_padding_mask: Bool[ArrayLike, "batch key"],
) -> Bool[Array, "batch 1 1 key"]:
    """Convert the ``key_padding_mask`` of PyTorch's attention and encoder: True = hidden there.

    Args:
      key_padding_mask: ``(src_)key_padding_mask``, boolean; of floats, take ``mask_from_bias``.

    Returns:
      ``[batch, 1, 1, key]``, True = may attend.

    Raises:
      TypeError: if it is not boolean.
      ValueError: if it has not two axes.

    Source: ``torch.nn.MultiheadAttention``, ``torch.nn.TransformerEncoder``.
    """
    hidden = require_mask("key_padding_mask", key_padding_mask)
    if hidden.ndim != 2:
        raise ValueError(
            f"`key_padding_mask` must have shape [batch, key], got {list(hidden.shape)}."
        )
    return ~hidden[:, None, None, :]


def mask_from_attn_mask(
    attn_mask: Bool[ArrayLike, "*heads query key"], *, num_heads: int | None = None
) -> Bool[Array, "#batch #num_heads query key"]:
    """Convert the ``attn_mask`` of PyTorch's attention, the ``mask`` of its encoder: True = hidden.

    Args:
      attn_mask: boolean, ``[query, key]``, or ``[batch * num_heads, query, key]``.
      num_heads: how many heads the first of three axes counts within each example.

    Returns:
      ``[1, 1, query, key]`` or ``[batch, num_heads, query, key]``, True = may attend.

    Raises:
      TypeError: if it is not boolean, or ``num_heads`` no integer.
      ValueError: if it has neither two nor three axes, or ``num_heads`` is missing or doesn't
        divide the first of three.

    Source: ``torch.nn.MultiheadAttention``, ``torch.nn.TransformerEncoder``.
    """
    hidden = require_mask("attn_mask", attn_mask)
    if hidden.ndim == 2:
        return ~hidden[None, None]
    if hidden.ndim != 3:
        raise ValueError(
            "`attn_mask` must have shape [query, key] or [batch * num_heads, query, key], got "
            f"{list(hidden.shape)}. For the mask of scaled_dot_product_attention, where True = may "
            "attend, use `mask_from_sdpa`."
        )
    if num_heads is None or hidden.shape[0] % require_size("num_heads", num_heads):
        raise ValueError(
            f"`num_heads` must divide the first axis of `attn_mask`, {hidden.shape[0]}, got "
            f"{num_heads}."
        )
    return ~hidden.reshape(-1, num_heads, *hidden.shape[1:])


def mask_from_sdpa(
    attn_mask: Bool[ArrayLike, "*heads query key"],
) -> Bool[Array, "#batch #num_heads #query key"]:
    """Convert the ``attn_mask`` of ``scaled_dot_product_attention``: True = may attend, as here.

    Args:
      attn_mask: boolean, with two to four axes.

    Returns:
      The same with four axes: ``[batch, num_heads, query, key]``, any of them 1.

    Raises:
      TypeError: if it is not boolean.
      ValueError: if it has fewer axes or more.

    Source: ``torch.nn.functional.scaled_dot_product_attention``.
    """
    return _with_four_axes("attn_mask", require_mask("attn_mask", attn_mask))


def mask_from_bias(
    bias: Float[ArrayLike, "*heads query key"],
) -> Bool[Array, "#batch #num_heads #query key"]:
    """Convert a mask of floats that are added to the scores: 0 = may attend.

    Args:
      bias: 0 or, where hidden, -1,000 or less; -inf and the sum of several such masks included. Two
        to four axes; a key padding mask is given as ``bias[:, None, None, :]``.

    Returns:
      The same with four axes, True = may attend.

    Raises:
      TypeError: if it holds no supported floats.
      ValueError: if it has fewer axes or more, or it is known and holds other values: zeros and
        ones are no mask that can be added, and a bias that weighs keys is no mask at all. (Of
        traced values, all that is not hidden may attend.)

    Source: ``torch.nn.MultiheadAttention``, ``torch.nn.functional.scaled_dot_product_attention``.
    """
    added = _with_four_axes("bias", require_floats("bias", bias))
    hidden = added <= _HIDDEN
    if is_concrete(added):
        known = np.asarray(added)
        wrong = ~((known == 0) | (known <= _HIDDEN))
        if wrong.any():
            place = tuple(int(axis) for axis in np.argwhere(wrong)[0])
            raise ValueError(
                f"`bias` holds {known[place]} at {list(place)}, but as a mask that is added it "
                f"may hold 0 (may attend) and numbers up to {_HIDDEN:,.0f} (hidden). If 1 = may "
                "attend, pass bias == 1 as the mask."
            )
    return ~hidden


def _with_four_axes(name: str, array: Array) -> Array:
    if not 2 <= array.ndim <= 4:
        raise ValueError(
            f"`{name}` must have two to four axes, the last ones [query, key], got "
            f"{list(array.shape)}. For a mask of keys alone pass {name}[:, None, None, :]."
        )
    return jnp.expand_dims(array, tuple(range(4 - array.ndim)))
