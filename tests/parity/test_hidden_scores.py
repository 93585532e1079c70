"""Scores that a mask hides (parity.hidden_scores)."""

import ml_dtypes
import numpy as np
import pytest

from parity.hidden_scores import hidden, level
from parity.locate import Values

SCORES = np.array([[3.0, -20.0, 0.5], [1.0, 2.0, -0.25]])
MASK = np.array([[False, False, True], [False, True, True]])
LOWEST = (-1e4, -1e9, float(np.finfo(np.float32).min), -np.inf)


@pytest.mark.parametrize("low", LOWEST)
def test_what_is_hidden_is_told_by_how_far_below_it_is(low):
    np.testing.assert_array_equal(hidden(np.where(MASK, low, SCORES)), MASK)
    np.testing.assert_array_equal(hidden(np.where(MASK, low + SCORES, SCORES)), MASK)


@pytest.mark.parametrize("low", LOWEST)
def test_scores_are_found_however_the_port_hides_the_others(low):
    ours = np.where(MASK, -1e30, SCORES)
    assert Values([ours]).holds(np.where(MASK, low, SCORES), 1e-6)[0] == 0
    other = np.where(MASK, low, SCORES + 1e-3)
    assert Values([ours]).holds(other, 1e-6) == (np.inf, -1)
    assert Values([ours]).nearest(other)[0] == pytest.approx(1e-3)


def test_two_masks_that_are_added_hide_by_twice_as_much():
    both = np.where(MASK, -1e4, SCORES) + np.where(MASK[:, :1] | [[False], [True]], -1e4, 0)
    np.testing.assert_array_equal(hidden(both), both < -9e3)
    np.testing.assert_array_equal(hidden(np.where(MASK & (SCORES > 0), -np.inf, both)), both < -9e3)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
def test_what_is_hidden_may_be_rounded_and_hidden_by_any_two_numbers(dtype):
    wide = (np.where(MASK, -1e4, 0.0) + SCORES).astype(dtype).astype(np.float64)
    np.testing.assert_array_equal(hidden(wide), MASK)
    two = np.array([0.0, 0.0, -1e4, float(np.finfo(np.float32).min)])
    np.testing.assert_array_equal(hidden(two), two < 0)
    wide = np.array([-1e6, 1e6, -2e7, float(np.finfo(np.float64).min)])
    assert hidden(wide).sum() in (0, 2)  # without a warning


def test_gradients_are_hidden_by_no_mask():
    ours, theirs = np.array([-2e4, 1.0, 2.0]), np.array([-1e4, 1.0, 2.0])
    assert Values([ours]).holds(theirs, 1e-6)[0] == 0
    assert Values([ours], masked=False).holds(theirs, 1e-6) == (np.inf, -1)
    assert Values([ours], masked=False).nearest(theirs) == (1e4, 0)


@pytest.mark.parametrize(
    "values",
    [
        np.array([-2e3, -500.0, 3.0]),  # low, and not far below the others
        np.array([-1e4, -1e4]),  # nothing is left that it could be below of
        np.array([1e9, -999.0]),
        np.array([-2e3, 5.0, 3.0]),  # an activation that stands out
        np.array([-6e3, -8.5e3, 5.0, 3.0]),  # several of them: no number hides both
        np.array([np.nan, 0.0]),
    ],
)
def test_what_is_merely_low_is_left_as_it_is(values):
    assert not hidden(values).any()
    np.testing.assert_array_equal(level(values), values)
