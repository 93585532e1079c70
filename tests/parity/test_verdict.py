"""The rule: ratio, one ulp, ceiling, bits; and the words for it."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from parity.distance import measure
from parity.verdict import BITS_DIFFER, BOTH_OFF, NOISE_FLOOR, SAME_BITS, judge, k

EXACT = np.linspace(0.75, 1.25, 2_000)  # ulp of float32: 2**-23 from 1 on, half of it below
UNIT = 2.0**-23


def off_by(units, places=(1_500,), size=2_000):
    """How far values are that lie some units off in a few places."""
    actual = EXACT[:size].copy()
    actual[[place % size for place in places]] += units * UNIT
    distance = measure(actual, EXACT[:size])
    # Measured in float64, judged as float32.
    return type(distance)(distance.errors, np.full(size, UNIT), True)


def verdict(port, reference, *, ceiling=1.0, **options):
    defaults = {"equal_bits": False, "same_bits": False}
    return judge(port, reference, ceiling=ceiling, **(defaults | options))


def test_few_elements_get_a_larger_ratio():
    assert (k(999), k(1_000)) == (3, 2)


@pytest.mark.parametrize(
    ("port", "reference", "words", "passed", "side"),
    [
        (0.5, 0.5, NOISE_FLOOR, True, ""),
        (1.0, 0.0, NOISE_FLOOR, True, ""),  # within one ulp
        (1.01, 0.0, "the port is off", False, "port"),
        (9.9, 5.0, NOISE_FLOOR, True, ""),  # within twice the reference's
        (10.1, 5.0, "the port is off", False, "port"),
        (5.0, 10.1, "torch is the side that is off", True, "reference"),  # only noisier
        (np.inf, 5.0, "the port is off", False, "port"),
        (np.nan, 0.0, "the port is off", False, "port"),
        (0.0, np.nan, "torch is the side that is off", False, "reference"),
        (np.nan, np.nan, BOTH_OFF, False, "both"),
    ],
)
def test_the_side_that_is_off_is_named(port, reference, words, passed, side):
    said = verdict(off_by(port), off_by(reference))
    assert (said.words, said.passed, said.side) == (words, passed, side)


def test_the_ratio_is_three_for_few_elements():
    ours, theirs = off_by(14.9, size=999), off_by(5.0, size=999)
    assert verdict(ours, theirs).passed
    assert not verdict(off_by(15.1, size=999), theirs).passed


def test_the_ceiling_catches_what_both_got_wrong_alike():
    both = off_by(20.0)
    assert verdict(both, both, equal_bits=True).words == SAME_BITS
    said = verdict(both, both, equal_bits=True, ceiling=19.0 * UNIT)
    assert (said.words, said.passed) == (BOTH_OFF, False)


def test_a_ceiling_below_one_ulp_binds():
    """Half an ulp is what correct rounding promises."""
    assert not verdict(off_by(0.6), off_by(0.0), ceiling=0.5 * UNIT).passed


def test_a_ceiling_may_be_one_number_an_element():
    ceiling = np.full(2_000, UNIT)
    assert verdict(off_by(0.5), off_by(0.0), ceiling=ceiling).passed
    ceiling[1_500] = 0.0
    said = verdict(off_by(0.5), off_by(0.0), ceiling=ceiling)
    assert (said.passed, said.side) == (False, "port")
    near = off_by(0.5)
    assert said.port.at(near, (1_500,)) == 0.0
    assert said.port.source_at(near, (1_500,)) == "ceiling"


@pytest.mark.parametrize(
    ("theirs", "ceiling", "size", "source"),
    [(0.0, 9.0, 1.0, "one ulp"), (2.0, 9.0, 4.0, "ratio"), (2.0, 3.0, 3.0, "ceiling")],
)
def test_a_limit_says_how_large_it_is_and_why(theirs, ceiling, size, source):
    near = off_by(0.5)
    limit = verdict(near, off_by(theirs), ceiling=ceiling * UNIT).port
    assert limit.at(near, (3,)) == pytest.approx(size * UNIT)
    assert limit.source_at(near, (3,)) == source


def test_an_error_within_the_deviation_of_the_roundings_is_not_held_against_a_side():
    near, exact = off_by(5.0), off_by(0.0)
    assert not verdict(near, exact).passed
    deviation = np.full(2_000, 5.0 * UNIT)
    assert verdict(near, exact, deviation=deviation).passed
    limit = verdict(near, exact, deviation=deviation).port
    assert limit.at(near, (3,)) == pytest.approx(5.0 * UNIT)
    assert limit.source_at(near, (3,)) == "deviation"
    deviation[1_500] = 0.0
    assert not verdict(near, exact, deviation=deviation).passed
    assert not verdict(near, exact, deviation=5.0 * UNIT, ceiling=4.0 * UNIT).passed
    assert verdict(exact, near, deviation=5.0 * UNIT).words != "torch is the side that is off"


def test_a_reference_above_its_ceiling_fails():
    said = verdict(off_by(0.5), off_by(20.0), ceiling=19.0 * UNIT)
    assert (said.words, said.passed) == ("torch is the side that is off", False)


def test_promised_bits_are_demanded():
    near = off_by(0.25)
    said = verdict(near, near, same_bits=True)
    assert (said.words, said.passed, said.side) == (BITS_DIFFER, False, "")
    assert verdict(near, near, same_bits=True, equal_bits=True).words == SAME_BITS


def test_a_few_large_values_do_not_hide_a_fault_in_the_small_ones():
    """The absolute ratio alone would allow 32 everywhere, being half an ulp of 4,096."""
    exact = np.ones(2_000)
    exact[0] = 4_096.0
    reference = exact.copy()
    reference[0] += 16.0
    port = reference.copy()
    port[1_000] += 10.0
    units = np.where(exact > 1, 32.0, 1.0)
    ours, theirs = (
        type(off_by(0))(np.abs(values - exact), units, True) for values in (port, reference)
    )
    said = judge(ours, theirs, ceiling=100.0, equal_bits=False, same_bits=False)
    assert (said.words, said.passed) == ("the port is off", False)


def test_integers_have_no_noise():
    exact = np.arange(2_000)
    off = exact.copy()
    off[7] += 1
    ours, theirs = measure(off, exact), measure(exact, exact)
    said = judge(ours, theirs, ceiling=5.0, equal_bits=False, same_bits=False)
    assert (said.words, said.passed, said.port.source) == ("the port is off", False, "equality")
    said = judge(theirs, ours, ceiling=5.0, equal_bits=False, same_bits=False)
    assert (said.words, said.passed) == ("torch is the side that is off", False)


units = st.floats(0, 100)


@given(units, units, units, st.floats(0, 200), st.integers(0, 1_999), st.booleans())
def test_a_greater_error_of_the_port_never_turns_a_fail_into_a_pass(
    near, more, theirs, ceiling, place, same_bits
):
    reference = off_by(theirs, places=(3,))
    options = {"ceiling": ceiling * UNIT, "same_bits": same_bits}
    small = verdict(off_by(near, places=(1_500, place)), reference, **options)
    large = verdict(off_by(near + more, places=(1_500, place)), reference, **options)
    assert small.passed or not large.passed


@given(units, units, units, st.integers(4, 1_999))
def test_a_further_wrong_element_never_turns_a_fail_into_a_pass(ours, theirs, more, place):
    reference = off_by(theirs, places=(3,))
    one = off_by(ours, places=(1_500,))
    errors = one.errors.copy()
    errors[place] = max(errors[place], more * UNIT)
    two = type(one)(errors, one.units, True)
    assert verdict(one, reference).passed or not verdict(two, reference).passed


@given(units, st.floats(1e-3, 200))
def test_every_limit_catches_a_shift_of_twice_itself(theirs, ceiling):
    reference = off_by(theirs)
    none = off_by(0.0)
    limit = verdict(none, reference, ceiling=ceiling * UNIT).port
    size = limit.at(none, (1_500,)) / UNIT
    assume(size > 0)
    assert not verdict(off_by(2 * size), reference, ceiling=ceiling * UNIT).passed


@given(units, units, units)
def test_the_rule_is_the_same_for_both_sides(ours, theirs, ceiling):
    options = {"ceiling": ceiling * UNIT, "names": ("one", "other")}
    side = verdict(off_by(ours), off_by(theirs), **options).side
    swapped = verdict(off_by(theirs), off_by(ours), **options).side
    assert swapped == {"port": "reference", "reference": "port"}.get(side, side)
