"""PyTorch: the steps of a reference, each with how far off a right port may be.

How far is found by trying: the reference runs in its own format, and in float64 with everything
that it would round moved at random. A right port makes roundings of its own, as many and as large;
so it may be off by a few times the greatest that was seen.

What is moved, and by how much, follows what a port rounds. A unit is half an ulp, the most that
one rounding is off by, of the format that this result has in the reference: one bfloat16 buffer
does not make float32 layers coarse, and what is computed in float32 inside stays sharp.

Each element goes by up to two units. A function is rarely a single rounding: softmax, gelu and
norms are computed in three to six, each within a unit, so their root sum is near two units; what
is left, and that the greatest of a few numbers scatters, is what `TIMES` of `parity.evidence` is
for.

Gradients are moved the same way on their way back: a backward pass makes roundings that no noise
in the forward pass shows, such as the sums in which a weight collects from its users.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parity.evidence import TIMES, one_ulp
from parity.formats import FORMATS
from parity.frameworks import torch_trace
from parity.frameworks.torch_calls import Call, is_rounded, tensors
from parity.frameworks.torch_kinks import Kinks
from parity.frameworks.torch_side import to_float64
from parity.frameworks.torch_trace import Run
from parity.hidden_scores import level
from parity.locate import Step

# By how many units an element is moved, at most.
_UNITS = 2.0
# Runs that are moved. With more, the greatest scatters less; each costs a run in float64.
_RUNS = 4
# What they return is rounded if the format is a narrower one.
_CASTS = ("to", "type")


@dataclass(frozen=True, eq=False)
class Held:
    """What a port is held against.

    Attributes:
      exact: the run in float64.
      own: the same in the reference's own format.
      limits: by output, ``gradients/...`` and key of a step: absolute.
      errors: the same of what the reference itself is off by.
      dtype: the narrowest format of the reference.
      jumps: by how much gradients jump at kinks: ``gradients/...``, and by key those of steps.
    """

    exact: Run
    own: Run
    limits: Mapping[str, float]
    errors: Mapping[str, float]
    dtype: str
    jumps: Mapping[str, float]


def hold(
    reference: Any,
    inputs: Mapping[str, np.ndarray],
    *,
    training: bool,
    seed: int,
    cotangents: Mapping[str, np.ndarray] | None,
) -> Held:
    """Run a reference, and find out how far off a right port of it may be."""
    options: dict[str, Any] = {"training": training, "seed": seed, "cotangents": cotangents}
    own = torch_trace.run(reference, inputs, wide=False, **options)
    exact = torch_trace.run(reference, inputs, **options)
    dtype = _format(own)
    formats = _formats(own)
    truth = _told(exact)
    errors = _errors(_told(own), truth)
    greatest = dict(errors)
    for number in range(_RUNS):
        noise = _Mover(formats, dtype, number)
        moved = torch_trace.run(reference, inputs, noise=noise, **options)
        for name, error in _errors(_told(moved), truth).items():
            greatest[name] = max(greatest.get(name, 0.0), error)
    limits = {
        name: TIMES * max(greatest.get(name, 0.0), one_ulp(value, formats.get(name, dtype)))
        for name, value in truth.items()
    }
    jumps: dict[str, float] = {}
    for kinks in Kinks(exact, greatest).rewrites() if cotangents is not None else ():
        other = torch_trace.run(reference, inputs, rewrites=[kinks], **options)
        for name, jump in _errors(_pulled(other), _pulled(exact)).items():
            jumps[name] = max(jumps.get(name, 0.0), jump)
    limits |= {n: limits[n] + e for n, e in jumps.items() if n.startswith("gradients/")}
    return Held(exact, own, limits, errors, dtype, jumps)


def steps(run: Run, limits: Mapping[str, float]) -> list[Step]:
    """Return the results of a run as steps.

    Args:
      run: in float64.
      limits: by key; a step that has none is nowhere found.
    """
    return [
        Step(
            key,
            r.call.module,
            r.call.name,
            r.call.sources,
            to_float64(r.value),
            limits.get(key, 0.0),
        )
        for key, r in run.results.items()
    ]


def _format(run: Run) -> str:
    """Return the narrowest format of the weights, or of the outputs where there are none."""
    found = [*run.weights.values()] or [*run.outputs.values()]
    names = {_name(x) for x in found if x.is_floating_point()}
    return min(names & FORMATS.keys(), key=lambda name: FORMATS[name].digits, default="float32")


def _formats(own: Run) -> dict[str, str]:
    """Return the format of each output, gradient and result."""
    found = {f"outputs/{name}": _name(value) for name, value in own.outputs.items()}
    found |= {f"gradients/{name}": _name(value) for name, value in own.gradients.items()}
    found |= {key: _name(result.value) for key, result in own.results.items()}
    return {key: name for key, name in found.items() if name in FORMATS}


def _name(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


class _Mover:
    """Moves what calls return, and the gradients that come back to it, at random."""

    def __init__(self, formats: Mapping[str, str], default: str, seed: int) -> None:
        self._formats, self._default = formats, default
        self._random = torch.Generator().manual_seed(seed)

    def __call__(self, call: Call, result: Any) -> Any:
        made = [value for value in tensors(result) if value.is_floating_point()]
        if isinstance(result, Tensor):
            return self._part(call, result, call.key) if made else result
        if not isinstance(result, tuple) or len(made) != len(result):
            return result
        keys = [f"{call.key}[{k}]" for k in range(len(made))] if made[1:] else [call.key]
        parts = [self._part(call, value, key) for value, key in zip(result, keys, strict=True)]
        return tuple(parts) if type(result) is tuple else type(result)(parts)

    def _part(self, call: Call, value: Tensor, key: str) -> Tensor:
        name = self._formats.get(key, self._default)
        if is_rounded(call) or (call.name in _CASTS and key in self._formats):
            value = self._moved(value, name)
        if value.requires_grad and not value.is_leaf and not call.mutates:
            value.register_hook(lambda gradient: self._moved(gradient, name))
        return value

    def _moved(self, value: Tensor, name: str) -> Tensor:
        unit = 2.0 ** -FORMATS[name].digits
        drawn = torch.rand(value.shape, generator=self._random, dtype=torch.float64) * 2 - 1
        return value * (1 + _UNITS * unit * drawn.to(value.dtype))


def _told(run: Run) -> dict[str, np.ndarray]:
    told = {f"outputs/{name}": to_float64(value) for name, value in run.outputs.items()}
    told |= {f"gradients/{name}": to_float64(value) for name, value in run.gradients.items()}
    told |= {f"updated/{name}": to_float64(run.weights[name]) for name in run.statistics}
    return told | {key: level(to_float64(result.value)) for key, result in run.results.items()}


def _pulled(run: Run) -> dict[str, np.ndarray]:
    """Return all gradients, those of steps by their keys."""
    pulled = {f"gradients/{name}": to_float64(value) for name, value in run.gradients.items()}
    steps = {key: r.tensor for key, r in run.results.items() if not r.tensor.is_leaf}
    return pulled | {key: to_float64(x.grad) for key, x in steps.items() if x.grad is not None}


def _errors(told: Mapping[str, np.ndarray], truth: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the greatest finite errors: what overflows in a half format is no leave to be off."""
    errors = {}
    for name, value in told.items():
        if name in truth and truth[name].shape == value.shape:
            with np.errstate(invalid="ignore"):
                apart = np.abs(value - truth[name])
            errors[name] = float(apart.max(initial=0.0, where=np.isfinite(apart)))
    return errors
