"""PyTorch: batch and instance norm as they are, with a gradient for their running statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def batch_norm(step: Callable[..., Any], *places: Any, **named: Any) -> Any:
    """Make the one step of a batch norm; PyTorch gives running statistics no gradient."""
    return step("batch_norm", _batch_norm, *places, **named)


def instance_norm(step: Callable[..., Any], *places: Any, **named: Any) -> Any:
    """Make the one step of an instance norm."""
    return step("instance_norm", _instance_norm, *places, **named)


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    mean, var = _detached(running_mean), _detached(running_var)
    y = functional.batch_norm(input, mean, var, weight, bias, training, momentum, eps)
    return y if training else _reached(y, input, running_mean, running_var, weight, eps)


def _instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    mean, var = _detached(running_mean), _detached(running_var)
    y = functional.instance_norm(input, mean, var, weight, bias, use_input_stats, momentum, eps)
    return y if use_input_stats else _reached(y, input, running_mean, running_var, weight, eps)


def _detached(value: Tensor | None) -> Tensor | None:
    # It shares its memory: an update in training mode is seen.
    return None if value is None else value.detach()


def _reached(
    y: Tensor,
    x: Tensor,
    mean: Tensor | None,
    var: Tensor | None,
    weight: Tensor | None,
    eps: float,
) -> Tensor:
    """Return `y` itself, from which a gradient also goes into its statistics."""
    if mean is None or var is None or not torch.is_grad_enabled():
        return y
    if not (mean.requires_grad or var.requires_grad):
        return y
    shape = (1, -1, *(1,) * (x.dim() - 2))
    again = (x.detach() - mean.view(shape)) / (var.view(shape) + eps).sqrt()
    again = again if weight is None else again * weight.detach().view(shape)
    return y + (again - again.detach())
