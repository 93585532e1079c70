"""add_positions: which rows, how they are added, and their gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_input.positions import add_positions, position_ids
from jax_input.sinusoidal import encode_positions, sinusoidal_table

TABLE = np.arange(48, dtype=np.float32).reshape(16, 3) + 1
DTYPES = [np.float32, jnp.bfloat16, np.float16]


def draw(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@jax.jit
def rows_at(positions):
    """Return the rows that traced positions add."""
    return add_positions(jnp.zeros((*positions.shape, 3)), TABLE, positions=positions)


@pytest.mark.parametrize("batch", [(), (4,), (2, 3), (0,)])
def test_rows_run_along_the_last_axis_but_one(batch):
    x = draw((*batch, 6, 3))
    for call in (add_positions, jax.jit(add_positions)):
        np.testing.assert_array_equal(call(x, TABLE), x + TABLE[:6])


def test_order_of_tokens_counts_and_order_of_sequences_does_not():
    # Positions along the batch axis would give every token of a sequence the same row.
    embedding, token_ids = draw((9, 3)), np.random.default_rng(1).integers(0, 9, (4, 6))
    x, order = embedding[token_ids], [2, 0, 3, 1]
    summed = add_positions(x, TABLE)
    np.testing.assert_array_equal(add_positions(x[order], TABLE), summed[jnp.array(order)])
    one_two, two_one = add_positions(embedding[[[1, 2], [2, 1]]], TABLE)
    assert not np.isclose(one_two, two_one[::-1]).any()


@pytest.mark.parametrize(("batch", "shape"), [((2,), (2, 4)), ((2,), (4,)), ((), (4,))])
def test_positions_pick_the_row_of_each_token(batch, shape):
    x = draw((*batch, 4, 3))
    positions = np.random.default_rng(2).integers(0, 16, shape)
    expected = x + TABLE[positions]
    np.testing.assert_array_equal(add_positions(x, TABLE, positions=positions), expected)
    np.testing.assert_array_equal(add_positions(x, TABLE, positions=positions.tolist()), expected)
    traced = jax.jit(lambda positions: add_positions(x, TABLE, positions=positions))(positions)
    np.testing.assert_array_equal(traced, expected)


def test_traced_offset_past_the_end_gives_nan_and_never_another_row():
    x = np.zeros((4, 3), np.float32)

    @jax.jit
    def decode(offset):
        return add_positions(x, TABLE, positions=position_ids(4, offset=offset))

    rows = decode(14)
    np.testing.assert_array_equal(rows[:2], TABLE[14:])
    assert np.isnan(rows[2:]).all()
    np.testing.assert_array_equal(decode(12), TABLE[12:])


def test_rows_past_the_end_of_a_table_can_be_computed():
    decode = jax.jit(lambda offset: encode_positions(position_ids(4, offset=offset), 8))
    np.testing.assert_array_equal(decode(14), sinusoidal_table(18, 8)[14:])


def test_other_offsets_run_the_same_program_and_it_holds_no_table():
    x, table = jnp.zeros((1, 8, 1_024)), jnp.zeros((8_192, 1_024))

    @jax.jit
    def decode(x, table, offset):
        return add_positions(x, table, positions=position_ids(8, offset=offset))

    for offset in (0, 7, 8_184):
        decode(x, table, offset)
    assert decode._cache_size() == 1
    assert len(decode.lower(x, table, 0).as_text()) < 1_000_000


@pytest.mark.parametrize("position", [-1, -16, 16, 17, 2**31 - 1, -(2**31)])
def test_traced_position_without_a_row_gives_nan(position):
    rows = rows_at(np.array([3, position]))
    np.testing.assert_array_equal(rows[0], TABLE[3])
    assert np.isnan(rows[1]).all()


@pytest.mark.parametrize(
    ("positions", "named"),
    [
        ([0, 16], r"16 at \[1\]"),
        ([-1, 0], r"-1 at \[0\]"),
        (np.array([0, 2**32]), r"4294967296 at"),
    ],
)
def test_known_position_without_a_row_raises_naming_it_and_max_len(positions, named):
    message = f"`positions` holds {named}.* max_len 16: its rows run from 0 to 15. Build it with"
    with pytest.raises(ValueError, match=message):
        add_positions(np.zeros((2, 3), np.float32), TABLE, positions=positions)


@given(positions=st.tuples(*[st.integers(-3, 18) | st.integers(-(2**31), 2**31 - 1)] * 4))
def test_every_traced_position_gives_its_row_or_nan(positions):
    expected = [TABLE[p] if 0 <= p < 16 else np.full(3, np.nan) for p in positions]
    np.testing.assert_array_equal(rows_at(np.array(positions, np.int32)), expected)


@pytest.mark.parametrize(("max_len", "seq_len"), [(16, 17), (1, 5)])
def test_sequence_longer_than_the_table_raises_naming_both(max_len, seq_len):
    message = (
        f"`x` has seq_len {seq_len}, but the position table has max_len {max_len}. "
        f"Build the table with max_len >= {seq_len}, or shorten the sequence."
    )
    for call in (add_positions, jax.jit(add_positions)):
        with pytest.raises(ValueError, match=message):
            call(np.zeros((2, seq_len, 3), np.float32), TABLE[:max_len])


def test_sequence_longer_than_the_table_may_use_its_rows_again():
    x = np.zeros((20, 3), np.float32)
    rows = add_positions(x, TABLE, positions=np.arange(20) % 16)
    np.testing.assert_array_equal(rows[16:], TABLE[:4])


@pytest.mark.parametrize(
    ("shape", "text"),
    [((3,), r"got \[3\]"), ((4, 5), r"d_model of `table`, 3; got \[4, 5\]"), ((), r"got \[\]")],
)
def test_x_of_another_shape_is_refused(shape, text):
    with pytest.raises(ValueError, match=f"`x` must have shape .*{text}"):
        add_positions(np.zeros(shape, np.float32), TABLE)


@pytest.mark.parametrize("shape", [(), (3,), (1, 4), (4, 2), (2, 4, 1)])
def test_positions_of_another_shape_are_refused(shape):
    message = r"`positions` must have shape \[2, 4\] or \[4\], as `x` without d_model, got \["
    with pytest.raises(ValueError, match=message):
        add_positions(np.zeros((2, 4, 3), np.float32), TABLE, positions=np.zeros(shape, int))


@pytest.mark.parametrize("positions", [[True, False], [0.0, 1.0]])
def test_positions_that_are_no_integers_are_refused(positions):
    with pytest.raises(TypeError, match=r"`positions` must hold integers, got (bool|float64)"):
        add_positions(np.zeros((2, 3), np.float32), TABLE, positions=positions)


@pytest.mark.parametrize(
    ("x", "table", "error", "text"),
    [
        (np.zeros((2, 3), int), TABLE, TypeError, "`x` must hold float32, .* got int32"),
        (np.zeros((2, 3), np.float32), TABLE.astype(int), TypeError, "`table` must hold .* int32"),
        (
            np.zeros((2, 3), np.float32),
            TABLE[None],
            ValueError,
            r"`table` must .*\[1, 16, 3\]",
        ),
        (np.zeros((2, 3), np.float32), TABLE[:0], ValueError, r"`table` must have .* got \[0, 3\]"),
    ],
)
def test_arrays_that_hold_no_floats_or_rows_are_refused(x, table, error, text):
    with pytest.raises(error, match=text):
        add_positions(x, table)


# Arithmetic and gradient


@pytest.mark.parametrize("given_positions", [False, True])
@pytest.mark.parametrize(
    ("dtype", "table_dtype"),
    [(dtype, np.float32) for dtype in DTYPES] + [(np.float32, jnp.bfloat16), (np.float16,) * 2],
)
def test_rows_are_cast_once_and_added_in_the_dtype_of_x(dtype, table_dtype, given_positions):
    x, table = draw((2, 64, 128), dtype), draw((80, 128), table_dtype, seed=1)
    positions = np.random.default_rng(2).integers(0, 80, (2, 64))
    rows = (table[positions] if given_positions else table[:64]).astype(dtype)
    expected = (x.astype(np.float32) + rows.astype(np.float32)).astype(dtype)

    def call(x, table, positions):
        return add_positions(x, table, positions=positions if given_positions else None)

    for transform in (lambda f: f, jax.jit, lambda f: jax.jit(jax.checkpoint(f))):
        actual = transform(call)(x, table, positions)
        assert actual.dtype == dtype
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("given_positions", [False, True])
@pytest.mark.parametrize(
    ("dtype", "table_dtype"),
    [(np.float32, np.float32), (jnp.bfloat16, np.float32), (jnp.bfloat16, jnp.bfloat16)],
)
def test_gradient_of_the_table_is_summed_in_float32(dtype, table_dtype, given_positions, transform):
    # 4,097 needs 13 bits: a bfloat16 sum stops at 256, and a bfloat16 result is 4,096.
    count = 4_097 if table_dtype == np.float32 else 4_096
    positions = np.tile(np.arange(2, dtype=np.int32), (count, 1)) if given_positions else None

    def call(x, table):
        return add_positions(x, table, positions=positions)

    x = jnp.zeros((count, 2, 1), dtype)
    _, pullback = jax.vjp(call, x, jnp.zeros((3, 1), table_dtype))
    of_x, of_table = transform(pullback)(jnp.ones_like(x))
    assert of_table.dtype == table_dtype
    assert np.asarray(of_table, np.float32).tolist() == [[count], [count], [0]]
    assert (np.asarray(of_x, np.float32) == 1).all()


def test_position_without_a_row_drops_its_gradient():
    def loss(table, positions):
        rows = add_positions(jnp.zeros((3, 3)), table, positions=positions)
        return jnp.sum(rows, where=~jnp.isnan(rows))

    gradient = jax.jit(jax.grad(loss))(TABLE, np.array([-1, 2, 16]))
    assert gradient[:, 0].tolist() == [0, 0, 1] + [0] * 13


def test_float64_sums_stay_float64_and_float64_rows_are_rounded_once():
    # Beyond a tie of bfloat16 by less than float32 shows.
    table = np.full((2, 1), 1 + 2**-8 + 2**-40)
    with jax.enable_x64(True):
        assert add_positions(np.zeros((2, 1)), table).tolist() == table.tolist()
        narrow = add_positions(np.zeros((2, 1), jnp.bfloat16), table)
    assert np.asarray(narrow, np.float32).tolist() == [[1 + 2**-7]] * 2
