"""From both sides and an exact value to a row."""

import ml_dtypes
import numpy as np
import pytest

from parity.case import Tensor
from parity.formats import round_to
from parity.judging import compare_tensor
from parity.rows import Label
from parity.verdict import BITS_DIFFER, SAME_BITS

EXACT = np.random.default_rng(1).normal(size=(40, 3))
ROUNDED = EXACT.astype(np.float32)
LABEL = Label("concept/case", "rows", "cpu")


def row(port=ROUNDED, reference=ROUNDED, exact=EXACT, ceiling=1e-6, same_bits=True, **options):
    return compare_tensor(
        LABEL, port, reference, Tensor(exact, ceiling, "made for a test", same_bits, **options)
    )


def test_a_row_says_what_it_is_about_and_how_far_both_are_off():
    good = row()
    assert (good.case, good.tensor, good.device) == ("concept/case", "rows", "cpu")
    assert (good.verdict, good.passed, good.side, good.dtype) == (SAME_BITS, True, "", "float32")
    worst = np.abs(ROUNDED - EXACT)
    assert good.port_error == good.reference_error == worst.max()
    assert good.where == np.unravel_index(worst.argmax(), worst.shape)
    assert good.port_value == float(ROUNDED[good.where])
    assert good.exact_value == EXACT[good.where]
    assert 0 < good.over_limit <= 1
    assert (good.limit_source, good.reason) == ("ratio", "made for a test")


def test_the_place_is_where_the_limit_is_exceeded_most():
    wrong = ROUNDED.copy()
    wrong[3, 1] += 1
    bad = row(port=wrong)
    assert (bad.where, bad.beyond, bad.differing) == ((3, 1), 1, 1)
    assert (bad.verdict, bad.side) == ("the port is off", "port")
    assert bad.over_limit > 1
    assert bad.cause == "only row [3] is off"


def test_the_reference_is_named_with_its_place_and_cause():
    bad = row(reference=-ROUNDED)
    assert (bad.verdict, bad.side, bad.passed) == (
        "torch is the side that is off",
        "reference",
        False,
    )
    assert bad.cause == "the sign is flipped"
    assert bad.reference_value == -bad.port_value


def test_bits_that_differ_name_the_side_that_is_not_correctly_rounded():
    near = ROUNDED.copy()
    near[5, 0] = np.nextafter(near[5, 0], np.float32(9))
    bad = row(port=near)
    assert (bad.verdict, bad.passed, bad.side, bad.where) == (BITS_DIFFER, False, "port", (5, 0))
    assert bad.cause == (
        "torch is correctly rounded at all 1 places where they differ, the port is not"
    )
    assert row(reference=near).side == "reference"


def test_bits_that_differ_on_wrong_sides_name_nobody():
    one, other = ROUNDED.copy(), ROUNDED.copy()
    one[5, 0] = np.nextafter(one[5, 0], np.float32(9))
    other[6, 0] = np.nextafter(other[6, 0], np.float32(9))
    bad = row(port=one, reference=other)
    assert (bad.verdict, bad.side, bad.cause, bad.differing) == (BITS_DIFFER, "", "", 2)


def test_minus_zero_is_not_zero_where_bits_are_promised():
    ours, theirs = np.array([1, -0.0, 0], np.float32), np.array([1, 0.0, 0], np.float32)
    exact = theirs.astype(np.float64)
    bad = row(port=ours, reference=theirs, exact=exact)
    assert (bad.verdict, bad.differing, bad.where) == (BITS_DIFFER, 1, (1,))
    assert row(port=ours, reference=theirs, exact=exact, same_bits=False).passed


def test_nan_of_any_payload_is_the_same_where_the_exact_value_is_nan():
    exact = np.array([1.0, np.nan])
    one, other = (np.array([1.0, sign * np.nan], np.float32) for sign in (1, -1))
    assert row(port=one, reference=other, exact=exact).verdict == SAME_BITS


@pytest.mark.parametrize("pattern", [0x7F81, 0x7FC0, 0xFF81])
def test_nan_of_bfloat16_is_compared_without_a_warning(pattern):
    values = np.array([pattern, 0x3F80], np.uint16).view(ml_dtypes.bfloat16)
    assert row(port=values, reference=values, exact=np.array([np.nan, 1.0])).passed
    bad = row(port=values, reference=values, exact=np.array([1.0, 1.0]))
    assert (bad.verdict, bad.cause) == ("both are off", "1 of 2 values are NaN")


@pytest.mark.parametrize(
    ("port", "reference", "words", "side"),
    [
        (None, ROUNDED, "missing on the side of the port", "port"),
        (ROUNDED, None, "missing on the side of torch", "reference"),
        (ROUNDED[:1], ROUNDED, "shape [1, 3], torch has [40, 3]", "port"),
        (ROUNDED, ROUNDED[:1], "shape [40, 3], torch has [1, 3]", "reference"),
        (ROUNDED[:1], ROUNDED[:1], "shape [1, 3] on both sides, exact [40, 3]", "both"),
        (ROUNDED, EXACT, "dtype float32, torch has float64", ""),
    ],
)
def test_tensors_that_cannot_be_compared_fail_in_words(port, reference, words, side):
    bad = row(port=port, reference=reference)
    assert (bad.verdict, bad.passed, bad.side) == (words, False, side)
    assert bad.port_error == np.inf


def test_a_tensor_without_exact_value_fails():
    bad = compare_tensor(LABEL, ROUNDED, ROUNDED, None)
    assert (bad.verdict, bad.passed) == ("there is no exact value to compare it with", False)


def test_what_makes_a_comparison_less_than_it_looks_is_noted():
    empty = np.zeros((0, 3))
    nothing = row(*[empty.astype(np.float32)] * 2, empty)
    assert (nothing.passed, nothing.elements) == (True, 0)
    assert nothing.notes == ("empty: only shape and dtype were compared",)
    zero = np.zeros(3)
    assert row(*[zero.astype(np.float32)] * 2, zero).notes == ("zero everywhere on both sides",)


def test_a_float64_companion_that_was_computed_in_float32_is_flagged():
    note = "the reference in float64 was computed in float32"
    kind = {"exact_kind": "reference in float64"}
    assert note in row(exact=ROUNDED.astype(np.float64), **kind).notes
    assert note not in row(**kind).notes
    assert note not in row(exact=ROUNDED.astype(np.float64)).notes


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_correctly_rounded_values_keep_a_ceiling_of_half_an_ulp(dtype):
    rounded = round_to(EXACT, dtype)
    digits = {"float32": 24, "bfloat16": 8, "float16": 11, "float64": 53}[dtype]
    ceiling = np.abs(EXACT) * 2.0**-digits
    assert row(port=rounded, reference=rounded, ceiling=ceiling).verdict == SAME_BITS


def test_integers_that_differ_say_so():
    exact = np.arange(4)
    bad = row(port=exact + 1, reference=exact, exact=exact)
    assert (bad.verdict, bad.limit_source, bad.port_error) == ("the port is off", "equality", 1.0)
    assert isinstance(bad.port_value, int)
