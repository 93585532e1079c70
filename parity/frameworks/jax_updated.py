"""JAX: what training changes: running statistics after a run, weights after steps of SGD."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from parity.cause import Cause
from parity.check_report import CheckReport
from parity.evidence import RATE
from parity.formats import is_floating, round_to, widen
from parity.frameworks.jax_run import PortRun
from parity.placement import Plan
from parity.update_causes import biased_variance, update_cause

Arrays = dict[str, np.ndarray]


def updated(
    held: Any,
    report: CheckReport,
    plan: Plan,
    values: Mapping[str, np.ndarray],
    run: PortRun,
    steps: int,
) -> CheckReport:
    """Compare weights and statistics after steps, or the statistics after one run.

    Args:
      held: the port, as `parity.frameworks.jax_check.Held`.
      report: to which the rows are added.
      plan: where the weights are.
      values: of the leaves before.
      run: the first one.
      steps: of SGD.
    """
    leaves = {**values, **run.changed}
    for step in range(steps):
        now = run if step == 0 else held.run(leaves)
        leaves = {**_moved(leaves, now.gradients), **now.changed}
    before = held.evidence.weights
    after = plan.back({**values, **leaves})
    rows, causes, told = [], [], []
    for name, theirs in held.evidence.updated.items():
        ours = after.get(name)
        if ours is None or not is_floating(ours.dtype) or ours.shape != theirs.shape:
            continue
        row = held.compared(f"updated/{name}", name, ours, theirs)
        arrays = widen(before[name]), widen(ours), theirs
        if not row.passed and name.endswith("running_var") and biased_variance(*arrays):
            told.append(f"{name}: the port's is of n, that of torch of n - 1 (Flax's way)")
            continue
        rows.append(row)
        if not row.passed and (cause := update_cause(name, *arrays)) is not None:
            causes.append(cause)
    kept: tuple[Cause, ...] = (*report.causes, *causes)
    return replace(report, updated=tuple(rows), causes=kept, told=(*report.told, *told))


def _moved(leaves: Mapping[str, np.ndarray], gradients: Mapping[str, np.ndarray]) -> Arrays:
    """Take one step, in the format of each leaf."""
    return {
        path: round_to(widen(leaf) - RATE * widen(gradients[path]), leaf.dtype)
        if path in gradients and is_floating(leaf.dtype)
        else leaf
        for path, leaf in leaves.items()
    }
