"""PyTorch: one run of a reference, call by call, as it is or with some calls answered otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from parity.frameworks.torch_calls import Noise, Result, Rewrite
from parity.frameworks.torch_dropout import undropped
from parity.frameworks.torch_reference import called, copied, outputs_of, pull_back, seeded
from parity.frameworks.torch_side import from_numpy
from parity.frameworks.torch_tracer import Tracer


@dataclass(frozen=True, eq=False)
class Run:
    """What one run of a reference computed.

    Attributes:
      results: of all calls, by key, in order.
      outputs: by path.
      ends: the results that they are, by path.
      gradients: of the sum of outputs times cotangents, by weight, and ``inputs/`` by input.
      weights: parameters and floating buffers, as they are after the run.
      statistics: names of the buffers.
    """

    results: Mapping[str, Result]
    outputs: Mapping[str, Tensor]
    ends: Mapping[str, str]
    gradients: Mapping[str, Tensor]
    weights: Mapping[str, Tensor]
    statistics: tuple[str, ...]


@torch.inference_mode(mode=False)
@torch.enable_grad()
def run(
    reference: Any,
    inputs: Mapping[str, np.ndarray],
    *,
    training: bool = False,
    seed: int = 0,
    cotangents: Mapping[str, np.ndarray] | None = None,
    wide: bool = True,
    rewrites: Sequence[Rewrite] = (),
    noise: Noise | None = None,
) -> Run:
    """Run a reference once, and see all of its calls; its dropout keeps everything.

    Args:
      reference: a module or a function; it is copied, and left as it is.
      inputs: by name, or by place: "0", "1", ...
      training: the mode of a module.
      seed: of what it draws.
      cotangents: by output, as ``cotangents/...``; None for no gradients.
      wide: whether all of it is computed in float64.
      rewrites: see `Tracer`.
      noise: see `Tracer`.
    """
    model = copied(reference, training)
    for rewrite in rewrites:
        if (change := getattr(rewrite, "change", None)) is not None:
            change(model)
    given = {name: from_numpy(array) for name, array in inputs.items()}
    if wide:
        model = model.double() if isinstance(model, nn.Module) else model
        given = {n: x.double() if x.is_floating_point() else x for n, x in given.items()}
    weights = _weights(model)
    sources = weights | {f"inputs/{name}": value for name, value in given.items()}
    if cotangents is not None:
        # Statistics that training changes in place can't be differentiated as well.
        fixed = set(_buffers(model)) if training else set()
        for name, value in sources.items():
            value.requires_grad_(value.is_floating_point() and name not in fixed)
    tracer = Tracer(rewrites=(*rewrites, undropped), noise=noise, wide=wide)
    with seeded(seed), _default_dtype(wide), tracer.following(model):
        copies = {name: value.clone() for name, value in given.items()}
        tracer.name({f"inputs/{name}": value for name, value in copies.items()})
        tracer.name({f"weights/{name}": value for name, value in weights.items()})
        with tracer:
            result = called(model, copies)
    outputs = outputs_of(result)
    if cotangents is not None:
        pull_back(outputs, cotangents)
    gradients = {name: x.grad for name, x in sources.items() if x.grad is not None}
    ends = {name: tracer.key(value) for name, value in outputs.items()}
    return Run(tracer.results, outputs, ends, gradients, weights, tuple(_buffers(model)))


def _buffers(model: Any) -> dict[str, Tensor]:
    named = model.named_buffers() if isinstance(model, nn.Module) else ()
    return {name: value for name, value in named if value.is_floating_point()}


def _weights(model: Any) -> dict[str, Tensor]:
    """Return parameters and floating buffers: a gradient tells of either whether it matters."""
    if not isinstance(model, nn.Module):
        return {}
    named = {n: x for n, x in model.named_parameters() if x.is_floating_point()}
    return named | _buffers(model)


@contextmanager
def _default_dtype(wide: bool) -> Iterator[None]:
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64 if wide else before)
        yield
    finally:
        torch.set_default_dtype(before)
