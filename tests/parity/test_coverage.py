"""Counting, and the exit code (decided once: any exception is 2, a difference alone is 1)."""

import pytest

from parity.coverage import Coverage, sentences
from parity.rows import RAISED, VACUOUS, Row, Skip


def row(passed=True, verdict="same bits", elements=3, case="a/b"):
    return Row(
        case=case,
        tensor="x",
        dtype="float32",
        device="cpu",
        verdict=verdict,
        passed=passed,
        elements=elements,
    )


GOOD, BAD, RAISES = row(), row(False, "the port is off"), row(False, RAISED, 0)
VACANT = row(False, f"{VACUOUS}: there are no elements", 0)
MISSING = row(False, "missing on the side of torch", 0)
SKIP = Skip("a/b", "torch", "no torch")


def covered(*records, required=None):
    coverage = Coverage(required=required or {})
    for record in records:
        coverage.add(record)
    return coverage


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ([GOOD], 0),
        ([GOOD, SKIP], 0),
        ([GOOD, VACANT], 3),
        ([BAD, VACANT], 1),
        ([GOOD, BAD], 1),
        ([MISSING], 1),
        ([GOOD, RAISES], 2),
        ([BAD, RAISES], 2),
        ([], 3),
        ([SKIP], 3),
        ([VACANT], 3),
        ([SKIP, VACANT], 3),
    ],
)
def test_the_exit_code_says_how_a_run_ended(records, code):
    assert covered(*records).exit_code == code


@pytest.mark.parametrize("records", [[GOOD], [BAD], [SKIP], []])
def test_what_is_required_and_not_there_is_2(records):
    coverage = covered(*records, required={"torch": "no torch"})
    assert coverage.exit_code == 2
    assert "required, and not there: torch (no torch)" in sentences(coverage)


def test_everything_is_counted_and_said():
    skips = (Skip(name, "torch", "no torch") for name in ("e/f", "g/h"))
    coverage = covered(GOOD, BAD, VACANT, row(False, RAISED, 0, "c/d"), *skips)
    assert sentences(coverage) == [
        "2 tensors compared: 1 passed, 1 failed, 1 not worth comparing, 1 of 4 cases raised",
        "NOT RUN: 2 of 4 cases (torch: no torch)",
    ]


def test_a_run_that_compared_nothing_says_so():
    assert sentences(covered(SKIP))[-1] == "nothing was compared"
    assert "NOT RUN: every case (torch: no torch)" in sentences(covered(SKIP))
