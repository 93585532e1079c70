import csv
import math
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from torch_ref import DIFFUSERS, PAPER, Sinusoid, encode_positions, rounding, sinusoidal_table

DATA = Path(__file__).parents[1] / "data"
FILES = ["exact_positions.tsv", "hard_positions.tsv"]
ROUNDED = {torch.float32: (24, -149), torch.bfloat16: (8, -133), torch.float16: (11, -24)}


def read(name):
    """Return the rows of a file of reference values, by width and convention."""
    groups = defaultdict(list)
    with (DATA / name).open() as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            shift = 0 if row["spacing"] == "2i/d" else 1
            groups[int(row["d_model"]), Sinusoid(float(row["base"]), freq_shift=shift)].append(row)
    return groups


def encode(rows, d_model, sinusoid, dtype):
    """Return our value for each reference row."""
    positions = torch.tensor([int(row["pos"]) for row in rows])
    columns = torch.tensor([[int(row["col"])] for row in rows])
    return encode_positions(positions, d_model, sinusoid=sinusoid, dtype=dtype).gather(1, columns)


@pytest.mark.parametrize("dtype", ROUNDED)
@pytest.mark.parametrize("name", FILES)
def test_every_reference_value_is_met_bit_for_bit(name, dtype):
    compared = 0
    for (d_model, sinusoid), rows in read(name).items():
        got = encode(rows, d_model, sinusoid, dtype).double().squeeze(1).tolist()
        for row, value in zip(rows, got, strict=True):
            expected = float.fromhex(row[str(dtype).removeprefix("torch.")])
            if dtype == torch.float16 and name == FILES[0] and 0 < abs(expected) < 2**-14:
                continue  # this column of this file holds normal numbers only
            assert value == expected, row
            compared += 1
    assert compared > 3_000


@pytest.mark.parametrize("name", FILES)
def test_float64_is_within_two_to_the_minus_53(name):
    for (d_model, sinusoid), rows in read(name).items():
        got = encode(rows, d_model, sinusoid, torch.float64).squeeze(1).tolist()
        for row, value in zip(rows, got, strict=True):
            # The file gives 30 digits; float64 is written out in full by Decimal.
            assert abs(Decimal(value) - Decimal(row["exact_30_digits"])) <= Decimal(2) ** -53


def exact(position, column, d_model, sinusoid):
    """Return the value of the interleaved table by its definition, to 400 bits."""
    index, is_cosine = divmod(column, 2)
    if sinusoid.freq_shift == 0:
        exponent = mp.mpf(2 * index) / d_model
    else:
        exponent = mp.mpf(index) / max(d_model // 2 - 1, 1)
    angle = mp.mpf(position) * mp.power(mp.mpf(sinusoid.base), -exponent)
    return mp.cos(angle) if is_cosine else mp.sin(angle)


def nearest(value, dtype):
    """Round to nearest even, with gradual underflow, by mpmath."""
    significand, smallest = ROUNDED[dtype]
    if value == 0:
        return 0.0
    exponent = max(mpmath.frexp(value)[1] - significand, smallest)
    return float(mp.ldexp(mpmath.nint(mp.ldexp(value, -exponent)), exponent))


@given(
    position=st.integers(-(2**31), 2**31 - 1) | st.integers(-5000, 5000),
    base=st.floats(2, 1e6),
    d_model=st.integers(1, 40),
    freq_shift=st.sampled_from([0, 1]),
)
def test_every_integer_position_is_correctly_rounded(position, base, d_model, freq_shift):
    sinusoid = Sinusoid(base, freq_shift=freq_shift)
    with mp.workprec(400):
        values = [exact(position, column, d_model, sinusoid) for column in range(d_model)]
        for dtype in ROUNDED:
            row = encode_positions(torch.tensor(position), d_model, sinusoid=sinusoid, dtype=dtype)
            assert row.tolist() == [nearest(value, dtype) for value in values]
        row = encode_positions(
            torch.tensor(position), d_model, sinusoid=sinusoid, dtype=torch.float64
        )
        for got, value in zip(row.tolist(), values, strict=True):
            assert abs(got - value) <= mp.mpf(2) ** -53


@given(
    position=st.floats(-(2.0**31), 2.0**31, width=32) | st.floats(-1000, 1000, width=32),
    base=st.floats(2, 1e6),
    d_model=st.integers(1, 20),
)
def test_every_float32_position_is_within_two_to_the_minus_24(position, base, d_model):
    sinusoid = Sinusoid(base)
    row = encode_positions(torch.tensor(position), d_model, sinusoid=sinusoid)
    with mp.workprec(400):
        for column, got in enumerate(row.tolist()):
            assert abs(got - exact(position, column, d_model, sinusoid)) <= mp.mpf(2) ** -24


@given(st.integers(-(2**24), 2**24))
def test_whole_float32_positions_have_the_bits_of_integers(position):
    whole = encode_positions(torch.tensor(position), 64)
    real = encode_positions(torch.tensor(float(position)), 64)
    assert torch.equal(whole.view(torch.int32), real.view(torch.int32))


@pytest.mark.parametrize("base", [1.0, 0.5, 1e7, 1e19, 1e30, 1e300])
def test_other_bases_are_within_two_to_the_minus_25_of_their_rounding(base):
    positions = [0, 1, -7, 4_999, 2**31 - 1]
    got = encode_positions(torch.tensor(positions), 6, sinusoid=Sinusoid(base))
    with mp.workprec(2_000):
        for position, row in zip(positions, got.tolist(), strict=True):
            for column, value in enumerate(row):
                rounded = nearest(exact(position, column, 6, Sinusoid(base)), torch.float32)
                assert abs(value - rounded) <= 2.0**-25


@pytest.mark.parametrize("position", range(1_201, 1_501, 100))
def test_angles_within_a_few_1e_17_of_a_quarter_turn(position):
    base = (2 * position / np.pi) ** 2  # column 3 of 4 is the cosine of position / sqrt(base)
    sinusoid = Sinusoid(base)
    with mp.workprec(400):
        value = exact(position, 3, 4, sinusoid)
        assert abs(value) < 1e-15
        for dtype in ROUNDED:
            row = encode_positions(torch.tensor(position), 4, sinusoid=sinusoid, dtype=dtype)
            assert row[3].item() == nearest(value, dtype)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="needs an extended long double")
@pytest.mark.parametrize("dtype", ROUNDED)
def test_every_entry_of_5000_x_512_is_the_nearest(dtype):
    significand, smallest = ROUNDED[dtype]
    frequency = np.longdouble(10_000) ** (-np.arange(0, 512, 2, dtype=np.longdouble) / 512)
    got = sinusoidal_table(5_000, 512, dtype=dtype).double().numpy()
    for rows in np.split(np.arange(5_000), 10):
        angle = rows[:, None] * frequency
        for column, value in ((0, np.sin(angle)), (1, np.cos(angle))):
            ours = got[rows, column::2]
            step = 2.0 ** np.maximum(np.frexp(np.abs(value))[1] - significand, smallest)
            # The angle, at most 4999, is good to 2**-50 in 64 bits: so near a tie either will do.
            assert (np.abs(ours - value) <= step / 2 + 2.0**-50).all()


@pytest.mark.parametrize("dtype", ROUNDED)
def test_integers_alone_give_the_same_bits(monkeypatch, dtype):
    positions = torch.tensor([0, 1, -1, 2, 257, 70_000, 2**31 - 1, -(2**31)])
    from_float64 = encode_positions(positions, 24, dtype=dtype)
    monkeypatch.setattr(rounding, "RELATIVE_ERROR", 1.0)  # doubts every entry
    asked = []
    in_integers = rounding.round_exactly

    def watched(*args, **kwargs):
        asked.append(args)
        return in_integers(*args, **kwargs)

    monkeypatch.setattr(rounding, "round_exactly", watched)
    assert torch.equal(encode_positions(positions, 24, dtype=dtype), from_float64)
    assert len(asked) >= 150


def test_table_rows_are_the_encoded_positions():
    for sinusoid in (PAPER, Sinusoid(base=100, layout="halves", freq_shift=1, cos_first=True)):
        table = sinusoidal_table(300, 17, sinusoid=sinusoid)
        assert torch.equal(table, encode_positions(torch.arange(300), 17, sinusoid=sinusoid))


@pytest.mark.parametrize("sinusoid", [PAPER, DIFFUSERS, Sinusoid(cos_first=True)])
@pytest.mark.parametrize("d_model", [5, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_float32_positions_are_differentiated_by_the_closed_form(sinusoid, d_model, dtype):
    positions = torch.tensor([0.5, 999.0, -3.25], requires_grad=True)
    rows = encode_positions(positions, d_model, sinusoid=sinusoid, dtype=dtype)
    cotangent = torch.linspace(-1, 1, rows.numel()).reshape(rows.shape).to(dtype)
    rows.backward(cotangent)
    step = 1e-6
    real = positions.detach().numpy().astype(np.float64)
    frequency = 10_000.0 ** (-2 * np.arange(math.ceil(d_model / 2)) / d_model)

    def formula(position):
        angle = position[:, None] * frequency
        pair = [np.sin(angle), np.cos(angle)]
        pair = pair[::-1] if sinusoid.cos_first else pair
        if sinusoid.layout == "halves":
            return np.concatenate(pair, 1)[:, :d_model]
        return np.stack(pair, -1).reshape(len(position), -1)[:, :d_model]

    slope = (formula(real + step) - formula(real - step)) / (2 * step)
    expected = (slope * cotangent.double().numpy()).sum(1)
    np.testing.assert_allclose(positions.grad, expected, rtol=0, atol=2e-6)
