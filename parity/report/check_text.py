"""A report of `parity.check` as text."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from parity.cause import Cause
from parity.locate import Status

if TYPE_CHECKING:
    from parity.check_report import CheckReport, Compared

_WIDTH = 110
_LABEL = 10
# Of modules around HERE, and of tensors that differ; the report itself has all of them.
_NEAR = 3
_SHOWN = 6
_GAP = "   "


def text(report: CheckReport) -> str:
    """Return a report as lines: what differs, where it begins, why, and what to write."""
    return "\n".join([headline(report), *_lines(report)])


def _lines(report: CheckReport) -> Iterator[str]:
    if report.plan is not None:
        yield from _labelled("weights", weights(report))
    for words in report.wrong_weights:
        yield from _labelled("", f"WRONG  {words}")
    yield from _labelled("forward", _GAP.join(forward(report)))
    if report.forced:
        yield from _labelled("fed", report.forced)
    if report.gradients:
        yield from _labelled("backward", _rows(report.gradients))
    if report.backward:
        yield from _labelled("", report.backward)
    if report.updated:
        yield from _labelled("updated", _rows(report.updated))
    for cause in report.causes:
        yield from _cause(cause)
    if not report.agrees and not report.causes:
        yield from _labelled("cause", "unknown: no mistake that was tried explains it")
    if report.knobs:
        yield from _labelled("knobs", knobs(report))
    yield from _labelled("blind", blind(report))
    if report.told:
        yield from _labelled("set", "; ".join(report.told))
    if report.overrides:
        told = ", ".join(f"{name}={value}" for name, value in report.overrides.items())
        yield from _labelled("override", told)


def _labelled(label: str, words: str) -> Iterator[str]:
    yield from textwrap.wrap(
        words,
        _WIDTH,
        initial_indent=f"{label:<{_LABEL}}",
        subsequent_indent=" " * _LABEL,
        break_long_words=False,
        break_on_hyphens=False,
    )


def headline(report: CheckReport) -> str:
    """Return the verdict and the worst number."""
    if not report.outputs:
        return "FAIL  nothing was compared"
    # What comes first is told first: a wrong output has wrong gradients.
    groups = (report.outputs, report.gradients, report.updated)
    wrong = next((g for g in groups if not all(row.passed for row in g)), report.outputs)
    worst = max(wrong, key=lambda row: row.used)
    kind = {1: "gradient of ", 2: "after training, "}.get(groups.index(wrong), "")
    name = f"{kind}{worst.name}"
    own = f"torch against its own float64: {worst.reference_error:.1e}"
    if worst.words:
        return f"FAIL  {name}: {worst.words}"
    if not worst.passed:
        return f"FAIL  {name} off by {worst.error:.1e} ({own})"
    if report.wrong_weights:
        return (
            f"FAIL  weights of the port that are not the reference's: {len(report.wrong_weights)}"
        )
    if report.blind:
        return f"FAIL  {name} agrees, but the check can't see {len(report.blind)} weights"
    return f"PASS  {name} within {worst.error:.1e} ({own}, limit {worst.limit:.1e})"


def weights(report: CheckReport) -> str:
    """Return how many tensors have a place, and one of them; `report.plan` prints all."""
    plan = report.plan
    if plan is None:
        return "not compared"
    placed = {placement.source.name for placement in plan.placements}
    known = len(plan.tensors) - len(plan.left_out)
    head = f"{len(placed)} of {known} torch tensors placed"
    if plan.left_out:
        told = (f"{n.rpartition('.')[2]}: {reason}" for n, reason in plan.left_out.items())
        head += f", {len(plan.left_out)} not ({', '.join(dict.fromkeys(told))})"
    turned = [p for p in plan.placements if p.how.startswith("transposed")]
    shown = next(iter([*turned, *plan.placements]), None)
    rest = " ..." if len(placed) > 1 else ""
    return f"{head}{_GAP}{shown}{rest}" if shown is not None else head


def forward(report: CheckReport) -> list[str]:
    """Return the modules in the order of their calls, with an arrow at the first that differs."""
    if not report.statuses:
        is_right = all(row.passed for row in report.outputs)
        return ["agrees" if is_right else _rows(report.outputs)]
    groups = _modules(report.statuses)
    here = next((k for k, (_, g) in enumerate(groups) if _has(g, "here")), len(groups))
    first, last = max(here - _NEAR, 0), here + _NEAR + 1
    told = [_module(report, *group) for group in groups[first:last]]
    before = [f"{first} before agree"] if first else []
    after = [f"{len(groups) - last} more after"] if len(groups) > last else []
    return [*before, *told, *after]


def _has(group: Sequence[Status], state: str) -> bool:
    return any(status.state == state for status in group)


def _module(report: CheckReport, module: str, group: list[Status]) -> str:
    name = module or "(model)"
    here = next((status for status in group if status.state == "here"), None)
    if here is not None:
        line = report.lines.get(here.step.key, "")
        step = "" if len(group) == 1 and module else f" {here.step.name}"
        at = f" ({line})" if line else ""
        return f"{name}{step} <- HERE: its input agrees, its output does not{at}"
    if _has(group, "off"):
        return f"{name} off {max(s.error for s in group if s.state == 'off'):.1e}"
    return f"{name} ok {max((s.error for s in group if s.state == 'ok'), default=0.0):.1e}"


def _modules(statuses: tuple[Status, ...]) -> list[tuple[str, list[Status]]]:
    """Return runs of steps in one module, without those that no input goes into."""
    groups: list[tuple[str, list[Status]]] = []
    for status in statuses:
        if status.state == "constant":
            continue
        if groups and groups[-1][0] == status.step.module:
            groups[-1][1].append(status)
        else:
            groups.append((status.step.module, [status]))
    return groups


def _rows(rows: tuple[Compared, ...]) -> str:
    wrong = [row for row in rows if not row.passed]
    if not wrong:
        return f"{len(rows)} of {len(rows)} agree"
    shown = ", ".join(f"{r.name} {r.words or f'off by {r.error:.1e}'}" for r in wrong[:_SHOWN])
    more = f", {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return f"{len(rows) - len(wrong)} of {len(rows)} agree; {shown}{more}"


def _cause(cause: Cause) -> Iterator[str]:
    after = "" if cause.error is None else f"; once mended the error is {cause.error:.1e}"
    where = " (everywhere)" if cause.everywhere else ""
    yield from _labelled("cause", f"{cause.tensor}{where}: {cause.cause}{after}")
    line = f"{cause.line}: " if cause.line else ""
    yield from _labelled("fix", f"{line}{cause.fix}{_GAP}[{cause.code}]")


def knobs(report: CheckReport) -> str:
    """Return which switch alone explains the difference, or that none does."""
    good = [name for name, error in report.knobs.items() if error <= 1]
    if good:
        return f"{' or '.join(good)}: that alone explains it"
    other = [name for name, error in report.knobs.items() if math.isnan(error)]
    rest = f"; can't be run with {' or '.join(other)}" if other else ""
    tried = ", ".join(name for name in report.knobs if name not in other)
    return f"none alone explains it ({tried}){rest}"


def blind(report: CheckReport) -> str:
    """Return the weights that the check can't see."""
    parts = []
    if report.blind:
        names = ", ".join(report.blind)
        parts.append(f"{names}: no gradient on these inputs. Give others, or allow_blind=")
    if report.allowed:
        parts.append(f"allowed: {', '.join(report.allowed)}")
    if report.unused:
        parts.append(f"{', '.join(report.unused)}: no gradient, whatever the inputs are")
    return "; ".join(parts) or "none: every parameter has a gradient on these inputs"
