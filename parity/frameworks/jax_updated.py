"""JAX: what training changes: running statistics after a run, weights after steps of SGD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from parity.cause import Cause
from parity.check_report import CheckReport
from parity.evidence import RATE
from parity.formats import is_floating, round_to, widen
from parity.frameworks.jax_held import Held
from parity.frameworks.jax_run import PortRun
from parity.layouts import Part
from parity.placement import Plan
from parity.update_causes import biased_variance, update_cause

Arrays = dict[str, np.ndarray]


def updated(
    held: Held,
    report: CheckReport,
    plan: Plan,
    values: Mapping[str, np.ndarray],
    run: PortRun,
    steps: int,
) -> CheckReport:
    """Compare weights and statistics after steps, or the statistics after one run.

    Args:
      held: the port.
      report: to which the rows are added.
      plan: where the weights are.
      values: of the leaves before.
      run: the first one.
      steps: of SGD.
    """
    leaves = {**values, **run.changed}
    sums = [p.target for p in plan.placements if p.is_added]
    for step in range(steps):
        now = run if step == 0 else held.run(leaves)
        leaves = {**_moved(leaves, now.gradients, sums), **now.changed}
    before = held.evidence.weights
    after = _apart(plan, before, plan.back({**values, **leaves}))
    rows, causes, told = [], [], []
    for name, theirs in held.evidence.updated.items():
        ours = after.get(name)
        if ours is None or not is_floating(ours.dtype) or ours.shape != theirs.shape:
            continue
        row = held.compared(f"updated/{name}", name, ours, theirs)
        arrays = widen(before[name]), widen(ours), theirs
        if (
            not row.passed
            and name.endswith("running_var")
            and biased_variance(*arrays, runs=max(steps, 1))
        ):
            told.append(f"{name}: the port's is of n, that of torch of n - 1 (Flax's way)")
            continue
        rows.append(row)
        if not row.passed and (cause := update_cause(name, *arrays, _momentum(held, name, steps))):
            causes.append(cause)
    if sums and steps:
        told.append("a bias that is the sum of two moves twice as far: torch moves both")
    means = {c.tensor.removesuffix("mean") for c in causes if c.code == "momentum"}
    # A variance that is of n moves by another share, though it has the same momentum.
    causes = [
        c for c in causes if c.code != "momentum" or c.tensor.removesuffix("var") not in means
    ]
    kept: tuple[Cause, ...] = (*report.causes, *causes)
    return replace(report, updated=tuple(rows), causes=kept, told=(*report.told, *told))


def _momentum(held: Held, name: str, steps: int) -> float | None:
    """Return that of the batch norm which has a statistic, for one run."""
    layer = held.evidence.layers.get(name.rpartition(".")[0])
    momentum = layer.facts.get("momentum") if layer is not None and steps <= 1 else None
    return float(momentum) if momentum is not None else None


def _moved(
    leaves: Mapping[str, np.ndarray],
    gradients: Mapping[str, np.ndarray],
    sums: Sequence[Part],
) -> Arrays:
    """Take one step, in the format of each leaf; twice as far where it is the sum of two."""
    after = dict(leaves)
    for path, leaf in leaves.items():
        if path in gradients and is_floating(leaf.dtype):
            rate = np.full(leaf.shape, RATE)
            for part in (part for part in sums if part.name == path):
                part.fill(rate, 2 * RATE)
            after[path] = round_to(widen(leaf) - rate * widen(gradients[path]), leaf.dtype)
    return after


def _apart(plan: Plan, before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> Arrays:
    """Give each of two tensors that are one sum in the port its half of what the sum moved by."""
    firsts = {p.target: p.source for p in plan.placements if not p.is_added}
    seconds = [(firsts[p.target], p.source) for p in plan.placements if p.is_added]
    found = {**after, **{part.name: widen(after[part.name]) for pair in seconds for part in pair}}
    for pair in seconds:
        starts = [widen(part.of(before[part.name])) for part in pair]
        moved = pair[0].of(found[pair[0].name]) - sum(starts)
        for part, start in zip(pair, starts, strict=True):
            part.fill(found[part.name], start + moved / 2)
    return found
