"""The noise floor: how far a side is from itself; limits below it are refused."""

import datetime
import itertools

import numpy as np
import pytest

from parity.known import Known
from parity.runner import Setting, run


def noisy(fakes, size):
    """Return what gives other values at each call."""
    calls = itertools.count()
    return lambda **_: (fakes.ROUNDED + np.float32(size) * (next(calls) % 2)).astype(np.float32)


def row(fakes, ours, theirs, *, alone=False, **options):
    case = fakes.case("x/y", ours, theirs, **options)
    (found,) = run([case], Setting(alone=alone))
    return found


@pytest.mark.parametrize("side", ["the port", "torch"])
def test_the_same_bits_can_not_be_promised_of_what_differs_from_run_to_run(fakes, side):
    sides = [noisy(fakes, 2**-22), fakes.ROUNDED]
    found = row(fakes, *(sides if side == "the port" else sides[::-1]))
    assert not found.passed
    assert found.verdict == f"the same bits are promised, and {side} differs from itself"
    assert found.notes[-1].startswith(f"noise floor: {side} is 2.4e-07 from itself")


def test_a_limit_below_the_floor_is_refused(fakes):
    found = row(fakes, noisy(fakes, 1e-3), fakes.ROUNDED, same_bits=False)
    assert not found.passed
    assert (
        found.verdict == f"the limit {found.limit:.2g} is below the noise floor 0.001 of the port"
    )


def test_a_floor_below_the_limit_is_told_and_passes(fakes):
    found = row(fakes, noisy(fakes, 2**-24), fakes.ROUNDED, same_bits=False)
    assert found.passed
    assert "noise floor" in found.notes[-1]


def test_what_repeats_itself_has_no_floor(fakes):
    assert row(fakes, fakes.ROUNDED, fakes.ROUNDED).notes == ()


def test_a_zero_that_changes_its_sign_differs_from_itself(fakes):
    zeros = itertools.cycle([np.float32(0), np.float32(-0.0)])

    def side():
        values = fakes.ROUNDED.copy()
        values[0, 0] = next(zeros)
        return values

    exact = fakes.EXACT.copy()
    exact[0, 0] = 0
    found = row(fakes, side, side, exact=exact)
    assert (found.passed, found.notes[-1]) == (False, "noise floor: the port is 0 from itself")


def test_a_known_difference_has_its_noise_floor_too(fakes):
    """No list makes a comparison good that says nothing."""
    entry = Known("x/y", "rows", "reference", 1.0, "reason", datetime.date(2026, 11, 30))
    case = fakes.case("x/y", fakes.ROUNDED, noisy(fakes, 1e-2), same_bits=False)
    off = fakes.case("x/y", fakes.ROUNDED, fakes.ROUNDED + np.float32(1e-2), same_bits=False)
    setting = Setting(known=(entry,))
    (accepted,), (found,) = list(run([off], setting)), list(run([case], setting))
    assert accepted.passed
    assert not found.passed
    same = np.full((3, 4), 2.0)
    vacant = fakes.case("x/y", same.astype(np.float32), same.astype(np.float32) + 0.5, same)
    (found,) = run([vacant], setting)
    assert (found.passed, found.verdict) == (False, "compares nothing: every element is 2")


def by_batch(x):
    """Round otherwise where there is one example, as a kernel chosen by size may."""
    return (2 * x * (1 + (len(x) == 1) * 1e-3)).astype(np.float32)


@pytest.mark.parametrize(("alone", "passed"), [(False, True), (True, False)])
@pytest.mark.parametrize("batch", [("x", "rows"), ()])
def test_one_example_alone_is_run_where_that_is_asked_for(fakes, alone, passed, batch):
    x = np.arange(1.0, 13.0).reshape(3, 4)
    found = row(fakes, by_batch, by_batch, exact=2 * x, inputs={"x": x}, batch=batch, alone=alone)
    assert found.passed is (passed or not batch)


def test_the_command_asks_for_it(fakes, command):
    x = np.arange(1.0, 13.0).reshape(3, 4)
    case = fakes.case("x/y", by_batch, by_batch, 2 * x, inputs={"x": x}, batch=("x", "rows"))
    assert command([case])[0] == 0
    code, out, _ = command([case], "--noise")
    assert code == 1
    assert "the same bits are promised, and the port differs from itself" in out


@pytest.mark.slow
def test_the_cases_of_the_functions_keep_their_promises_alone_too(python):
    code = "import sys; from parity.cli import main; sys.exit(main(sys.argv[1:]))"
    done = python(code, "run", "--noise", "positions", "embedding", "inputs")
    assert done.returncode == 0, done.stdout
