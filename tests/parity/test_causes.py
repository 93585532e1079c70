"""Known mistakes are named when they are made, and only then."""

import numpy as np
import pytest

from parity.causes import likely_cause
from parity.exact import sinusoid
from parity.formats import round_to

TABLE = sinusoid(np.arange(20), 16)
HALVES = sinusoid(np.arange(20), 16, layout="halves")
NOISE = np.random.default_rng(3).normal(size=(20, 16))
PADDED = np.where(np.arange(20)[:, None] == 5, 0.0, NOISE)


def cause(actual, exact=TABLE, dtype="float32"):
    return likely_cause(round_to(actual, dtype), exact)


def one_row(values, row, by):
    changed = values.copy()
    changed[row] += by
    return changed


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize(
    ("actual", "exact", "text"),
    [
        (TABLE * 0, TABLE, "every value is zero"),
        (-TABLE, TABLE, "the sign is flipped"),
        (HALVES, TABLE, "columns in halves, where they should be interleaved"),
        (TABLE, HALVES, "columns interleaved, where they should be in halves"),
        (sinusoid(np.arange(20), 16, cos_first=True), TABLE, "neighbouring columns swapped"),
        (
            sinusoid(np.arange(20), 16, cos_first=True, layout="halves"),
            HALVES,
            "the halves of the columns swapped",
        ),
        (sinusoid(np.arange(1, 21), 16), TABLE, "along axis 0: each holds the value of the next"),
        (sinusoid(np.arange(-1, 19), 16), TABLE, "axis 0: each holds the value of the one before"),
        (NOISE * 4, NOISE, "every value is 4 times the exact one = sqrt(16)"),
        (NOISE / 4, NOISE, "every value is 0.25 times the exact one = 1 / sqrt(16)"),
        (NOISE * 0.9, NOISE, "= 1 - 0.1: kept values not divided by 1 - rate"),
        (NOISE / 0.9, NOISE, "= 1 / (1 - 0.1): rescaled twice"),
        (NOISE * 7, NOISE, "every value is 7 times the exact one"),
        (one_row(NOISE, 7, 1.0), NOISE, "only row [7] is off"),
        (one_row(PADDED, 5, 1.0), PADDED, "only row [5] is off; it should be zero, as a padding"),
    ],
)
def test_a_known_mistake_is_named(actual, exact, text, dtype):
    assert text in cause(actual, exact, dtype)


def test_a_rounding_on_the_way_is_named():
    rough = round_to(TABLE, "bfloat16").astype(np.float64)
    assert cause(rough) == "rounded to bfloat16 on the way"
    half = round_to(TABLE, "float16").astype(np.float64)
    assert cause(half) == "rounded to float16 on the way"
    assert cause(rough, dtype="float16") == "rounded to bfloat16 on the way"


def test_nan_is_counted():
    values = NOISE.copy()
    values[0, :3] = np.nan
    assert cause(values, NOISE) == "3 of 320 values are NaN"


def test_a_shift_inside_a_batch_is_found_on_its_axis():
    batch = np.stack([NOISE, NOISE[::-1]])
    assert "along axis 1" in cause(np.roll(batch, 1, axis=1), batch)


@pytest.mark.parametrize("factor", [0.5, 1.000001, 3.0])
def test_a_factor_that_could_be_anything_gets_no_name(factor):
    assert " = " not in cause(NOISE * factor, NOISE)


@pytest.mark.parametrize(
    "actual",
    [
        NOISE,  # nothing wrong
        NOISE * (1 + 2.0**-23),  # an ulp is no mistake to be explained
        NOISE + np.random.default_rng(4).normal(size=(20, 16)),
        sinusoid(np.arange(20), 16, base=1_000.0),
    ],
)
def test_what_is_no_known_mistake_gets_no_name(actual):
    assert cause(actual, NOISE) == ""


@pytest.mark.parametrize(
    ("actual", "exact"),
    [
        (np.zeros((0, 3), np.float32), np.zeros((0, 3))),
        (np.array(1.0, np.float32), np.array(2.0)),
        (np.arange(6), np.arange(6) + 1),
        (np.zeros(4, np.float32), np.zeros(5)),
    ],
)
def test_what_has_too_little_to_go_by_gets_no_name(actual, exact):
    assert likely_cause(actual, exact) == ""


@pytest.mark.parametrize("rest", [np.nan, 1.0, np.nextafter(np.float32(1), np.float32(2))])
def test_nan_on_both_sides_gets_no_name(rest):
    exact = np.where(np.arange(4) == 0, np.nan, np.float64(np.round(rest)))
    actual = np.array([np.nan, rest, rest, rest], np.float32)
    assert likely_cause(actual, exact) == ""
