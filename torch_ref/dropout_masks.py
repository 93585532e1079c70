"""Which entries of an encoder are kept, by name: drawn here, or given to two frameworks alike."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool
from torch import Tensor

from torch_ref.config import EncoderConfig

DropoutMasks: TypeAlias = Mapping[str, Bool[Tensor, "..."]]


def encoder_dropout_masks(
    config: EncoderConfig,
    batch: int,
    seq_len: int,
    *,
    generator: torch.Generator | None = None,
    device: torch.device | None = None,
) -> dict[str, Bool[Tensor, "..."]]:
    """Draw what ``encoder`` keeps, each entry for itself, in each layer anew.

    Args:
      config: of the encoder; entries are dropped with the chance ``config.dropout_rate``.
      batch: how many sequences.
      seq_len: how long they are.
      generator: where they are drawn from; by default PyTorch's global generator.
      device: of the masks; by default the default device.

    Returns:
      "attention_weights" [num_layers, batch, num_heads, seq_len, seq_len], "attention" [num_layers,
      batch, seq_len, d_model], "feed_forward_hidden" [num_layers, batch, seq_len, d_ff] and
      "feed_forward" [num_layers, batch, seq_len, d_model], True = keep. For ``encoder_layer`` take
      one entry of the first axis.

    Source: the four places where ``torch.nn.TransformerEncoderLayer`` drops.
    """
    kept = 1.0 - config.dropout_rate
    return {
        name: torch
        .empty((config.num_layers, *shape), device=device)
        .bernoulli_(kept, generator=generator)
        .bool()
        for name, shape in mask_shapes(config, batch, seq_len).items()
    }


def mask_shapes(config: EncoderConfig, batch: int, seq_len: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of each dropout mask of a layer."""
    return {
        "attention_weights": (batch, config.num_heads, seq_len, seq_len),
        "attention": (batch, seq_len, config.d_model),
        "feed_forward_hidden": (batch, seq_len, config.d_ff),
        "feed_forward": (batch, seq_len, config.d_model),
    }


def require_dropout_masks(masks: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Return the masks of a layer or an encoder, or say which ones there may be.

    Raises:
      TypeError: if they are no dict, or one is not boolean.
      ValueError: if a name is unknown, or a mask has another shape.
    """
    if not isinstance(masks, Mapping):
        raise TypeError(
            f"`dropout_masks` must be a dict of masks by name, got {type(masks).__name__}. "
            f"The names are {', '.join(shapes)}."
        )
    for name, mask in masks.items():
        if name not in shapes:
            raise ValueError(
                f"`dropout_masks` has {name!r}, but may hold {', '.join(shapes)} alone."
            )
        require_dropout_mask(f"dropout_masks['{name}']", mask, shapes[name])
    return dict(masks)


def require_dropout_mask(name: str, mask: Any, shape: tuple[int, ...]) -> None:
    """Refuse a dropout mask that is not boolean, or has not one entry for each that may drop.

    Raises:
      TypeError: if it is no boolean tensor.
      ValueError: if it has another shape.
    """
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(
            f"`{name}` must be a torch.bool tensor with True = keep, got {kind}. Write mask == 1."
        )
    if mask.shape != shape:
        raise ValueError(
            f"`{name}` must have shape {list(shape)}, got {list(mask.shape)}. Give each entry its "
            "own, or use expand to share one on purpose."
        )
