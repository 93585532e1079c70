"""Values against 30-digit references, the same bits everywhere, and what is refused."""

import csv
from collections import defaultdict
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import mpmath
import numpy as np
import pytest

import jax_input
from jax_input import PAPER, Sinusoid, encode_positions, sinusoidal_table

DATA = Path(__file__).parents[1] / "data"
DTYPES = [np.float32, ml_dtypes.bfloat16, np.float16]
CONVENTIONS = [
    Sinusoid(layout=layout, freq_shift=shift, cos_first=cos_first)
    for layout in ("interleaved", "halves")
    for shift in (0, 1)
    for cos_first in (False, True)
]


def bits(array):
    array = np.asarray(array)
    return array.view(f"u{array.dtype.itemsize}")


def exact(position, column, d_model, sinusoid=PAPER):
    """The convention's formula, entry by entry, in 150 digits."""
    count = -(-d_model // 2)
    interleaved = sinusoid.layout == "interleaved"
    index = column // 2 if interleaved else column % count
    second = column % 2 == 1 if interleaved else column >= count
    with mpmath.workdps(150):
        divisor = mpmath.mpf(d_model) / 2 if sinusoid.freq_shift == 0 else max(d_model // 2 - 1, 1)
        angle = mpmath.mpf(position) * mpmath.power(sinusoid.base, -index / mpmath.mpf(divisor))
        return mpmath.cos(angle) if second != sinusoid.cos_first else mpmath.sin(angle)


def references():
    """The rows of both reference files, by (d_model, convention)."""
    groups = defaultdict(list)
    for name in ("exact_positions", "hard_positions"):
        with (DATA / f"{name}.tsv").open() as file:
            for row in csv.DictReader(file, delimiter="\t"):
                expected = {np.dtype(d): float.fromhex(row[np.dtype(d).name]) for d in DTYPES}
                # The first file rounds float16 without gradual underflow.
                if name == "exact_positions" and abs(float(row["exact_30_digits"])) < 2**-14:
                    del expected[np.dtype(np.float16)]
                shift = 0 if row["spacing"] == "2i/d" else 1
                key = int(row["d_model"]), Sinusoid(base=float(row["base"]), freq_shift=shift)
                groups[key].append((int(row["pos"]), int(row["col"]), expected))
    return groups


def test_every_reference_value_is_correctly_rounded_under_jit():
    compared = dict.fromkeys(map(np.dtype, DTYPES), 0)
    for (d_model, sinusoid), rows in references().items():

        @jax.jit
        def encode(positions, d_model=d_model, sinusoid=sinusoid):
            return [
                encode_positions(positions, d_model, sinusoid=sinusoid, dtype=dtype)
                for dtype in compared
            ]

        for got in map(np.asarray, encode(np.array([row[0] for row in rows], np.int32))):
            for values, (_, column, expected) in zip(got, rows, strict=True):
                if got.dtype in expected:
                    assert float(values[column]) == expected[got.dtype]
                    compared[got.dtype] += 1
    assert list(compared.values()) == [6_281, 6_281, 6_263]


def test_float64_is_within_2_to_the_minus_53():
    for (d_model, sinusoid), rows in list(references().items())[::4]:
        with jax.enable_x64(True):
            positions = np.array([row[0] for row in rows])
            got = encode_positions(positions, d_model, sinusoid=sinusoid, dtype=np.float64)
        for values, (position, column, _) in zip(np.asarray(got), rows, strict=True):
            error = mpmath.mpf(values[column]) - exact(position, column, d_model, sinusoid)
            assert abs(error) <= mpmath.mpf(2) ** -53


@pytest.mark.parametrize("sinusoid", CONVENTIONS, ids=str)
@pytest.mark.parametrize("d_model", [1, 2, 5, 8])
def test_every_convention_puts_every_value_in_its_column(d_model, sinusoid):
    positions = [0, 1, 255, 256, 257, -3, 4_999, 131_071]
    got = encode_positions(positions, d_model, sinusoid=sinusoid)
    expected = [[float(exact(p, c, d_model, sinusoid)) for c in range(d_model)] for p in positions]
    np.testing.assert_array_equal(got, np.array(expected, np.float32))


TABLES = [
    *[(65, 31, sinusoid, np.float32) for sinusoid in CONVENTIONS],
    *[(1_000, 33, jax_input.MARIAN, dtype) for dtype in DTYPES],
    *[(*shape, PAPER, np.float32) for shape in ((1, 1), (63, 7), (64, 2))],
]


@pytest.mark.parametrize(("max_len", "d_model", "sinusoid", "dtype"), TABLES)
def test_table_has_the_bits_of_its_positions(max_len, d_model, sinusoid, dtype):
    table = sinusoidal_table(max_len, d_model, sinusoid=sinusoid, dtype=dtype)
    assert table.shape == (max_len, d_model)
    rows = encode_positions(jnp.arange(max_len), d_model, sinusoid=sinusoid, dtype=dtype)
    np.testing.assert_array_equal(bits(table), bits(rows))


COMMON = [
    *[(5_000, width, PAPER, np.float32) for width in (64, 128, 256, 300, 384, 512, 768, 1_024)],
    *[(5_000, 512, PAPER, dtype) for dtype in (ml_dtypes.bfloat16, np.float16)],
    *[(32_768, 1_024, sinusoid, np.float32) for sinusoid in (PAPER, jax_input.TENSOR2TENSOR)],
    *[(131_072, 512, PAPER, dtype) for dtype in DTYPES],
    (131_072, 512, Sinusoid(base=500_000.0), np.float32),
]


@pytest.mark.slow
@pytest.mark.parametrize(("max_len", "d_model", "sinusoid", "dtype"), COMMON)
def test_every_entry_of_a_common_table_has_the_bits_of_its_position(
    max_len, d_model, sinusoid, dtype
):
    table = sinusoidal_table(max_len, d_model, sinusoid=sinusoid, dtype=dtype)
    rows = encode_positions(jnp.arange(max_len), d_model, sinusoid=sinusoid, dtype=dtype)
    assert np.array_equal(bits(table), bits(rows))


@pytest.mark.parametrize("dtype", [*DTYPES, np.float64])
def test_bits_are_the_same_however_it_is_run(dtype):
    """B05: eager, jit, vmap, scan, remat, a traced position, x64 on and off, jit switched off."""

    def encode(positions):
        return encode_positions(positions, 34, dtype=dtype)

    positions = jnp.array([[0, 1, -1, 4_999], [2**31 - 1, -(2**31), 65_504, 131_071]], jnp.int32)
    with jax.enable_x64(dtype == np.float64):
        expected = bits(encode(positions))
        with jax.disable_jit():
            np.testing.assert_array_equal(bits(encode(positions)), expected)
        runs = [
            jax.jit(encode),
            jax.vmap(encode),
            jax.vmap(encode, in_axes=1, out_axes=1),
            jax.checkpoint(encode),
            lambda p: jax.lax.map(encode, p),
            lambda p: jax.jit(jax.vmap(jax.vmap(encode)))(p),
        ]
        for run in runs:
            np.testing.assert_array_equal(bits(run(positions)), expected)
    if dtype != np.float64:
        with jax.enable_x64(True):
            for kind in (jnp.int64, jnp.int32):
                got = jax.jit(encode)(positions.astype(kind))
                assert got.dtype == dtype
                np.testing.assert_array_equal(bits(got), expected)


@pytest.mark.parametrize("max_len", [5_000])
def test_table_is_the_same_bits_however_it_is_run(max_len):
    expected = bits(sinusoidal_table(max_len, 512))
    for x64 in (False, True):
        with jax.enable_x64(x64):
            under_jit = jax.jit(lambda: sinusoidal_table(max_len, 512))()
            np.testing.assert_array_equal(bits(under_jit), expected)
    known = [
        *[(4_999, 0, -0.663949521), (4_999, 1, -0.747777396), (4_999, 2, 0.00128532389)],
        *[(4_999, 3, -0.999999174), (4_999, 10, -0.717868409)],
    ]
    table = np.asarray(sinusoidal_table(max_len, 512))
    for row, column, value in known:
        assert abs(table[row, column] - value) <= 6e-8
    far = encode_positions(1_000_000, 512)
    assert abs(far[2] - -0.861444542) <= 6e-8
    assert abs(far[3] - -0.507851653) <= 6e-8


def test_table_has_the_bits_of_the_reference():
    reference = pytest.importorskip("torch_ref").sinusoidal_table(5_000, 512).numpy()
    np.testing.assert_array_equal(bits(sinusoidal_table(5_000, 512)), bits(reference))


def equations(jaxpr):
    for equation in jaxpr.eqns:
        inner = [p for p in jax.tree.leaves(list(equation.params.values())) if hasattr(p, "jaxpr")]
        if not inner:
            yield equation
        for closed in inner:
            yield from equations(closed.jaxpr)


@pytest.mark.parametrize("dtype", [*DTYPES, np.float64])
@pytest.mark.parametrize("build", ["table", "positions"])
def test_no_operation_before_the_last_bit_cast_is_floating(build, dtype):
    with jax.enable_x64(dtype == np.float64):
        if build == "table":
            closed = jax.make_jaxpr(lambda: sinusoidal_table(100, 8, dtype=dtype))()
        else:
            closed = jax.make_jaxpr(lambda p: encode_positions(p, 8, dtype=dtype))(jnp.arange(5))
    seen = list(equations(closed.jaxpr))
    floating = [
        str(equation.primitive)
        for equation in seen
        if any(
            jnp.issubdtype(v.aval.dtype, jnp.floating)
            for v in (*equation.invars, *equation.outvars)
        )
    ]
    assert len(seen) > 50
    allowed = ["bitcast_convert_type", "reshape", "slice"]  # moving the finished bits
    assert floating[0] == "bitcast_convert_type"
    assert floating == allowed[: len(floating)]


@pytest.mark.parametrize(
    "build", [sinusoidal_table, lambda n, d: encode_positions(jnp.arange(n), d)]
)
def test_lowered_text_does_not_grow_with_the_length(build):
    """B25: the rows are computed in the program, not written into it."""
    short, long = (len(jax.jit(lambda n=n: build(n, 1_024)).lower().as_text()) for n in (8, 8_192))
    assert long < 200_000
    assert abs(long - short) < 0.02 * short


def test_odd_widths_have_the_values_of_the_formula():
    """B01: one frequency vector of ceil(d/2) entries serves both columns."""
    rows = [
        (4, 5, 3, [0.141120008, -0.989992497, 0.075285293, 0.997162035, 0.001892871]),
        (3, 7, 2, [0.909297427, -0.416146837, 0.143440637, 0.989658923, 0.010358764, 0.999946347]),
    ]
    for max_len, d_model, row, expected in rows:
        for build in (sinusoidal_table, jax.jit(sinusoidal_table, static_argnums=(0, 1))):
            got = build(max_len, d_model)[row]
            np.testing.assert_allclose(got[: len(expected)], expected, rtol=0, atol=5e-10 + 6e-8)
    assert abs(sinusoidal_table(3, 7)[2, 6] - 0.000745519) <= 5e-10
    np.testing.assert_allclose(sinusoidal_table(2, 1), [[0], [0.841470985]], rtol=0, atol=6e-8)


def test_each_pair_has_one_frequency_and_turns_with_the_position():
    """B02: columns 2i and 2i + 1 share a frequency, and a shift is a rotation of each pair."""
    table = np.asarray(sinusoidal_table(10, 8), np.float64)
    expected = [0.841470985, 0.540302306, 0.0998334166, 0.995004165]
    expected += [0.00999983333, 0.99995, 0.000999999833, 0.9999995]
    np.testing.assert_allclose(table[1], expected, rtol=6e-8, atol=0)
    sine, cosine = table[:, 0::2], table[:, 1::2]
    np.testing.assert_allclose(sine**2 + cosine**2, 1, rtol=0, atol=1e-6)
    for shift in range(1, 10):
        turned = sine[:-shift] * cosine[shift] + cosine[:-shift] * sine[shift]
        np.testing.assert_allclose(sine[shift:], turned, rtol=0, atol=1e-6)
        turned = cosine[:-shift] * cosine[shift] - sine[:-shift] * sine[shift]
        np.testing.assert_allclose(cosine[shift:], turned, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("dtype", "bound"), [(ml_dtypes.bfloat16, 2**-9), (np.float16, 2**-12)])
def test_16_bit_tables_keep_their_positions_apart(dtype, bound):
    """B04: positions are never held in 16 bits; only the value is rounded."""
    table = np.asarray(sinusoidal_table(2_048, 512, dtype=dtype))
    wide = np.asarray(sinusoidal_table(2_048, 512), np.float64)
    assert np.abs(table.astype(np.float64) - wide).max() <= bound
    assert (bits(table)[1:] != bits(table)[:-1]).any(axis=1).all()
    if dtype == ml_dtypes.bfloat16:
        assert float(table[257, 0]) == -0.57421875
    assert np.isfinite(np.asarray(encode_positions(70_000, 512, dtype=dtype), np.float32)).all()


@pytest.mark.parametrize("value", [0.5, 999.0, 1e-3, -0.25, 123_456.78, 2.0**31, -(2.0**31), 1e-30])
@pytest.mark.parametrize("d_model", [1, 6, 320])
def test_float_positions_are_within_2_to_the_minus_24(value, d_model):
    position = np.float32(value)
    for encode in (encode_positions, jax.jit(encode_positions, static_argnums=1)):
        got = encode(position, d_model)
        for column in (0, d_model // 2, d_model - 1):
            error = abs(mpmath.mpf(float(got[column])) - exact(float(position), column, d_model))
            assert error <= mpmath.mpf(2) ** -24


def test_whole_float_positions_have_the_bits_of_integers():
    positions = np.array([0, 1, -7, 999, 65_504, 131_071, 2**24])
    np.testing.assert_array_equal(
        encode_positions(positions.astype(np.float32), 64), encode_positions(positions, 64)
    )


@pytest.mark.parametrize("sinusoid", [PAPER, jax_input.DIFFUSERS], ids=["paper", "diffusers"])
def test_float_positions_have_the_derivatives_of_the_formula(sinusoid):
    def column(position, index):
        return encode_positions(position, 7, sinusoid=sinusoid)[index]

    position = 12.5
    for index in range(7):
        first = jax.grad(column)(position, index)
        second = jax.jacfwd(jax.jacrev(column))(position, index)
        with mpmath.workdps(40):
            for got, order in ((first, 1), (second, 2)):
                derivative = mpmath.diff(
                    lambda p, i=index: exact(p, i, 7, sinusoid), position, order
                )
                assert abs(float(got) - float(derivative)) <= 2**-22 * order


def test_a_traced_position_without_a_row_reads_nan():
    for values in (
        np.array([np.nan, np.inf, -np.inf, 3e9], np.float32),
        np.array([2**31, 2**32 - 1], np.uint32),
    ):
        assert np.isnan(jax.jit(lambda p: encode_positions(p, 4))(values)).all()
    with jax.enable_x64(True):
        rows = jax.jit(lambda p: encode_positions(p, 4))(np.array([2**31, 2**32 + 1, 5]))
        assert np.isnan(rows).all(axis=1).tolist() == [True, True, False]


def test_integer_positions_have_no_gradient_and_stop_nothing():
    table = jax.grad(lambda x: jnp.sum(x * encode_positions(jnp.arange(3), 4)))(jnp.ones((3, 4)))
    np.testing.assert_array_equal(table, sinusoidal_table(3, 4))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3, 4)])
def test_shape_is_that_of_the_positions_and_d_model(shape):
    assert encode_positions(np.zeros(shape, np.int32), 6).shape == (*shape, 6)


def test_named_conventions_are_those_published():
    positions, d_model = 7, 8
    angle = positions / 10_000.0 ** (np.arange(4) * 2 / 8)
    shifted = positions / 10_000.0 ** (np.arange(4) / 3)
    expected = {
        "PAPER": np.stack([np.sin(angle), np.cos(angle)], -1).ravel(),
        "MARIAN": np.concatenate([np.sin(angle), np.cos(angle)]),
        "DIFFUSERS": np.concatenate([np.cos(angle), np.sin(angle)]),
        "TENSOR2TENSOR": np.concatenate([np.sin(shifted), np.cos(shifted)]),
        "FAIRSEQ": np.concatenate([np.sin(shifted), np.cos(shifted)]),
    }
    for name, row in expected.items():
        got = encode_positions(positions, d_model, sinusoid=getattr(jax_input, name))
        np.testing.assert_allclose(got, row, rtol=0, atol=6e-8)
