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
      given: what the port gave, by ``outputs/...`` or ``gradients/...``, in the order of axes that
        the reference has.
      values: all that it computed.
      reference: what is run.
      exact: what it computes, as it is.
    """

    run: Callable[[Sequence[Rewrite]], Run]
    limits: Mapping[str, float]
    given: Mapping[str, np.ndarray]
    values: Values
    reference: Any = None
    exact: Run | None = None

    def error(self, run: Run) -> float:
        """Return how far the port is from a run, the greatest of all errors over its limit."""
        return max(self.errors(run).values(), default=0.0)

    def spread(self, run: Run) -> float:
        """Return the root mean square of the errors over their limits."""
        squares = []
        for key, ours in self.given.items():
            apart = _apart(ours, _of(run, key))
            if not apart.size or not np.isfinite(apart).all():
                return np.inf
            squares.append(np.mean(apart**2) / self.limits[key] ** 2)
        return float(np.sqrt(max(squares, default=0.0)))

    def errors(self, run: Run) -> dict[str, float]:
        """Return the greatest errors over their limits, by key."""
        errors = {}
        for key, ours in self.given.items():
            theirs = _of(run, key)
            apart = _apart(ours, theirs)
            if not apart.size or np.isnan(apart).any():
                errors[key] = np.inf if ours.size or theirs.size else 0.0
                continue
            growth = self._growth(key, theirs, np.isfinite(ours))
            errors[key] = float(apart.max()) / (self.limits[key] * growth)
        return errors

    def _growth(self, key: str, value: np.ndarray, seen: np.ndarray) -> float:
        """Return how much larger a mistake makes a result, and so its roundings; at least 1."""
        if self.exact is None:
            return 1.0
        own = float(np.sqrt(np.mean(_of(self.exact, key)[seen] ** 2)))
        its = float(np.sqrt(np.mean(value[seen] ** 2)))
        return max(1.0, its / own) if own and np.isfinite(its) else 1.0

    def located(self, run: Run, most: float = ABOVE) -> tuple[Status, ...]:
        """Say what became of each step of a run in the port.

        Args:
          run: with mistakes, or as it is.
          most: how far above its limit an output may be.
        """
        errors = {run.ends.get(k.removeprefix("outputs/")): e for k, e in self.errors(run).items()}
        ends = {end: error <= most for end, error in errors.items() if end}
        return located(steps(run, self.limits), self.values, ends)


def _apart(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Return the errors where the port is finite, none where nothing can be compared."""
    if ours.shape != theirs.shape:
        return np.zeros(0)
    finite = np.isfinite(ours)
    return np.abs(ours[finite] - theirs[finite])


def _of(run: Run, key: str) -> np.ndarray:
    """Return an output of a run, or a gradient; nothing where it has none."""
    group, _, name = key.partition("/")
    found = (run.outputs if group == "outputs" else run.gradients).get(name)
    return to_float64(found) if found is not None else np.zeros(0)
