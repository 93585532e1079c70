import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_input.embedding import embed_tokens
from jax_input.inputs import dropout, transformer_input
from jax_input.positions import add_positions
from jax_input.sinusoidal import sinusoidal_table

DTYPES = [np.float32, jnp.bfloat16, np.float16]


def draw(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def draw_mask(shape, seed=1):
    return np.random.default_rng(seed).random(shape) < 0.8


def bits(array):
    array = np.asarray(array)
    return array.view(f"uint{8 * array.dtype.itemsize}")


def test_input_is_embed_then_add_then_drop():
    token_ids, embedding, table = np.array([[1, 0, 3]]), draw((5, 4)), draw((6, 4), seed=1)
    positions, key = np.array([2, 0, 1]), jax.random.key(3)
    x = embed_tokens(token_ids, embedding, scale="sqrt", padding_idx=0)
    x = add_positions(x, table, positions=positions)
    actual = transformer_input(
        token_ids,
        embedding,
        table,
        positions=positions,
        padding_idx=0,
        dropout_rate=0.4,
        dropout_key=key,
    )
    np.testing.assert_array_equal(actual, dropout(x, 0.4, key=key))


def test_defaults_scale_by_the_square_root_and_drop_nothing():
    embedding, table = draw((5, 4)), draw((6, 4), seed=1)
    expected = embedding[[1, 3]] * np.float32(2) + table[:2]
    np.testing.assert_array_equal(transformer_input([1, 3], embedding, table), expected)
    unscaled = transformer_input([1, 3], embedding, table, scale=None, dropout_rate=0.5)
    np.testing.assert_array_equal(unscaled, embedding[[1, 3]] + table[:2])


@pytest.mark.parametrize("table_dtype", DTYPES)
def test_result_has_the_dtype_of_the_table(table_dtype):
    table = draw((6, 4), table_dtype)
    for param_dtype in DTYPES:
        assert transformer_input([[1]], draw((5, 4), param_dtype), table).dtype == table_dtype


@pytest.mark.parametrize("shape", [(2,), (3, 2), (2, 3, 2), (0, 2), (3, 0)])
def test_last_axis_of_the_ids_is_the_sequence(shape):
    embedding, table = draw((5, 4)), draw((6, 4), seed=1)
    token_ids = np.random.default_rng(0).integers(0, 5, shape)
    expected = embedding[token_ids] * np.float32(2) + table[: shape[-1]]
    np.testing.assert_array_equal(transformer_input(token_ids, embedding, table), expected)


def test_positions_run_along_the_sequence_and_never_along_the_batch():
    embedding, table = draw((9, 8)), sinusoidal_table(6, 8)
    token_ids, order = np.random.default_rng(1).integers(0, 9, (4, 6)), np.array([2, 0, 3, 1])
    rows = transformer_input(token_ids, embedding, table)
    added = rows - embed_tokens(token_ids, embedding, scale="sqrt")
    # The sums are below 16, so rounded by up to 2**-21.
    np.testing.assert_allclose(added, np.broadcast_to(table, (4, 6, 8)), rtol=0, atol=2**-20)
    reordered = transformer_input(token_ids[order], embedding, table)
    np.testing.assert_array_equal(reordered, rows[order])
    (forth,), (back,) = (transformer_input(ids, embedding, table) for ids in ([[1, 2]], [[2, 1]]))
    assert (np.abs(forth - back[::-1]).max(1) > 0.1).all()


def test_single_id_without_a_sequence_and_a_table_of_another_width_are_refused():
    with pytest.raises(ValueError, match=r"`x` must have shape \[\*batch, seq_len, d_model\]"):
        transformer_input(3, draw((5, 4)), draw((6, 4)))
    with pytest.raises(ValueError, match=r"d_model of `table`, 3; got \[1, 4\]"):
        transformer_input([3], draw((5, 4)), draw((6, 3)))


def separately_rounded(token_ids, embedding, table, mask, rate):
    """Every step of the input part in NumPy, which rounds each one by itself."""
    dtype, d_model = table.dtype, table.shape[1]
    x = (embedding[token_ids].astype(np.float32) * np.float32(np.sqrt(d_model))).astype(dtype)
    rows = table[: token_ids.shape[-1]].astype(np.float32)
    x = (x.astype(np.float32) + rows).astype(dtype)
    return np.where(mask, x.astype(np.float32) * np.float32(1 / (1 - rate)), 0).astype(dtype)


def input_and_gradient(token_ids, embedding, table, mask, cotangent):
    def call(embedding, table):
        return dropout(transformer_input(token_ids, embedding, table), 0.2, mask=mask)

    rows, pullback = jax.vjp(call, embedding, table)
    return rows, *pullback(cotangent)


@pytest.mark.parametrize(
    ("param_dtype", "dtype", "shape"),
    [(np.float32, dtype, (8, 512, 512)) for dtype in DTYPES]
    + [(dtype, dtype, (4, 100, 300)) for dtype in DTYPES],
)
def test_bits_are_those_of_separate_roundings_forward_and_back(param_dtype, dtype, shape):
    batch, seq_len, d_model = shape
    # Each row is hit at most twice, so that the order of its sum does not matter.
    token_ids = np.random.default_rng(4).permutation(np.arange(batch * seq_len) // 2)
    token_ids = token_ids.reshape(batch, seq_len).astype(np.int32)
    embedding = draw((batch * seq_len // 2, d_model), param_dtype)
    table, cotangent = draw((seq_len + 9, d_model), dtype, seed=2), draw(shape, dtype, seed=3)
    mask = draw_mask(shape)
    arguments = (token_ids, embedding, table, mask, cotangent)

    eager = input_and_gradient(*map(jnp.asarray, arguments))
    expected = separately_rounded(token_ids, embedding, table, mask, 0.2)
    np.testing.assert_array_equal(bits(eager[0]), bits(expected))
    # Back: one rounding to dtype at each step, products in float32, sums in float32.
    factor, scale = np.float32(1 / (1 - 0.2)), np.float32(np.sqrt(d_model))
    parts = np.where(mask, cotangent.astype(np.float32) * factor, 0).astype(dtype)
    of_embedding = np.zeros(embedding.shape, np.float32)
    np.add.at(of_embedding, token_ids, parts.astype(np.float32) * scale)
    np.testing.assert_array_equal(eager[1], of_embedding.astype(param_dtype))

    jitted = jax.jit(input_and_gradient)(*arguments)
    remat = jax.jit(jax.checkpoint(input_and_gradient))(*arguments)
    for other in (jitted, remat):
        for ours, theirs in zip(other, eager, strict=True):
            np.testing.assert_array_equal(bits(ours), bits(theirs))

    def step(carry, row):
        rows = transformer_input(row[0], embedding, table)
        return carry, dropout(rows, 0.2, mask=row[1])

    _, scanned = jax.lax.scan(step, None, (token_ids, mask))
    np.testing.assert_array_equal(bits(scanned), bits(expected))
