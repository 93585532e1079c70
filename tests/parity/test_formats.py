"""Spacing, rounding and bits of the floating formats, against NumPy's and ml_dtypes' own."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.formats import bits, differing_bits, dtype_of, fits_float32, round_to, ulp, widen

FLOATS = ("bfloat16", "float16", "float32", "float64")


def every_16_bit_value(dtype):
    return np.arange(2**16, dtype=np.uint16).view(dtype)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_ulp_is_the_distance_to_the_next_value_away_from_zero(dtype):
    values = every_16_bit_value(dtype)
    wide = widen(values)
    values = values[np.abs(wide) < float(ml_dtypes.finfo(dtype).max)]
    following = (values.view(np.uint16) + 1).astype(np.uint16).view(dtype).astype(float)
    spacing = np.abs(following - values.astype(float))
    np.testing.assert_array_equal(ulp(values.astype(float), values.dtype), spacing)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ulp_is_numpy_s_spacing(dtype):
    values = np.array([1e-45, 1e-310, 1e-38, 0.1, 1.0, 1.5, 3e38], dtype)
    np.testing.assert_array_equal(ulp(values.astype(float), dtype), np.abs(np.spacing(values)))


def test_ulp_of_zero_and_of_what_is_not_finite_is_the_smallest_subnormal():
    values = np.array([0.0, -0.0, np.inf, np.nan])
    np.testing.assert_array_equal(ulp(values, "float16"), [2.0**-24] * 4)


@given(st.integers(0, 2**16 - 1), st.sampled_from(["bfloat16", "float16"]))
def test_a_value_of_a_format_rounds_to_itself(pattern, name):
    value = np.array([pattern], np.uint16).view(dtype_of(name))
    rounded = round_to(widen(value), name)
    assert rounded.dtype == value.dtype
    assert not differing_bits(rounded, value).any()


@pytest.mark.parametrize(
    ("value", "dtype", "rounded"),
    [
        (1 + 2.0**-8 + 2.0**-40, "bfloat16", 1 + 2.0**-7),  # through float32 it would be 1
        (1 + 2.0**-8, "bfloat16", 1.0),  # a tie goes to the even one
        (1 + 3 * 2.0**-8, "bfloat16", 1 + 2.0**-6),
        (2.0**-25 * 1.5, "float16", 2.0**-24),  # gradual underflow
        (2.0**-25, "float16", 0.0),
        (65_520.0, "float16", np.inf),
        (65_519.0, "float16", 65_504.0),
        (-1e300, "float32", -np.inf),
    ],
)
def test_rounding_happens_once_and_to_nearest_even(value, dtype, rounded):
    assert float(round_to(np.array([value]), dtype)[0]) == rounded


@given(st.floats(allow_nan=False))
def test_rounding_to_float32_is_the_cast(value):
    with np.errstate(over="ignore"):
        assert round_to(np.array([value]), "float32")[0] == np.float32(value)


def test_nan_stays_nan_under_rounding():
    assert all(np.isnan(round_to(np.array([np.nan]), name).astype(float)) for name in FLOATS)


def test_bits_tell_minus_zero_from_zero_and_no_nan_from_another():
    ours = np.array([0.0, 1.0, np.nan], np.float32)
    theirs = np.array([-0.0, 1.0, -np.nan], np.float32)
    assert bits(ours)[2] != bits(theirs)[2]
    assert differing_bits(ours, theirs).tolist() == [True, False, False]


def test_bits_of_a_scalar_and_of_truth_values():
    assert bits(np.array(1.0, np.float32)).shape == ()
    assert bits(np.array([True, False])).tolist() == [1, 0]


def test_what_was_computed_in_float32_is_recognised():
    assert fits_float32(np.array([0.1, np.nan, np.inf], np.float32).astype(float))
    assert not fits_float32(np.array([0.1]))
