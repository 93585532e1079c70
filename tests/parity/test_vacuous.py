"""Comparisons that could hardly fail do fail, unless there is a reason for them."""

import numpy as np
import pytest

from parity.runner import Setting, run
from parity.vacuous import vacuous

ROWS = np.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    ("exact", "why"),
    [
        (np.zeros((0, 4)), "there are no elements"),
        (np.full((3, 4), np.nan), "every element is NaN"),
        (np.full(1, np.nan), "every element is NaN"),
        (np.zeros((3, 4)), "every element is 0"),
        (np.full((3, 4), 2.5), "every element is 2.5"),
        (np.ones(3, bool), "every element is 1"),
        (np.full(3, 7), "every element is 7"),
        (np.broadcast_to(ROWS[0], (3, 4)), "all 3 along axis 0 are the same"),
        (np.broadcast_to(ROWS[:, :1], (3, 4)), "all 4 along axis 1 are the same"),
        (np.broadcast_to(np.where(ROWS > 5, np.nan, ROWS), (2, 3, 4)), "all 2 along axis 0"),
        (np.where(ROWS > 5, np.nan, 3.0), ""),
        (ROWS, ""),
        (np.ones(1), ""),
        (np.array(3), ""),
        (np.array([[1.0, 2.0]]), ""),
    ],
)
def test_what_says_little_is_told_apart(exact, why):
    assert vacuous(exact).startswith(why)
    assert bool(vacuous(exact)) is bool(why)


def row(fakes, exact, **options):
    values = exact.astype(np.float32)
    (found,) = run([fakes.case("x/y", values, values, exact, **options)], Setting())
    return found


def test_it_fails_and_says_why(fakes):
    found = row(fakes, np.zeros((3, 4)))
    assert (found.passed, found.verdict) == (False, "compares nothing: every element is 0")


def test_a_reason_lets_it_pass_but_not_where_there_is_nothing(fakes):
    assert row(fakes, np.zeros((3, 4)), uniform="padding").passed
    assert not row(fakes, np.zeros((0, 4)), uniform="padding").passed


def test_a_mask_that_drops_everything_compares_nothing(fakes):
    dropped = np.zeros((3, 4), np.float32)
    (found,) = run([fakes.case("x/y", dropped, drops=("rows",))], Setting())
    assert found.verdict == "compares nothing: every element is 0"


def test_what_is_off_stays_off(fakes):
    wrong = np.ones((3, 4), np.float32)
    (found,) = run([fakes.case("x/y", wrong, wrong * 0, np.zeros((3, 4)))], Setting())
    assert found.verdict == "the port is off"


def test_a_run_of_nothing_worth_comparing_ends_with_3(fakes, command):
    vacant = fakes.case("x/y", np.zeros(3, np.float32), np.zeros(3, np.float32), np.zeros(3))
    code, out, _ = command([fakes.GOOD, vacant])
    assert code == 3
    assert "1 tensor compared: 1 passed, 0 failed, 1 not worth comparing" in out


@pytest.mark.parametrize("side", ["port", "reference"])
def test_where_the_port_dropped_the_others_are_zero_too(fakes, side):
    mask = np.arange(12).reshape(3, 4) % 3 > 0
    ours = np.where(mask, fakes.ROUNDED, np.float32(0))
    theirs = fakes.ROUNDED
    assert row_of(fakes, ours, theirs).verdict == "same bits"
    if side == "port":
        ours = ours * np.float32(2)
    else:
        theirs = theirs * np.float32(2)
    assert row_of(fakes, ours, theirs).side == side


def row_of(fakes, ours, theirs):
    (found,) = run([fakes.case("x/y", ours, theirs, drops=("rows",))], Setting())
    return found
