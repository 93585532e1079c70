"""PyTorch: how far a port is from a reference that is run again with mistakes in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.frameworks.torch_calls import Rewrite
from parity.frameworks.torch_side import to_float64
from parity.frameworks.torch_steps import steps
from parity.frameworks.torch_trace import Run
from parity.locate import Status, Values, located

# How far above its limit a cause may leave an output.
ABOVE = 2.0


@dataclass(frozen=True, eq=False)
class Search:
    """What is known of a port, and how its reference is run again.

    Attributes:
      run: runs the reference in float64 with some calls answered otherwise.
      limits: see `parity.frameworks.torch_steps.Held`.
      outputs: what the port returned, by path, in the order of axes that the reference has.
      values: all that it computed.
      reference: what is run.
      exact: what it computes, as it is.
    """

    run: Callable[[Sequence[Rewrite]], Run]
    limits: Mapping[str, float]
    outputs: Mapping[str, np.ndarray]
    values: Values
    reference: Any = None
    exact: Run | None = None

    def error(self, run: Run) -> float:
        """Return how far the port is from a run, the greatest of all outputs over its limit."""
        return max(self.errors(run).values(), default=0.0)

    def spread(self, run: Run) -> float:
        """Return the root mean square of the errors over their limits."""
        squares = []
        for name, ours in self.outputs.items():
            theirs = to_float64(run.outputs[name])
            if theirs.shape != ours.shape or not np.isfinite(ours - theirs).all():
                return np.inf
            squares.append(np.mean((ours - theirs) ** 2) / self.limits[f"outputs/{name}"] ** 2)
        return float(np.sqrt(max(squares, default=0.0)))

    def errors(self, run: Run) -> dict[str, float]:
        """Return the same by output."""
        errors = {}
        for name, ours in self.outputs.items():
            theirs = to_float64(run.outputs[name]) if name in run.outputs else np.zeros(0)
            if theirs.shape != ours.shape:
                errors[name] = np.inf
                continue
            with np.errstate(invalid="ignore"):
                apart = float(np.abs(ours - theirs).max(initial=0.0))
            limit = self.limits[f"outputs/{name}"] * self._growth(name, theirs)
            errors[name] = np.inf if np.isnan(apart) else apart / limit
        return errors

    def _growth(self, name: str, value: np.ndarray) -> float:
        """Return how much larger a mistake makes an output, and so its roundings; at least 1."""
        if self.exact is None or not value.size:
            return 1.0
        own = float(np.sqrt(np.mean(to_float64(self.exact.outputs[name]) ** 2)))
        its = float(np.sqrt(np.mean(value**2)))
        return max(1.0, its / own) if own and np.isfinite(its) else 1.0

    def located(self, run: Run) -> tuple[Status, ...]:
        """Say what became of each step of a run in the port."""
        errors = self.errors(run)
        ends = {run.ends[name]: error <= ABOVE for name, error in errors.items() if run.ends[name]}
        return located(steps(run, self.limits), self.values, ends)
