"""PyTorch: what a live reference gives a port to be held against."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from parity.evidence import RATE, TIMES, Evidence, Explained, digest, one_ulp
from parity.frameworks import torch_layers, torch_trace
from parity.frameworks.torch_calls import Rewrite
from parity.frameworks.torch_causes import causes, causes_of_gradients
from parity.frameworks.torch_dropout import drawn, random_call
from parity.frameworks.torch_reference import cotangents_of
from parity.frameworks.torch_search import Search
from parity.frameworks.torch_sgd import stepped
from parity.frameworks.torch_side import to_float64, to_numpy
from parity.frameworks.torch_steps import Held, hold
from parity.frameworks.torch_steps import steps as steps_of
from parity.frameworks.torch_trace import Run
from parity.locate import Values

# A gradient this small beside the greatest is none: in float64 that is far below a rounding.
_NO_GRADIENT = 1e-12


def evidence(
    reference: Any,
    inputs: Mapping[str, np.ndarray],
    *,
    training: bool,
    grad: bool,
    steps: int,
    seed: int,
) -> Evidence:
    """Run a reference, and return all that a port of it is held against.

    Args:
      reference: a module, or a function of tensors.
      inputs: by name, or by place.
      training: the mode of a module.
      grad: whether gradients are compared.
      steps: of SGD that are compared.
      seed: of cotangents, and of what the reference draws.
    """
    options: dict[str, Any] = {"training": training, "seed": seed}
    plain = torch_trace.run(reference, inputs, wide=False, **options)
    if training and (name := random_call(plain.results.values())):
        raise ValueError(
            f"`reference` draws at random in {name}, as no other framework does. Switch that off "
            "on both sides, or check with training=False."
        )
    live = {n: x.requires_grad_() for n, x in plain.outputs.items() if x.is_floating_point()}
    cotangents = cotangents_of(live, seed) if grad else {}
    held = hold(reference, inputs, cotangents=cotangents if grad else None, **options)
    own = {name: to_numpy(value.detach()) for name, value in plain.outputs.items()}
    hidden, unused = _blind(reference, inputs, held.exact, training, seed) if grad else ((), ())
    is_module = isinstance(reference, torch.nn.Module)
    weights = torch_layers.weights(reference) if is_module else {}
    found = Evidence(
        inputs=inputs,
        weights=weights,
        outputs=_outputs(held.exact),
        dtypes={name: array.dtype.name for name, array in own.items()},
        gradients={n: to_float64(g) for n, g in held.exact.gradients.items()},
        cotangents={n.removeprefix("cotangents/"): array for n, array in cotangents.items()},
        limits=held.limits,
        errors=held.errors,
        steps=steps_of(held.exact, held.limits),
        sha256=digest(weights, inputs, own),
        hidden=hidden,
        unused=unused,
        layers=torch_layers.layers(reference) if is_module else {},
        tied=torch_layers.tied(reference) if is_module else {},
        buffers=held.exact.statistics,
        ends=held.exact.ends,
        step_gradients=_step_gradients(held),
        drawn=tuple(drawn(plain.results.values())),
        explain=partial(_explain, reference, inputs, held, options, cotangents),
    )
    statistics = held.exact.statistics if training else ()
    found = replace(found, updated={n: to_float64(held.exact.weights[n]) for n in statistics})
    return _stepped(found, reference, cotangents, steps, held, options) if steps else found


def _outputs(run: Run) -> dict[str, np.ndarray]:
    """Return the outputs in float64; integers and truth values as they are."""
    named = run.outputs.items()
    return {n: to_float64(x) if x.is_floating_point() else to_numpy(x) for n, x in named}


def _explain(
    reference: Any,
    inputs: Mapping[str, np.ndarray],
    held: Held,
    options: Mapping[str, Any],
    cotangents: Mapping[str, np.ndarray],
    given: Mapping[str, np.ndarray],
    values: Values,
    at: str | None = None,
) -> Explained:
    """Name the mistakes that explain a port; see `parity.evidence.Explain`."""

    def again(rewrites: Sequence[Rewrite]) -> Run:
        pulled = None if at is None else cotangents
        return torch_trace.run(reference, inputs, rewrites=rewrites, cotangents=pulled, **options)

    search = Search(again, held.limits, given, values, reference)
    with warnings.catch_warnings():
        # What a mistake overflows or casts is no affair of the caller.
        warnings.simplefilter("ignore")
        if at is None:
            return causes(search, held.exact)
        return causes_of_gradients(search, held.exact, at)


def _stepped(
    found: Evidence,
    reference: Any,
    cotangents: Mapping[str, np.ndarray],
    steps: int,
    held: Held,
    options: Mapping[str, Any],
) -> Evidence:
    """Add what the weights are after some steps of SGD."""
    after, limits, errors = stepped(
        reference, found.inputs, cotangents, steps, held.dtype, **options
    )
    more = {
        # Each step moves a weight by its gradient, and so by what that may jump.
        f"updated/{name}": limit
        + steps * RATE * held.jumps.get(f"gradients/{found.tied.get(name, name)}", 0.0)
        for name, limit in limits.items()
    }
    off = {f"updated/{name}": error for name, error in errors.items()}
    limits, errors = {**found.limits, **more}, {**found.errors, **off}
    return replace(found, updated=after, limits=limits, errors=errors)


def _step_gradients(held: Held) -> dict[str, tuple[np.ndarray, float]]:
    """Return the gradient of each step, with how far off a port's may be."""
    found = {}
    for key, result in held.exact.results.items():
        own = held.own.results.get(key)
        exact = result.tensor.grad if not result.tensor.is_leaf else None
        if exact is None or own is None or own.tensor.grad is None:
            continue
        wide = to_float64(exact)
        error = np.abs(to_float64(own.tensor.grad) - wide).max(initial=0.0)
        limit = TIMES * max(float(error), 4 * one_ulp(wide, held.dtype))
        found[key] = wide, limit + held.jumps.get(key, 0.0)
    return found


def _blind(
    reference: Any, inputs: Mapping[str, np.ndarray], exact: Run, training: bool, seed: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the weights without a gradient: those that other inputs would reach, and the rest."""
    silent = _silent(exact)
    if not silent:
        return (), ()
    other = {name: _drawn(name, array, exact, seed) for name, array in inputs.items()}
    ones = {f"cotangents/{n}": np.ones(tuple(x.shape)) for n, x in exact.outputs.items()}
    rng = np.random.default_rng(seed)
    normal = {name: rng.normal(size=array.shape) for name, array in ones.items()}
    still = _silent(
        torch_trace.run(reference, other, training=training, seed=seed, cotangents=normal)
    )
    # In training statistics have no gradient, and are compared as they are after the run.
    fixed = exact.statistics if training else ()
    hidden = tuple(n for n in silent if n not in still)
    return hidden, tuple(n for n in silent if n in still and n not in fixed)


def _silent(run: Run) -> list[str]:
    sizes = {
        name: float(run.gradients[name].abs().max())
        if name in run.gradients and run.gradients[name].numel()
        else 0.0
        for name in run.weights
    }
    greatest = max(sizes.values(), default=0.0)
    return [name for name, size in sizes.items() if size <= _NO_GRADIENT * greatest]


def _drawn(name: str, array: np.ndarray, run: Run, seed: int) -> np.ndarray:
    """Draw an input in place of one: normal, or rows of the table that its integers read."""
    random = np.random.default_rng(seed)
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind not in "iu":
        return random.normal(size=array.shape).astype(array.dtype)
    for result in run.results.values():
        if result.call.name == "embedding" and f"inputs/{name}" in result.call.sources:
            table = next(x for x in result.call.places if x.is_floating_point())
            return random.integers(0, len(table), array.shape).astype(array.dtype)
    return array
