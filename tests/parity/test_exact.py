"""Closed forms, against 30-digit reference values and against mpmath."""

import csv
from collections import defaultdict
from pathlib import Path

import mpmath
import numpy as np
import pytest

from parity.exact import sinusoid

DATA = Path(__file__).parent.parent / "data"


def golden(name):
    """The rows of a file of reference values, by width, base and spacing."""
    groups = defaultdict(list)
    with (DATA / f"{name}.tsv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            key = int(row["d_model"]), float(row["base"]), row["spacing"] != "2i/d"
            value = float.fromhex(row["float64"])
            groups[key].append((int(row["pos"]), int(row["col"]), value))
    return groups


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exact_positions", "hard_positions"])
def test_every_reference_value_is_the_nearest_float64(name):
    wrong = []
    for (d_model, base, shifted), rows in golden(name).items():
        positions, columns, values = map(np.array, zip(*rows, strict=True))
        table = sinusoid(positions, d_model, base=base, freq_shift=int(shifted))
        found = table[np.arange(len(rows)), columns]
        wrong += [row for row, equal in zip(rows, found == values, strict=True) if not equal]
    assert wrong == []


def test_hard_reference_values_of_one_width_are_the_nearest_float64():
    """The angles nearest a quarter turn; all the others are checked by the slow test above."""
    rows = golden("hard_positions")[512, 10_000.0, False][:60]
    table = sinusoid(np.array([row[0] for row in rows]), 512)
    assert [table[i, row[1]] for i, row in enumerate(rows)] == [row[2] for row in rows]


def true_value(position, exponent, base, function):
    """One entry with 600 digits, rounded once."""
    with mpmath.workdps(600):
        angle = mpmath.mpf(position) * mpmath.mpf(base) ** (-exponent)
        return float(function(angle))


@pytest.mark.parametrize(
    "position",
    [0.5, 999.0, -12.25, 1e-3, 1e-45, -(2.0**31), 16_777_217.0, 3.4e38],
)
def test_float32_positions_are_taken_for_exactly_what_they_are(position):
    position = np.float32(position)
    with mpmath.workdps(600):
        exponents = [mpmath.mpf(2 * i) / 6 for i in range(3)]
    expected = [
        true_value(float(position), exponent, 10_000, function)
        for exponent in exponents
        for function in (mpmath.sin, mpmath.cos)
    ]
    assert sinusoid(np.array(position), 6).tolist() == expected


@pytest.mark.parametrize("base", [0.001, 0.5, 1.0, 2.0, 10.0, 1e6, 1e30])
def test_any_base_above_zero_gives_the_nearest_float64(base):
    positions = [1, 255, 1_000_000, -(2**31), 2**31 - 1]
    expected = [
        [true_value(position, mpmath.mpf(i) / 2, base, mpmath.sin) for i in range(2)]
        for position in positions
    ]
    assert sinusoid(np.array(positions), 4, base=base)[:, 0::2].tolist() == expected


def columns(d_model, **options):
    """Which function of which frequency stands in each column, at position 1."""
    count = (d_model + 1) // 2
    shift = options.get("freq_shift", 0)
    scale = max(d_model // 2 - 1, 1) if shift else d_model / 2
    angles = 10_000.0 ** (-np.arange(count) / scale)
    names = {}
    for i, angle in enumerate(angles):
        names[np.sin(angle)], names[np.cos(angle)] = f"s{i}", f"c{i}"
    row = sinusoid(np.array(1), d_model, **options)
    return [
        next(name for value, name in names.items() if abs(value - entry) < 1e-12) for entry in row
    ]


@pytest.mark.parametrize(
    ("d_model", "options", "expected"),
    [
        (1, {}, "s0"),
        (2, {}, "s0 c0"),
        (5, {}, "s0 c0 s1 c1 s2"),
        (5, {"cos_first": True}, "c0 s0 c1 s1 c2"),
        (5, {"layout": "halves"}, "s0 s1 s2 c0 c1"),
        (5, {"layout": "halves", "cos_first": True}, "c0 c1 c2 s0 s1"),
        (6, {"layout": "halves", "freq_shift": 1}, "s0 s1 s2 c0 c1 c2"),
        (5, {"freq_shift": 1}, "s0 c0 s1 c1 s2"),
    ],
)
def test_layouts_place_the_columns(d_model, options, expected):
    assert columns(d_model, **options) == expected.split()


def test_positions_keep_their_shape_and_order():
    positions = np.array([[3, 1], [1, 2]])
    table = sinusoid(positions, 4)
    assert table.shape == (2, 2, 4)
    np.testing.assert_array_equal(table[0, 1], table[1, 0])
    np.testing.assert_array_equal(table[1, 1], sinusoid(np.array(2), 4))
    assert sinusoid(np.zeros((0, 3), int), 4).shape == (0, 3, 4)


def test_bfloat16_positions_are_taken_too():
    import ml_dtypes

    positions = np.array([0.5, 3.0], ml_dtypes.bfloat16)
    np.testing.assert_array_equal(sinusoid(positions, 4), sinusoid(positions.astype(float), 4))


def test_positions_that_are_not_finite_read_nan():
    table = sinusoid(np.array([np.nan, 1.0, np.inf]), 2)
    assert np.isnan(table).all(axis=1).tolist() == [True, False, True]


def test_no_call_changes_the_next():
    first = sinusoid(np.arange(5), 4)
    sinusoid(np.arange(5), 4, base=5.0)
    np.testing.assert_array_equal(sinusoid(np.arange(5), 4), first)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d_model": 0}, "`d_model` must be at least 1, got 0"),
        ({"base": 0.0}, "`base` must be finite and above 0, got 0.0"),
        ({"base": np.inf}, "`base` must be finite and above 0, got inf"),
        ({"layout": "half"}, "`layout` must be 'interleaved' or 'halves', got 'half'"),
        ({"freq_shift": 2}, "`freq_shift` must be 0 or 1, got 2"),
    ],
)
def test_other_options_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        sinusoid(np.arange(3), **({"d_model": 4} | options))
