import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_input.positions import add_positions
from jax_input.rebuild import rebuild_rows
from jax_input.sinusoidal import PAPER, sinusoidal_table

FLOAT32 = np.dtype(np.float32)


def rebuild(tokens, positions, max_len):
    return rebuild_rows(tokens, positions, (max_len, 4), PAPER, FLOAT32)


@pytest.mark.parametrize(
    ("tokens", "rows"), [((2, 6), 6), ((6,), 6), ((), 1), ((2, 0), 1), ((2, 60), 50)]
)
def test_without_positions_the_rows_are_those_of_one_sequence(tokens, rows):
    table, positions = rebuild(tokens, None, 50)
    assert positions is None
    np.testing.assert_array_equal(table, sinusoidal_table(50, 4)[:rows])


# Of 36 rows a table takes a third of the time of 12 rows by themselves.
@pytest.mark.parametrize(("max_len", "rows"), [(36, 36), (37, 12)])
def test_the_cheaper_of_the_table_and_a_row_for_each_position_is_built(max_len, rows):
    positions = jnp.arange(12).reshape(2, 6)[::-1] * 3
    table, places = rebuild((2, 6), positions, max_len)
    assert table.shape == (rows, 4)
    np.testing.assert_array_equal(
        np.asarray(table)[np.asarray(places)], sinusoidal_table(36, 4)[positions]
    )


@pytest.mark.parametrize("kind", [np.int32, np.uint8, np.int64])
def test_positions_of_every_width_keep_their_rows(kind):
    x, positions = jnp.zeros((2, 3, 4)), np.array([3, 250, 0], kind)
    table, places = rebuild((2, 3), positions, 5_000)
    x = add_positions(x, table, positions=places)
    np.testing.assert_array_equal(x[1], sinusoidal_table(251, 4)[positions.astype(int)])


def test_a_position_beyond_32_bits_has_no_row():
    table, places = rebuild((3,), np.array([0, 2**32, 1]), 5_000)
    with pytest.raises(ValueError, match=r"`positions` holds 4294967296 at \[1\], but"):
        add_positions(jnp.zeros((3, 4)), table, positions=places)


def test_rows_are_built_under_every_transformation():
    positions = jnp.arange(12).reshape(2, 6)
    expected = sinusoidal_table(12, 4).reshape(2, 6, 4)

    def rows(positions):
        table, places = rebuild((6,), positions, 5_000)
        return add_positions(jnp.zeros((6, 4)), table, positions=places)

    np.testing.assert_array_equal(jax.vmap(rows)(positions), expected)
    np.testing.assert_array_equal(jax.lax.map(rows, positions), expected)
    scanned = jax.lax.scan(lambda carry, p: (carry, rows(p)), 0, positions)[1]
    np.testing.assert_array_equal(scanned, expected)
    np.testing.assert_array_equal(jax.jit(jax.checkpoint(rows))(positions[1]), expected[1])


def test_booleans_are_no_positions():
    with pytest.raises(TypeError, match="`positions` must hold integers, got bool"):
        rebuild((3,), np.array([True, False, True]), 50)
