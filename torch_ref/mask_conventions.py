"""Masks as PyTorch's own modules take them, each by its own name: True means three things there.

``key_padding_mask`` and ``attn_mask`` of its modules say True = hidden, the ``attn_mask`` of
``scaled_dot_product_attention`` says True = may attend, and floats are added to the scores. Here
True = may attend, always.
"""

from jaxtyping import Bool, Float
from torch import Tensor

from torch_ref.masks import require_mask
from torch_ref.requirements import require_floats, require_size

_HIDDEN = -1e3
"""From here on down softmax gives 0 in every dtype: float64 has no number below exp(-746)."""


def mask_from_key_padding(
    key_padding_mask: Bool[Tensor, "batch key"],
) -> Bool[Tensor, "batch 1 1 key"]:
    """Convert the ``key_padding_mask`` of PyTorch's attention and encoder: True = hidden there.

    Args:
      key_padding_mask: ``(src_)key_padding_mask``, boolean; of floats, take ``mask_from_bias``.

    Returns:
      ``[batch, 1, 1, key]``, True = may attend.

    Raises:
      TypeError: if it is not boolean.
      ValueError: if it has not two axes.

    Source: ``torch.nn.MultiheadAttention``. Port: ``jax_input.mask_from_key_padding``.
    """
    require_mask("key_padding_mask", key_padding_mask)
    if key_padding_mask.ndim != 2:
        raise ValueError(
            f"`key_padding_mask` must have shape [batch, key], got {list(key_padding_mask.shape)}."
        )
    return ~key_padding_mask[:, None, None, :]


def mask_from_attn_mask(
    attn_mask: Bool[Tensor, "*heads query key"], *, num_heads: int | None = None
) -> Bool[Tensor, "batch_or_1 num_heads_or_1 query key"]:
    """Convert the ``attn_mask`` of PyTorch's attention (``mask`` of its encoder): True = hidden.

    Args:
      attn_mask: boolean, ``[query, key]``, or ``[batch * num_heads, query, key]``.
      num_heads: how many heads the first of three axes counts within each example.

    Returns:
      ``[1, 1, query, key]`` or ``[batch, num_heads, query, key]``, True = may attend.

    Raises:
      TypeError: if it is not boolean, or ``num_heads`` no integer.
      ValueError: if it has neither two nor three axes, or ``num_heads`` is missing or doesn't
        divide the first of three.

    Source: ``torch.nn.MultiheadAttention``. Port: ``jax_input.mask_from_attn_mask``.
    """
    require_mask("attn_mask", attn_mask)
    if attn_mask.ndim == 2:
        return ~attn_mask[None, None]
    if attn_mask.ndim != 3:
        raise ValueError(
            "`attn_mask` must have shape [query, key] or [batch * num_heads, query, key], got "
            f"{list(attn_mask.shape)}. For the mask of scaled_dot_product_attention, where True = "
            "may attend, use `mask_from_sdpa`."
        )
    if num_heads is None or len(attn_mask) % require_size("num_heads", num_heads):
        raise ValueError(
            f"`num_heads` must divide the first axis of `attn_mask`, {len(attn_mask)}, got "
            f"{num_heads}."
        )
    return ~attn_mask.unflatten(0, (-1, num_heads))


def mask_from_sdpa(
    attn_mask: Bool[Tensor, "*heads query key"],
) -> Bool[Tensor, "batch_or_1 num_heads_or_1 query key"]:
    """Convert the ``attn_mask`` of ``scaled_dot_product_attention``: True = may attend, as here.

    Args:
      attn_mask: boolean, with two to four axes.

    Returns:
      The same with four axes: ``[batch, num_heads, query, key]``, any of them 1.

    Raises:
      TypeError: if it is not boolean.
      ValueError: if it has fewer axes or more.

    Source: ``torch.nn.functional.scaled_dot_product_attention``. Port:
    ``jax_input.mask_from_sdpa``.
    """
    require_mask("attn_mask", attn_mask)
    return _with_four_axes("attn_mask", attn_mask)


def mask_from_bias(
    bias: Float[Tensor, "*heads query key"],
) -> Bool[Tensor, "batch_or_1 num_heads_or_1 query key"]:
    """Convert a mask of floats that are added to the scores: 0 = may attend.

    Args:
      bias: 0 or, where hidden, -1,000 or less; -inf and the sum of several such masks included. Two
        to four axes; a key padding mask is given as ``bias[:, None, None, :]``.

    Returns:
      The same with four axes, True = may attend.

    Raises:
      TypeError: if it holds no supported floats.
      ValueError: if it has fewer axes or more, or holds other values: zeros and ones are no mask
        that can be added, and a bias that weighs keys is no mask at all.

    Source: ``torch.nn.MultiheadAttention``. Port: ``jax_input.mask_from_bias``.
    """
    require_floats("bias", bias)
    added = _with_four_axes("bias", bias)
    hidden = added <= _HIDDEN
    wrong = ~(hidden | (added == 0))
    if not added.is_meta and wrong.any():
        place = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"`bias` holds {added[tuple(place)].item()} at {place}, but as a mask that is added it "
            f"may hold 0 (may attend) and numbers up to {_HIDDEN:,.0f} (hidden). If 1 = may "
            "attend, pass bias == 1 as the mask."
        )
    return ~hidden


def _with_four_axes(name: str, mask: Tensor) -> Tensor:
    if not 2 <= mask.ndim <= 4:
        raise ValueError(
            f"`{name}` must have two to four axes, the last ones [query, key], got "
            f"{list(mask.shape)}. For a mask of keys alone pass {name}[:, None, None, :]."
        )
    return mask[(None,) * (4 - mask.ndim)]
