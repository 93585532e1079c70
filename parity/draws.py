"""How much dropout draws on either side, where what it draws can't be the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parity.cause import Cause
from parity.check_report import CheckReport, Compared

_TOLD = "dropout keeps everything on both sides, and its draws are compared by their number"


def with_draws(
    report: CheckReport, theirs: Sequence[tuple[str, int]], ours: Sequence[int]
) -> CheckReport:
    """Add to a report whether both sides draw for as many values, each time.

    Args:
      report: of a check in training mode.
      theirs: where the reference has dropout, and for how many values.
      ours: for how many the port draws, in order.
    """
    told = replace(report, told=(*report.told, _TOLD))
    if len(ours) != len(theirs):
        words = f"the port draws {len(ours)} times, torch {len(theirs)} times"
        return _failed(
            told, "dropout-missing", theirs[0][0], words, "nn.Dropout where torch has it"
        )
    for (name, size), mine in zip(theirs, ours, strict=True):
        if mine != size:
            words = f"{mine} values are kept or dropped on their own, in torch {size}"
            fix = "broadcast_dropout=False, or nn.Dropout without broadcast_dims"
            return _failed(told, "dropout-broadcast", name, words, fix)
    return told


def _failed(report: CheckReport, code: str, name: str, words: str, fix: str) -> CheckReport:
    row = Compared(f"{name} dropout", float("inf"), 0.0, 0.0, words)
    causes = (*report.causes, Cause(code, name, words, fix))
    return replace(report, outputs=(*report.outputs, row), causes=causes)
