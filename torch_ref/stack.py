"""The encoder: one layer after the other, and perhaps a last norm."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from torch_ref.config import EncoderConfig, require_config
from torch_ref.dense import Params, map_params, require_names, require_vectors
from torch_ref.dropout_masks import DropoutMasks, mask_shapes, require_dropout_masks
from torch_ref.layers import encoder_layer
from torch_ref.normalization import layer_norm
from torch_ref.requirements import require_one_of
from torch_ref.rounding import narrow, widen


def encoder(
    x: Float[Tensor, "batch seq_len d_model"],
    params: Params,
    config: EncoderConfig,
    *,
    mask: Bool[Tensor, "batch_or_1 num_heads_or_1 query_or_1 key_or_1"] | None = None,
    dropout_masks: DropoutMasks | None = None,
    return_taps: bool = False,
    return_weights: bool = False,
) -> Any:
    """Pass vectors through all layers.

    Args:
      x: vectors along a sequence, such as ``transformer_input`` gives.
      params: "layers", the parameters of ``encoder_layer``, each tensor with a leading axis of
        ``num_layers``; and "final_norm" if the config says so. See ``encoder_params``.
      config: the options.
      mask: True = may attend; the same for all layers.
      dropout_masks: by name, as ``encoder_dropout_masks`` draws them; True = keep. Where there is
        none, nothing is dropped.
      return_taps: also return every step of every layer by name, as ``encoder_layer`` does, each
        with a leading axis of ``num_layers``; and "final_norm".
      return_weights: have the "attention_weights" among the taps, and return these.

    Returns:
      The shape of ``x``, in ``config.dtype`` or the dtype of ``x``; with taps, these as a dict
      beside it.

    Raises:
      TypeError, ValueError: as ``encoder_layer``, or if ``params`` don't fit ``config``.

    Source: Vaswani et al. 2017, section 3.1. Port: ``jax_input.encoder``.
    """
    require_config(config)
    require_vectors(x, config.d_model)
    require_names("params", params, ("layers", "final_norm") if config.final_norm else ("layers",))
    _require_stacked(params["layers"], config.num_layers, "params['layers']")
    for name, flag in (("return_taps", return_taps), ("return_weights", return_weights)):
        require_one_of(name, flag, (False, True))
    if config.dtype is not None:
        x = narrow(widen(x), config.dtype)
    shapes = mask_shapes(config, *x.shape[:2])
    kept = require_dropout_masks(
        {} if dropout_masks is None else dropout_masks,
        {name: (config.num_layers, *shape) for name, shape in shapes.items()},
    )
    tapped = []
    for index in range(config.num_layers):
        x, taps = encoder_layer(
            x,
            map_params(params["layers"], partial(_entry, index=index)),
            config,
            mask=mask,
            dropout_masks={name: masks[index] for name, masks in kept.items()},
            return_taps=True,
            return_weights=return_weights,
        )
        tapped.append(taps)
    last = {}
    if config.final_norm:
        x = layer_norm(x, params["final_norm"], eps=config.eps, form=config.norm_form)
        last = {"final_norm": x}
    if not return_taps and not return_weights:
        return x
    return x, {name: torch.stack([each[name] for each in tapped]) for name in tapped[0]} | last


def _entry(leaf: Tensor, index: int) -> Tensor:
    return leaf[index]


def _require_stacked(layers: Any, num_layers: int, name: str) -> None:
    """Refuse tensors that don't lead with an axis of all layers."""
    if isinstance(layers, Mapping):
        for key, leaf in layers.items():
            _require_stacked(leaf, num_layers, f"{name}['{key}']")
    elif not isinstance(layers, Tensor) or layers.shape[:1] != (num_layers,):
        got = f"shape {list(layers.shape)}" if isinstance(layers, Tensor) else type(layers).__name__
        raise ValueError(
            f"`{name}` must be a tensor with a leading axis of num_layers, {num_layers}, got "
            f"{got}. Stack those of the layers with torch.stack."
        )
