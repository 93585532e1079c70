import math
import threading

import numpy as np
import pytest
import torch

from torch_ref import (
    DIFFUSERS,
    FAIRSEQ,
    MARIAN,
    PAPER,
    TENSOR2TENSOR,
    Sinusoid,
    encode_positions,
    sinusoidal_table,
)

BELOW = -(2**31) - 1
ABOVE = 2**31


def same_bits(a, b):
    return a.dtype == b.dtype and torch.equal(a, b)


@pytest.mark.parametrize(
    ("position", "d_model", "row"),
    [
        (3, 5, [0.141120008, -0.989992497, 0.075285293, 0.997162035, 0.001892871]),
        (
            2,
            7,
            [
                *[0.909297427, -0.416146837, 0.143440637, 0.989658923],
                *[0.010358764, 0.999946347, 0.000745519],
            ],
        ),
        (0, 1, [0]),
        (1, 1, [0.841470985]),
        (
            1,
            8,
            [
                *[0.841470985, 0.540302306, 0.0998334166, 0.995004165],
                *[0.00999983333, 0.99995, 0.000999999833, 0.9999995],
            ],
        ),
    ],
)
def test_odd_and_even_widths_have_the_values_of_the_formula(position, d_model, row):
    got = sinusoidal_table(position + 1, d_model)[position]
    np.testing.assert_allclose(got, row, rtol=0, atol=6e-10 + 3e-8)


def test_row_4999_and_row_1000000():
    row = sinusoidal_table(5_000, 512)[4_999]
    expected = [-0.663949521, -0.747777396, 0.00128532389, -0.999999174]
    np.testing.assert_allclose(row[:4], expected, rtol=0, atol=6e-8)
    np.testing.assert_allclose(row[10], -0.717868409, rtol=0, atol=6e-8)
    far = encode_positions(torch.tensor(1_000_000), 512)
    np.testing.assert_allclose(far[2:4], [-0.861444542, -0.507851653], rtol=0, atol=6e-8)


def test_each_pair_is_a_point_of_the_unit_circle_and_a_shift_is_a_rotation():
    table = sinusoidal_table(60, 32, dtype=torch.float64)
    sine, cosine = table[:, 0::2], table[:, 1::2]
    np.testing.assert_allclose(sine**2 + cosine**2, torch.ones(60, 16), rtol=0, atol=1e-15)
    shifted = sine[:50] * cosine[10] + cosine[:50] * sine[10]
    np.testing.assert_allclose(sine[10:], shifted, rtol=0, atol=1e-15)
    shifted = cosine[:50] * cosine[10] - sine[:50] * sine[10]
    np.testing.assert_allclose(cosine[10:], shifted, rtol=0, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_tables_have_16_bit_entries_of_wide_positions(dtype):
    table = sinusoidal_table(2_048, 512, dtype=dtype)
    wide = sinusoidal_table(2_048, 512, dtype=torch.float64)
    bound = 2.0**-9 if dtype == torch.bfloat16 else 2.0**-12  # half an ulp below 1
    assert (table.double() - wide).abs().max() <= bound
    assert not (table[1:] == table[:-1]).all(1).any()
    assert encode_positions(torch.tensor(70_000), 512, dtype=dtype).isfinite().all()


def test_row_257_in_bfloat16():
    assert sinusoidal_table(258, 512, dtype=torch.bfloat16)[257, 0].item() == -0.57421875


@pytest.mark.parametrize("d_model", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("freq_shift", [0, 1])
def test_halves_are_the_interleaved_columns_in_another_order(d_model, freq_shift):
    interleaved = sinusoidal_table(9, d_model, sinusoid=Sinusoid(freq_shift=freq_shift))
    halves = sinusoidal_table(9, d_model, sinusoid=Sinusoid(layout="halves", freq_shift=freq_shift))
    assert same_bits(halves, torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], 1))


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_cos_first_lets_cosine_and_sine_change_places(layout):
    usual = sinusoidal_table(9, 8, sinusoid=Sinusoid(layout=layout))
    swapped = sinusoidal_table(9, 8, sinusoid=Sinusoid(layout=layout, cos_first=True))
    sines = slice(0, 8, 2) if layout == "interleaved" else slice(0, 4)
    cosines = slice(1, 8, 2) if layout == "interleaved" else slice(4, 8)
    assert same_bits(swapped[:, sines], usual[:, cosines])
    assert same_bits(swapped[:, cosines], usual[:, sines])


def test_odd_widths_end_on_a_cosine_where_it_comes_first():
    for layout, row in (("interleaved", [1, 0, 1, 0, 1]), ("halves", [1, 1, 1, 0, 0])):
        got = encode_positions(torch.tensor(0), 5, sinusoid=Sinusoid(layout=layout, cos_first=True))
        assert got.tolist() == row


@pytest.mark.parametrize("sinusoid", [TENSOR2TENSOR, FAIRSEQ])
def test_the_last_wavelength_of_tensor2tensor_is_exactly_two_pi_base(sinusoid):
    row = encode_positions(torch.tensor(3_000), 64, sinusoid=sinusoid)
    np.testing.assert_allclose(row[31], math.sin(0.3), rtol=0, atol=3e-8)
    assert encode_positions(torch.tensor(3), 2, sinusoid=sinusoid).isfinite().all()


def test_named_conventions_differ_from_the_paper_as_published():
    assert Sinusoid() == PAPER
    assert Sinusoid(layout="halves") == MARIAN
    assert Sinusoid(layout="halves", cos_first=True) == DIFFUSERS
    assert Sinusoid(layout="halves", freq_shift=1) == TENSOR2TENSOR == FAIRSEQ


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)])
def test_result_has_the_shape_of_the_positions_and_one_more_axis(shape):
    positions = torch.arange(math.prod(shape)).reshape(shape)
    rows = encode_positions(positions, 6)
    assert rows.shape == (*shape, 6)
    assert same_bits(rows, sinusoidal_table(24, 6)[positions])


@pytest.mark.parametrize(
    "kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
)
def test_every_integer_type_gives_the_same_row(kind):
    positions = torch.tensor([0, 5, 127]).to(getattr(torch, kind))
    assert same_bits(encode_positions(positions, 8), sinusoidal_table(128, 8)[[0, 5, 127]])


def test_negative_positions_have_odd_sines_and_even_cosines():
    forth, back = encode_positions(torch.tensor([[70_001], [-70_001]]), 512).squeeze(1)
    assert torch.equal(back[0::2], -forth[0::2])
    assert torch.equal(back[1::2], forth[1::2])


def test_surroundings_do_not_change_a_bit():
    plain = sinusoidal_table(50, 64)
    with torch.device("meta"), torch.autocast("cpu", dtype=torch.bfloat16):
        assert same_bits(sinusoidal_table(50, 64), plain)
    with torch.inference_mode():
        assert same_bits(sinusoidal_table(50, 64), plain)
    torch.set_default_dtype(torch.float64)
    try:
        assert same_bits(sinusoidal_table(50, 64), plain)
    finally:
        torch.set_default_dtype(torch.float32)


def test_one_convention_leaves_no_trace_in_another():
    first = sinusoidal_table(50, 64)
    sinusoidal_table(50, 64, sinusoid=Sinusoid(base=500_000))
    assert same_bits(sinusoidal_table(50, 64), first)


def test_threads_get_the_same_table():
    tables = []
    threads = [
        threading.Thread(target=lambda: tables.append(sinusoidal_table(500, 64))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tables) == 4
    assert all(same_bits(table, sinusoidal_table(500, 64)) for table in tables)


def test_meta_positions_give_a_meta_row():
    rows = encode_positions(torch.empty(3, dtype=torch.int32, device="meta"), 8)
    assert rows.is_meta
    assert rows.shape == (3, 8)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base", 0.0),
        ("base", -1.0),
        ("base", math.inf),
        ("base", math.nan),
        ("base", "10000"),
        ("base", True),
        ("layout", "half"),
        ("freq_shift", 2),
        ("freq_shift", True),
        ("cos_first", 1),
    ],
)
def test_wrong_conventions_are_refused_by_name(field, value):
    with pytest.raises(ValueError, match=rf"`{field}` must be .*got {value!r}"):
        Sinusoid(**{field: value})


def test_float32_positions_need_frequencies_below_one_turn():
    """Where a base is below 1 the port, which keeps no whole turns, could not agree."""
    with pytest.raises(ValueError, match=r"`sinusoid` has base 0\.1, .* Pass integer positions"):
        encode_positions(torch.tensor(0.5), 8, sinusoid=Sinusoid(base=0.1))


@pytest.mark.parametrize(
    ("max_len", "d_model", "message"),
    [
        (0, 8, "`max_len` must be at least 1 and at most 2**31, got 0"),
        (8, 0, "`d_model` must be at least 1 and at most 2**31, got 0"),
        (-3, 8, "got -3"),
        (2**31 + 1, 8, "`max_len` must be at least 1 and at most 2**31, got 2147483649"),
        (4.0, 8, "`max_len` must be a Python integer, got float 4.0"),
        (4, True, "`d_model` must be a Python integer, got bool True"),
    ],
)
def test_wrong_sizes_are_refused_by_name(max_len, d_model, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        sinusoidal_table(max_len, d_model)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("positions", "error", "message"),
    [
        (torch.tensor([[0], [ABOVE]]), ValueError, f"`positions` holds {ABOVE} at [1, 0]"),
        (torch.tensor(BELOW), ValueError, f"`positions` holds {BELOW} at []"),
        (torch.tensor([2**64 - 1], dtype=torch.uint64), ValueError, f"holds {2**64 - 1} at [0]"),
        (torch.tensor([0.0, math.nan]), ValueError, "`positions` holds nan at [1]"),
        (torch.tensor([math.inf]), ValueError, "`positions` holds inf at [0]"),
        (torch.tensor([3e9]), ValueError, "but must be from -2147483648 to 2147483648"),
        (torch.tensor([1.0]).bfloat16(), TypeError, "integers above 256 (bfloat16)"),
        (torch.tensor([1.0]).half(), TypeError, "2,048 (float16)"),
        (torch.tensor([1.0]).double(), TypeError, "got torch.float64"),
        (torch.tensor([True]), TypeError, "`positions` must hold integers, got torch.bool"),
        (torch.tensor([1j]), TypeError, "`positions` must hold integers, got torch.complex64"),
        ([1, 2], TypeError, "`positions` must be a torch.Tensor, got list"),
    ],
)
def test_wrong_positions_are_refused(positions, error, message):
    with pytest.raises(error) as caught:
        encode_positions(positions, 8)
    assert message in str(caught.value)


def test_wrong_dtype_and_convention_are_refused():
    with pytest.raises(TypeError, match=r"`dtype` must be torch\.float32, .*got torch\.int32"):
        sinusoidal_table(4, 4, dtype=torch.int32)
    with pytest.raises(TypeError, match="`sinusoid` must be a Sinusoid, got str 'paper'"):
        sinusoidal_table(4, 4, sinusoid="paper")
