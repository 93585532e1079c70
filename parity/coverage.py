"""What a run has covered, and the exit code that says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from parity.exit_codes import DIFFERENCE, NOTHING_COMPARED, PASSED, TROUBLE
from parity.rows import RAISED, VACUOUS, Row, Skip


@dataclass
class Coverage:
    """Counts of a run, while it goes on.

    Attributes:
      cases: that were run or skipped.
      required: what ``--require`` names and is not there, with the reason.
      compared: tensors whose elements were compared, or that could not be and so fail.
      passed: those that passed.
      failed: those that did not.
      vacuous: tensors of which a comparison says nothing; see `parity.vacuous`.
      raised: cases that raised an exception.
      skipped: cases that were not run, by reason.
    """

    required: dict[str, str] = field(default_factory=dict)
    cases: int = 0
    compared: int = 0
    passed: int = 0
    failed: int = 0
    vacuous: int = 0
    raised: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    _last: str = ""

    def add(self, record: Row | Skip) -> None:
        """Count one record; those of one case come one after another."""
        self.cases += record.case != self._last
        self._last = record.case
        if isinstance(record, Skip):
            why = f"{record.missing}: {record.reason}"
            self.skipped[why] = self.skipped.get(why, 0) + 1
        elif record.verdict == RAISED:
            self.raised += 1
        elif record.verdict.startswith(VACUOUS):
            self.vacuous += 1
        else:
            self.compared += 1
            self.passed += record.passed
            self.failed += not record.passed

    @property
    def exit_code(self) -> int:
        """Return 2 if anything went wrong that is no difference, then 1, 3 or 0.

        3 says that nothing was compared, in the whole run or of one of its tensors.

        1 says that there is a difference and nothing else: a run in which a case raised, or which
        lacks what it requires, is 2 even if it found one.
        """
        if self.raised or self.required:
            return TROUBLE
        if self.failed:
            return DIFFERENCE
        return PASSED if self.compared and not self.vacuous else NOTHING_COMPARED


def sentences(coverage: Coverage) -> Sequence[str]:
    """Return the coverage in words, a line each."""
    counts = [
        f"{coverage.compared} tensor{'' if coverage.compared == 1 else 's'} compared: "
        f"{coverage.passed} passed, {coverage.failed} failed",
        *([f"{coverage.vacuous} not worth comparing"] if coverage.vacuous else []),
        *([f"{_share(coverage.raised, coverage.cases)} raised"] if coverage.raised else []),
    ]
    skips = [
        f"NOT RUN: {_share(count, coverage.cases)} ({reason})"
        for reason, count in coverage.skipped.items()
    ]
    required = [
        f"required, and not there: {name} ({why})" for name, why in coverage.required.items()
    ]
    nothing = [] if coverage.compared or coverage.raised else ["nothing was compared"]
    return [", ".join(counts), *skips, *required, *nothing]


def _share(count: int, cases: int) -> str:
    return "every case" if count == cases else f"{count} of {cases} cases"
