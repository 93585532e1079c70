"""PyTorch: a few steps of SGD, the one optimizer whose steps are no worse than its gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parity.evidence import RATE, TIMES, one_ulp
from parity.frameworks import torch_trace
from parity.frameworks.torch_reference import copied
from parity.frameworks.torch_side import to_float64


def stepped(
    reference: torch.nn.Module,
    inputs: Mapping[str, np.ndarray],
    cotangents: Mapping[str, np.ndarray],
    steps: int,
    dtype: str,
    *,
    training: bool,
    seed: int,
) -> tuple[dict[str, np.ndarray], dict[str, float], dict[str, float]]:
    """Take steps down the sum of outputs times cotangents.

    Args:
      reference: a module, which is left as it is.
      inputs: by name, or by place.
      cotangents: by output, as ``cotangents/...``.
      steps: how many.
      dtype: of the reference's own arithmetic.
      training: the mode.
      seed: of what it draws.

    Returns:
      Weights and statistics afterwards in float64; how far off a port may be; how far the
      reference itself is.
    """

    def walked(wide: bool) -> dict[str, np.ndarray]:
        model = copied(reference, training)
        model = model.double() if wide else model
        for _ in range(steps):
            options: dict[str, Any] = {"training": training, "seed": seed, "wide": wide}
            run = torch_trace.run(model, inputs, cotangents=cotangents, **options)
            _step(model, run)
        return {name: to_float64(value) for name, value in model.state_dict().items()}

    exact, own = walked(True), walked(False)
    errors = {n: float(np.abs(own[n] - value).max(initial=0.0)) for n, value in exact.items()}
    limits = {
        n: TIMES * max(errors[n], (1 + steps) * one_ulp(value, dtype)) for n, value in exact.items()
    }
    return exact, limits, errors


@torch.no_grad()
def _step(model: torch.nn.Module, run: torch_trace.Run) -> None:
    for name, parameter in model.named_parameters():
        if (gradient := run.gradients.get(name)) is not None:
            parameter.sub_(RATE * gradient)
    buffers: dict[str, Tensor] = dict(model.named_buffers())
    for name in run.statistics:
        buffers[name].copy_(run.weights[name])
