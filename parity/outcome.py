"""What a comparison gives back: a report, or an error that carries one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from parity.report.failure import explain
from parity.rows import Row

if TYPE_CHECKING:
    from parity.check_report import CheckReport


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """The outcome of a comparison, a row a leaf.

    Attributes:
      rows: one for each path that either side has.
    """

    rows: tuple[Row, ...]

    @property
    def passed(self) -> bool:
        """Whether something was compared, and all of it agrees."""
        return bool(self.rows) and all(row.passed for row in self.rows)

    @property
    def failures(self) -> tuple[Row, ...]:
        """The rows that did not pass."""
        return tuple(row for row in self.rows if not row.passed)

    @property
    def max_abs(self) -> float:
        """The greatest absolute error of all rows."""
        return max((row.port_error or 0.0 for row in self.rows), default=0.0)

    @property
    def ulp(self) -> float:
        """The greatest error in ulp of all rows that could be compared."""
        return max((row.ulp or 0.0 for row in self.rows), default=0.0)

    def __bool__(self) -> bool:
        """Refuse to be a truth value: ``assert compare(...)`` would always hold.

        Raises:
          TypeError: always.
        """
        raise TypeError("A report has no truth value. Ask `report.passed`.")

    def __str__(self) -> str:
        """Return the verdict, and what there is to say about each row that did not pass."""
        elements = sum(row.elements for row in self.rows)
        if self.passed:
            return f"PASS  {len(self.rows)} tensors, {elements:,} elements compared"
        if not self.rows:
            return "FAIL  nothing was compared: both sides are empty"
        head = f"FAIL  {len(self.failures)} of {len(self.rows)} tensors"
        return "\n".join([head, *(explain(row) for row in self.failures)])

    __repr__ = __str__


class ParityError(AssertionError):
    """Two sides differ. ``report`` says where, by how much, and which side is off."""

    def __init__(self, report: Report | CheckReport) -> None:
        """Keep the report; its text is the message."""
        super().__init__(report)
        self.report = report
