"""What a reference gives a port to be held against, live or from a recording."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from parity.cause import Cause
from parity.formats import FORMATS, ulp, widen
from parity.hidden_scores import level
from parity.locate import Status, Step, Values
from parity.placement import Layer
from parity.recording import Recording

# How many times what the reference itself is off by a port may be: it makes as many roundings,
# in another order, and the greatest of a few errors scatters.
TIMES = 4
# Of the steps of SGD.
RATE = 0.01

# The mistakes in the order of computation, and what became of each step of the reference.
Explained = tuple[list[Cause], tuple[Status, ...]]


class Explain(Protocol):
    """Names the mistakes that explain a port."""

    def __call__(
        self, given: Mapping[str, np.ndarray], values: Values, at: str | None = None
    ) -> Explained:
        """Look for them.

        Args:
          given: what the port gave, by ``outputs/...``, or by ``gradients/...`` where these alone
            are off; in the order of axes that the reference has.
          values: all that it computed.
          at: the step at which, going backward, gradients are the first to differ, "" if none is
            known; None for outputs.
        """


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a port is held against.

    Attributes:
      inputs: by name, or by place: "0", "1", ...
      weights: parameters and buffers, by name.
      layers: what the modules are, by path.
      tied: other names of a tensor, with its first.
      outputs: in float64, integers as they are; by path.
      dtypes: what the outputs were in the reference.
      gradients: in float64, of the sum of outputs times cotangents, by weight and ``inputs/...``.
      cotangents: by output.
      updated: weights and statistics after steps, or a run in training mode; {} if neither was.
      limits: how far off the port may be: of ``outputs/...``, ``gradients/...`` and steps.
      errors: how far off the reference itself is.
      steps: what it computes on the way.
      ends: which step an output is.
      step_gradients: of the steps, each with its limit.
      drawn: where dropout is on, and how many values it draws for.
      hidden: weights that these inputs do not reach, others would.
      unused: weights that no inputs reach.
      sha256: of weights, inputs and outputs.
      explain: names the mistakes; None where the reference can't be run.
      told: what has to be said about it.
      buffers: tensors that are no parameters; a port may compute them.
    """

    inputs: Mapping[str, np.ndarray]
    weights: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    dtypes: Mapping[str, str]
    gradients: Mapping[str, np.ndarray]
    cotangents: Mapping[str, np.ndarray]
    limits: Mapping[str, float]
    errors: Mapping[str, float]
    steps: Sequence[Step]
    sha256: str
    hidden: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    layers: Mapping[str, Layer] = field(default_factory=dict)
    tied: Mapping[str, str] = field(default_factory=dict)
    buffers: tuple[str, ...] = ()
    updated: Mapping[str, np.ndarray] = field(default_factory=dict)
    ends: Mapping[str, str] = field(default_factory=dict)
    step_gradients: Mapping[str, tuple[np.ndarray, float]] = field(default_factory=dict)
    drawn: tuple[tuple[str, int], ...] = ()
    explain: Explain | None = None
    told: tuple[str, ...] = ()


def digest(*groups: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of named arrays: names, dtypes, shapes and bits."""
    total = hashlib.sha256()
    for group in groups:
        for name, array in sorted(group.items()):
            total.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
            total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def one_ulp(value: np.ndarray, dtype: str) -> float:
    """Return one ulp of a format at the root mean square."""
    finite = np.abs(value[np.isfinite(value)])
    # A mask may be as large as its format allows, and has no square then.
    most = float(finite.max(initial=0.0))
    scale = most * float(np.sqrt(np.mean((finite / most) ** 2))) if most else 0.0
    return float(ulp(np.array(scale), dtype if dtype in FORMATS else "float32"))


def of_recording(found: Recording) -> Evidence:
    """Return what a recording of a model holds, for a machine without PyTorch.

    Args:
      found: written by `parity.record`.

    Raises:
      ValueError: if it is of something else, or has nothing in float64 to judge by.
    """
    exact = _exact(found)
    own = {f"outputs/{n}": a for n, a in found.group("outputs").items()}
    own |= {f"gradients/{n}": a for n, a in found.group("gradients").items()}
    truth = {n: widen(exact[n]) for n in own if n in exact}
    errors = {n: _apart(widen(own[n]), value) for n, value in truth.items()}
    gradients, outputs = _group(truth, "gradients/"), _group(truth, "outputs/")
    zero = tuple(n for n, g in gradients.items() if not g.any() and not n.startswith("inputs/"))
    return Evidence(
        inputs=found.group("inputs"),
        weights=found.group("weights"),
        outputs=outputs,
        dtypes={n: own[f"outputs/{n}"].dtype.name for n in outputs},
        gradients=gradients,
        cotangents=found.group("cotangents"),
        limits={n: _limit(errors[n], v, own[n].dtype.name) for n, v in truth.items()},
        errors=errors,
        steps=_steps(found, exact),
        hidden=zero,
        sha256=found.sha256,
        told=(f"the reference is a recording of torch {found.manifest['made_by']['torch']}",),
    )


def _exact(found: Recording) -> dict[str, np.ndarray]:
    if found.manifest.get("kind") != "model":
        raise ValueError(
            "`reference` is a recording of a suite. Give one that `parity.record` wrote."
        )
    exact = found.group("float64")
    if not exact:
        raise ValueError(
            "`reference` has nothing in float64: it drew at random. Record it in eval mode."
        )
    return exact


def _group(arrays: Mapping[str, np.ndarray], start: str) -> dict[str, np.ndarray]:
    return {n.removeprefix(start): array for n, array in arrays.items() if n.startswith(start)}


def _limit(error: float, value: np.ndarray, dtype: str) -> float:
    return TIMES * max(error, 2 * one_ulp(value, dtype))


def _steps(found: Recording, exact: Mapping[str, np.ndarray]) -> list[Step]:
    """Return what submodules gave, as if each came from the one before; sampled ones are none."""
    steps, previous = [], "inputs/0"
    for name, tap in found.group("taps").items():
        value = exact.get(f"taps/{name}")
        if value is None or name in found.manifest["shapes"]:
            continue
        wide, key = level(widen(value)), f"taps/{name}"
        limit = _limit(_apart(level(widen(tap)), wide), wide, tap.dtype.name)
        steps.append(Step(key, name, "", (previous,), wide, limit))
        previous = key
    return steps


def _apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    if ours.shape != theirs.shape:
        return float("inf")
    with np.errstate(invalid="ignore"):
        return float(np.nanmax(np.abs(ours - theirs), initial=0.0))
