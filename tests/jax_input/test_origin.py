import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_input.origin import exact_rows, published_bound, require_position_table, tell_apart
from jax_input.sinusoidal import (
    DIFFUSERS,
    MARIAN,
    PAPER,
    TENSOR2TENSOR,
    Sinusoid,
    encode_positions,
    sinusoidal_table,
)

ROWS = np.unique(np.r_[0:60, 4_990:5_000, np.geomspace(60, 131_071, 60).astype(int)])


def by_numpy(base, d_model):
    step, base = np.arange(0, d_model, 2, dtype=np.float32), np.float32(base)
    yield np.exp(step * -(np.log(base) / np.float32(d_model)))
    yield np.exp(-np.log(base) * step / np.float32(d_model))
    yield 1 / np.power(base, step / np.float32(d_model))


def by_jax(base, d_model):
    step = jnp.arange(0, d_model, 2, dtype=jnp.float32)
    formulas = [
        lambda step: jnp.exp(step * (-np.log(base) / d_model)),
        lambda step: jnp.exp(-jnp.log(jnp.float32(base)) * step / d_model),
        lambda step: 1 / jnp.float32(base) ** (step / d_model),
    ]
    for formula in formulas:
        yield np.asarray(formula(step))
        yield np.asarray(jax.jit(formula)(step))


def by_torch(base, d_model):
    torch = pytest.importorskip("torch")
    step = torch.arange(0.0, d_model, 2)
    yield torch.exp(step * (-float(np.log(base)) / d_model)).numpy()
    yield (1 / torch.tensor(base) ** (step / d_model)).numpy()


def published(positions, frequency):
    """The formula of the articles, in float32."""
    angle = positions.astype(np.float32)[:, None] * frequency
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(len(positions), -1)


@pytest.mark.parametrize("frequencies", [by_numpy, by_jax, by_torch])
@pytest.mark.parametrize("base", [100.0, 10_000.0, 1e6])
def test_published_tables_of_every_framework_are_within_the_bound(frequencies, base):
    worst = 0.0
    for d_model in (8, 384, 1024):
        exact = exact_rows(ROWS, d_model, Sinusoid(base), np.dtype(np.float64))
        bound = published_bound(ROWS, d_model, Sinusoid(base))
        for frequency in frequencies(base, d_model):
            worst = max(worst, (np.abs(published(ROWS, frequency) - exact) / bound).max())
    # A bound far above what is seen would let a wrong table pass.
    assert 0.3 < worst <= 0.9


@pytest.mark.parametrize("sinusoid", [PAPER, MARIAN, TENSOR2TENSOR, DIFFUSERS])
@pytest.mark.parametrize("d_model", [1, 2, 7, 8])
def test_the_bound_grows_with_the_frequency_of_the_column(sinusoid, d_model):
    """The slope of a column is its frequency times the roundings that it went through."""
    start, one, two = published_bound(np.arange(3), d_model, sinusoid)
    np.testing.assert_allclose(two - one, one - start, rtol=1e-6)
    exchanged = Sinusoid(
        sinusoid.base, sinusoid.layout, sinusoid.freq_shift, not sinusoid.cos_first
    )
    # Of a column's sine and cosine one has its frequency as slope at position 0.
    tangents = [
        jax.jvp(lambda x, s=s: encode_positions(x, d_model, sinusoid=s), (0.0,), (1.0,))[1]
        for s in (sinusoid, exchanged)
    ]
    frequency = np.abs(np.asarray(tangents)).max(0)
    roundings = (one - start) * 2.0**24 / frequency
    np.testing.assert_allclose(roundings, 5 - 4 * np.log(frequency), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.float16, np.float64])
def test_exact_rows_are_exact_in_every_dtype(dtype):
    positions = np.array([0, 7, 59])
    rows = exact_rows(positions, 16, PAPER, np.dtype(dtype))
    assert tell_apart("table", rows, positions, PAPER) == ("exact", 0.0)


def test_rows_are_known_while_a_program_is_traced():
    found = []
    jax.jit(lambda x: found.append(exact_rows(np.arange(3), 4, PAPER, np.dtype("float32"))) or x)(1)
    np.testing.assert_array_equal(found[0], sinusoidal_table(3, 4))


@pytest.mark.parametrize("row", [0, 1, 59])
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_a_shift_of_twice_the_bound_is_seen_and_placed(row, sign, dtype):
    positions = np.arange(60)
    exact = exact_rows(positions, 16, PAPER, np.dtype(dtype))
    allowed = published_bound(positions, 16, PAPER)[row, 3]
    ulp = float(jnp.finfo(dtype).eps) if dtype == jnp.bfloat16 else 0.0
    rows = exact.astype(np.float64)
    rows[row, 3] += sign * 2 * (allowed + ulp)
    with pytest.raises(ValueError, match=rf"`name` is neither .*: row {row}, column 3 holds "):
        tell_apart("name", rows.astype(dtype), positions, PAPER)


def test_an_entry_that_is_no_number_is_foreign():
    rows = np.array(sinusoidal_table(4, 8))
    rows[2, 5] = np.nan
    with pytest.raises(ValueError, match=r"row 2, column 5 holds nan, exact is 0\.9998"):
        tell_apart("table", rows, np.arange(4), PAPER)


def test_the_message_names_the_position_of_a_row():
    rows = np.array(encode_positions(np.array([0, 25, 49]), 8))
    rows[1, 2] += 1
    with pytest.raises(ValueError, match="row 25, column 2"):
        tell_apart("table", rows, np.array([0, 25, 49]), PAPER)


def test_a_table_of_a_module_has_no_gradient():
    table = sinusoidal_table(9, 4)

    def loss(table):
        return require_position_table(table, (9, 4), table.dtype, PAPER).sum()

    assert not jax.grad(loss)(table).any()
    assert not jax.jit(jax.grad(loss))(table).any()


def test_a_known_table_of_a_module_is_returned_as_it_is():
    table = sinusoidal_table(9, 4)
    found = require_position_table(table, (9, 4), table.dtype, PAPER)
    np.testing.assert_array_equal(found, table)
