"""Distances: absolute, in ulp, and where."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from parity.distance import measure, root_mean_square

finite = st.floats(-(2.0**100), 2.0**100, width=32)
vectors = npst.arrays(np.float32, st.integers(1, 20), elements=finite)


@given(vectors)
def test_an_array_is_at_no_distance_from_itself(values):
    distance = measure(values, values.astype(np.float64))
    assert (distance.max_abs, distance.ulp) == (0.0, 0.0)


@given(vectors, st.data())
def test_one_changed_element_is_found_with_its_error(values, data):
    place = data.draw(st.integers(0, values.size - 1))
    expected = values.astype(np.float64)
    expected[place] += 1.0 + abs(expected[place])
    distance = measure(values, expected)
    assert distance.place == distance.ulp_place == (place,)
    assert distance.max_abs == abs(float(values[place]) - expected[place])


@given(vectors, vectors)
def test_distance_does_not_depend_on_the_sign(one, other):
    size = min(one.size, other.size)
    one, other = one[:size], other[:size].astype(np.float64)
    assert measure(one, other).max_abs == measure(-one, -other).max_abs


@given(vectors, st.floats(1.0, 100.0))
def test_a_greater_error_is_no_smaller_distance(values, times):
    expected = values.astype(np.float64)
    step = np.abs(expected) * 2.0**-20 + 1e-20
    near = measure((expected + step).astype(np.float64), expected)
    far = measure((expected + times * step).astype(np.float64), expected)
    assert far.max_abs >= near.max_abs
    assert far.ulp >= near.ulp


def test_ulp_of_a_large_element_is_its_own():
    expected = np.array([1.0, 1.0, 1.0, 1024.0])
    actual = expected.astype(np.float32)
    actual[3] = np.nextafter(np.float32(1024), np.float32(2048))
    assert measure(actual, expected).ulp == 1.0


def test_ulp_next_to_a_zero_is_that_of_the_scale():
    """One part in 2**23 of the others, though millions of float32 lie in between."""
    expected = np.array([1.0, -1.0, 1e-9, 1.0])
    scale = math.sqrt(3 / 4)
    actual = expected.astype(np.float32)
    actual[2] += np.float32(2.0**-23)
    assert measure(actual, expected).ulp == pytest.approx(2.0**-23 / np.spacing(np.float32(scale)))


def test_a_signed_sum_would_cancel():
    assert measure(np.array([1.0, -1.0]), np.array([0.0, 0.0])).max_abs == 1.0


@pytest.mark.parametrize(
    ("actual", "expected", "equal_nan", "error"),
    [
        (np.nan, 1.0, True, np.inf),
        (1.0, np.nan, True, np.inf),
        (np.nan, np.nan, True, 0.0),
        (np.nan, np.nan, False, np.inf),
        (np.inf, np.inf, False, 0.0),
        (np.inf, -np.inf, True, np.inf),
        (np.inf, 1.0, True, np.inf),
        (1.0, np.inf, True, np.inf),
    ],
)
def test_nan_and_inf_are_equal_to_themselves_or_infinitely_far(actual, expected, equal_nan, error):
    distance = measure(np.array([actual]), np.array([expected]), equal_nan=equal_nan)
    assert distance.max_abs == distance.ulp == error
    assert distance.finite == (error == 0)


def test_integers_beyond_float64_are_told_apart():
    one, other = np.array([2**62]), np.array([2**62 + 1])
    assert measure(one, other).max_abs == 1.0


def test_integers_of_both_signs_do_not_overflow():
    distance = measure(np.array([-(2**63)]), np.array([2**63 - 1]))
    assert distance.max_abs == 2.0**64


def test_truth_values_that_differ_are_one_apart():
    distance = measure(np.array([True, False]), np.array([True, True]))
    assert (distance.max_abs, distance.place, distance.floating) == (1.0, (1,), False)


def test_bfloat16_is_measured_in_its_own_ulp():
    actual = np.array([1.0 + 2.0**-7], ml_dtypes.bfloat16)
    assert measure(actual, np.array([1.0])).ulp == 1.0


def test_nothing_is_broadcast():
    with pytest.raises(ValueError, match=r"`actual` has shape \(1, 4\), `expected` \(3, 4\)"):
        measure(np.ones((1, 4)), np.ones((3, 4)))


def test_empty_arrays_and_scalars_have_a_distance():
    empty = measure(np.zeros((0, 3)), np.zeros((0, 3)))
    assert (empty.max_abs, empty.ulp, empty.place) == (0.0, 0.0, ())
    assert measure(np.array(2.0), np.array(1.0)).place == ()


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_root_mean_square_neither_overflows_nor_vanishes(size):
    values = np.array([3.0, 4.0, np.inf, np.nan]) * size
    assert root_mean_square(values) == pytest.approx(math.sqrt(12.5) * size)
