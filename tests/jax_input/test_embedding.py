import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jax_input.embedding import embed_tokens

DTYPES = [np.float32, jnp.bfloat16, np.float16]
PAIRS = [(np.float32, dtype) for dtype in DTYPES] + [(dtype, dtype) for dtype in DTYPES[1:]]
GRID = np.arange(32, dtype=np.float32).reshape(8, 4)


def draw(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def draw_ids(shape, vocab_size, seed=1):
    return np.random.default_rng(seed).integers(0, vocab_size, shape).astype(np.int32)


def traced(token_ids, embedding, **options):
    """Call with ids whose values are not known."""
    return jax.jit(lambda token_ids: embed_tokens(token_ids, embedding, **options))(token_ids)


# Arithmetic: gather, times float32(scale) in float32, one rounding.


@pytest.mark.parametrize("d_model", [512, 300])
@pytest.mark.parametrize(("param_dtype", "dtype"), [*PAIRS, (jnp.bfloat16, np.float32)])
def test_rows_are_scaled_in_float32_and_rounded_once(param_dtype, dtype, d_model):
    embedding = draw((100, d_model), param_dtype)
    token_ids = draw_ids((3, 40), 100)
    scale = np.float32(np.sqrt(d_model))
    expected = (embedding[token_ids].astype(np.float32) * scale).astype(dtype)
    call = partial(embed_tokens, scale="sqrt", dtype=dtype)
    for actual in (call(token_ids, embedding), jax.jit(call)(token_ids, embedding)):
        assert actual.dtype == dtype
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_compiler_contracts_the_product_with_a_later_sum(dtype):
    embedding, term = draw((1_000, 512), dtype), draw((8, 512, 512), dtype, seed=2)
    token_ids = draw_ids((8, 512), 1_000)
    scaled = (embedding[token_ids].astype(np.float32) * np.float32(512**0.5)).astype(dtype)
    expected = (scaled.astype(np.float32) + term.astype(np.float32)).astype(dtype)

    def add(ids, w, term):
        return embed_tokens(ids, w, scale="sqrt") + term

    np.testing.assert_array_equal(jax.jit(add)(token_ids, embedding, term), expected)
    constant_ids = jax.jit(lambda w, term: jax.checkpoint(add)(token_ids, w, term))
    np.testing.assert_array_equal(constant_ids(embedding, term), expected)


@pytest.mark.parametrize(("d_model", "weight", "expected"), [(300, 5.0, 86.5), (768, 11.0, 304.0)])
def test_scale_itself_is_not_rounded_to_bfloat16(d_model, weight, expected):
    # sqrt(300) and sqrt(768) would be 17.375 and 27.75 in bfloat16: 87 and 306.
    embedding = jnp.full((1, d_model), weight, jnp.bfloat16)
    for call in (embed_tokens, traced):
        row = call(np.array([0]), embedding, scale="sqrt")
        assert row.dtype == jnp.bfloat16
        assert (np.asarray(row, np.float32) == expected).all()


@pytest.mark.parametrize("scale", [2, 2.0, np.int64(2), np.float64(2), np.float32(2)])
@pytest.mark.parametrize("x64", [False, True])
def test_scale_of_any_number_type_leaves_the_dtype(scale, x64):
    with jax.enable_x64(x64):
        row = embed_tokens([1], GRID.astype(jnp.bfloat16), scale=scale)
    assert row.dtype == jnp.bfloat16
    assert np.asarray(row, np.float32).tolist() == [[8, 10, 12, 14]]


@pytest.mark.parametrize(("scale", "factor"), [(None, 1), (0, 0), (-1.5, -1.5), ("sqrt", 2)])
def test_scale_is_any_finite_number_or_the_square_root_of_d_model(scale, factor):
    assert embed_tokens([1], GRID, scale=scale).tolist() == [
        [4 * factor, 5 * factor, 6 * factor, 7 * factor]
    ]


def test_float64_parameters_are_scaled_in_float64_and_rounded_once():
    # A tie of bfloat16 after float32 has rounded the last bit away.
    value = 1 + 2**-8 + 2**-40
    with jax.enable_x64(True):
        embedding = np.full((1, 2), value)
        assert embed_tokens([0], embedding, scale=3.0).tolist() == [[value * 3.0] * 2]
        narrow = traced(np.array([0]), embedding, dtype=jnp.bfloat16)
    assert np.asarray(narrow, np.float32).tolist() == [[1 + 2**-7] * 2]


@pytest.mark.parametrize(
    ("scale", "error", "text"),
    [
        (np.nan, ValueError, "got nan"),
        (np.inf, ValueError, "got inf"),
        (-np.inf, ValueError, "got -inf"),
        (1e39, ValueError, r"in float32, got 1e\+39"),
        (-(10**400), ValueError, "got -1000"),
        ("root", ValueError, "got 'root'"),
        (True, TypeError, "got bool True"),
        (np.bool_(True), TypeError, "got bool"),
        (1j, TypeError, "got complex 1j"),
        ([2.0], TypeError, r"got list \[2.0\]"),
        (np.array(2.0), TypeError, "got ndarray"),
    ],
)
def test_scale_that_is_no_finite_number_is_refused(scale, error, text):
    with pytest.raises(error, match=f"`scale` must be .*finite.*{text}"):
        embed_tokens([0], GRID, scale=scale)


def test_scale_in_an_array_is_refused_traced_or_not():
    message = r"`scale` must be known when the program is built, got a JAX array.*float\(scale\)"
    with pytest.raises(TypeError, match=message):
        jax.jit(lambda scale: embed_tokens([0], GRID, scale=scale))(2.0)
    with pytest.raises(TypeError, match=message):
        embed_tokens([0], GRID, scale=jnp.sqrt(512.0))


def test_stored_rows_are_read_bit_by_bit_without_a_scale():
    patterns = np.array([[0x7F800001, 0xFF800000, 0x80000000, 1]], np.uint32)
    row = traced(np.array([0]), patterns.view(np.float32))
    assert np.isnan(row[0, 0])
    np.testing.assert_array_equal(np.asarray(row).view(np.uint32)[0, 1:], patterns[0, 1:])


# The look-up itself.


def test_lowered_program_reads_the_rows_with_one_gather_and_no_product_of_matrices():
    call = jax.jit(lambda ids, w: embed_tokens(ids, w, scale="sqrt", padding_idx=0))
    text = call.lower(draw_ids((2, 3), 50), draw((50, 8))).as_text()
    assert len(re.findall(r'"stablehlo\.(?:dynamic_)?gather"', text)) == 1
    assert not re.search(r"stablehlo\.(dot|convolution|iota|while|case)", text)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (0,), (0, 5), (4, 0)])
def test_result_has_the_shape_of_the_ids_and_d_model(shape):
    token_ids = np.full(shape, 3)
    for call in (embed_tokens, traced):
        rows = call(token_ids, GRID)
        assert rows.shape == (*shape, 4)
        assert (np.asarray(rows) == GRID[3]).all()


@pytest.mark.parametrize(
    "token_ids", [[[1, 2], [3, 0]], ((1, 2), (3, 0)), np.array([[1, 2], [3, 0]])]
)
def test_ids_come_as_lists_tuples_or_arrays_of_the_host(token_ids):
    np.testing.assert_array_equal(embed_tokens(token_ids, GRID), GRID[[[1, 2], [3, 0]]])


@pytest.mark.parametrize(("token_ids", "shape"), [([], (0, 4)), ([[], []], (2, 0, 4))])
def test_empty_lists_are_empty_batches(token_ids, shape):
    assert embed_tokens(token_ids, GRID).shape == shape


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "uint32", "int64", "uint64"])
def test_ids_of_every_width_read_their_row(dtype):
    embedding = draw((30_000, 2))
    token_ids = np.array([0, 1, 127], dtype)
    for call in (embed_tokens, traced):
        np.testing.assert_array_equal(call(token_ids, embedding), embedding[[0, 1, 127]])


@pytest.mark.parametrize("token_ids", [[True], [0.0], np.zeros((2, 0)), jnp.ones(1, jnp.float16)])
def test_ids_that_are_no_integers_are_refused(token_ids):
    with pytest.raises(TypeError, match=r"`token_ids` must hold integers, got (bool|float\d\d)"):
        embed_tokens(token_ids, GRID)


@pytest.mark.parametrize(
    ("embedding", "error", "text"),
    [
        (np.zeros((4,), np.float32), ValueError, r".*\[vocab_size, d_model\].*, got \[4\]"),
        (np.zeros((2, 3, 4), np.float32), ValueError, r".*got \[2, 3, 4\]"),
        (np.zeros((0, 4), np.float32), ValueError, r".*each at least 1, got \[0, 4\]"),
        (np.zeros((4, 0), np.float32), ValueError, r".*each at least 1, got \[4, 0\]"),
        (np.zeros((4, 4), np.int32), TypeError, "must hold float32, .* got int32"),
        (np.zeros((4, 4), bool), TypeError, "must hold float32, .* got bool"),
    ],
)
def test_embedding_that_is_no_matrix_of_floats_is_refused(embedding, error, text):
    with pytest.raises(error, match=rf"`embedding` {text}"):
        embed_tokens([0], embedding)


def test_dtype_that_is_no_float_or_needs_x64_is_refused():
    with pytest.raises(TypeError, match=r"`dtype` must be float32, .*, got int32"):
        embed_tokens([0], GRID, dtype=np.int32)
    with pytest.raises(ValueError, match="`dtype` is float64, which JAX has only where x64 is on"):
        embed_tokens([0], GRID, dtype=np.float64)


def test_ids_and_embedding_may_be_spread_over_devices():
    mesh = jax.make_mesh((2,), ("shard",), axis_types=(AxisType.Auto,))
    split = NamedSharding(mesh, PartitionSpec("shard"))
    embedding, token_ids = draw((100, 8)), draw_ids((4, 6), 100)
    call = jax.jit(partial(embed_tokens, scale="sqrt", padding_idx=0))
    rows = call(jax.device_put(token_ids, split), jax.device_put(embedding, split))
    np.testing.assert_array_equal(rows, call(token_ids, embedding))
