"""dropout: its values, its draws, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_input.inputs import dropout

DTYPES = [np.float32, jnp.bfloat16, np.float16]
ONES = np.ones((3, 64), np.float32)


def draw(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def draw_mask(shape, seed=1):
    return np.random.default_rng(seed).random(shape) < 0.8


def bits(array):
    array = np.asarray(array)
    return array.view(f"uint{8 * array.dtype.itemsize}")


# Values


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.15, 1 / 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_kept_values_are_scaled_in_float32_and_rounded_once(dtype, rate, transform):
    x, mask = draw((64, 128), dtype), draw_mask((64, 128))
    factor = np.float32(1 / (1 - rate))
    expected = np.where(mask, x.astype(np.float32) * factor, 0).astype(dtype)
    actual = transform(lambda x, mask: dropout(x, rate, mask=mask))(x, mask)
    assert actual.dtype == dtype
    np.testing.assert_array_equal(bits(actual), bits(expected))


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.5, 0.9])
def test_kept_values_are_those_of_pytorch(rate):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(draw((64, 128)))
    dropped = torch.nn.functional.dropout(x, rate)
    actual = dropout(x.numpy(), rate, mask=(dropped != 0).numpy())
    np.testing.assert_array_equal(actual, dropped.numpy())


def test_float64_values_are_scaled_in_float64():
    with jax.enable_x64(True):
        actual = dropout(np.array([1.0, 3.0]), 0.1, mask=np.array([True, False]))
    assert actual.tolist() == [1 / (1 - 0.1), 0]


def test_dropped_nan_is_zero_and_kept_nan_stays():
    x = np.array([np.nan, np.nan, -np.inf, -1.0], np.float32)
    mask = np.array([True, False, False, False])
    actual = np.asarray(dropout(x, 0.5, mask=mask))
    assert np.isnan(actual[0])
    assert bits(actual[1:]).tolist() == [0, 0, 0]


@pytest.mark.parametrize("rate", [0, 0.0, 0.3, 1])
def test_without_key_and_mask_x_comes_back_unchanged(rate):
    x = draw((2, 3), jnp.bfloat16)
    np.testing.assert_array_equal(bits(dropout(x, rate)), bits(x))


def test_rate_zero_keeps_everything_and_rate_one_nothing():
    x, key = draw((2, 3)), jax.random.key(0)
    mask = np.array([[True] * 3, [False] * 3])
    np.testing.assert_array_equal(dropout(x, 0, key=key), x)
    np.testing.assert_array_equal(dropout(x, 0.0, mask=mask), np.where(mask, x, 0))
    for chosen in ({"key": key}, {"mask": mask}):
        assert bits(dropout(-ONES[:2, :3], 1, **chosen)).tolist() == [[0] * 3] * 2
        gradient = jax.grad(lambda x, chosen=chosen: dropout(x, 1.0, **chosen).sum())(x)
        assert bits(gradient).tolist() == [[0] * 3] * 2


@pytest.mark.parametrize("rate", [0.5, np.float32(0.5), np.float64(0.5), np.float16(0.5)])
def test_rate_of_any_number_type_leaves_the_dtype(rate):
    actual = dropout(ONES.astype(jnp.bfloat16), rate, mask=ONES == 1)
    assert actual.dtype == jnp.bfloat16
    assert (np.asarray(actual, np.float32) == 2).all()


# Draws


def test_each_element_is_drawn_for_itself_with_the_chance_asked_for():
    x = np.ones((40, 50, 60), np.float32)
    kept = np.asarray(dropout(x, 0.3, key=jax.random.key(0))) != 0
    sigma = np.sqrt(0.3 * 0.7)
    assert abs(kept.mean() - 0.7) < 5 * sigma / np.sqrt(kept.size)
    for axis in range(3):  # a mask shared along an axis would leave means of 0 and 1 only
        means = kept.mean(axis)
        assert np.abs(means - 0.7).max() < 7 * sigma / np.sqrt(kept.shape[axis])
        assert 0 < means.std() < 2 * sigma / np.sqrt(kept.shape[axis])


def test_masks_differ_between_examples_layers_and_steps_and_repeat_with_the_key():
    key = jax.random.key(1)
    keys = jax.random.split(key, 3)
    whole = dropout(ONES, 0.5, key=key)
    mapped = jax.vmap(lambda x, key: dropout(x, 0.5, key=key))(ONES, keys)
    _, layers = jax.lax.scan(lambda _, key: (None, dropout(ONES[0], 0.5, key=key)), None, keys)
    steps = [dropout(ONES[0], 0.5, key=jax.random.fold_in(key, step)) for step in range(3)]
    for rows in (whole, mapped, layers, jnp.stack(steps)):
        assert len(np.unique(rows, axis=0)) == 3
        assert set(np.unique(rows)) == {0, 2}
    np.testing.assert_array_equal(dropout(ONES, 0.5, key=key), whole)
    np.testing.assert_array_equal(mapped, layers)


@pytest.mark.parametrize("dtype", DTYPES)
def test_key_gives_one_mask_whatever_dtype_jit_and_x64(dtype):
    key = jax.random.key(2)
    expected = np.asarray(dropout(ONES, 0.3, key=key)) != 0
    for x64 in (False, True):
        with jax.enable_x64(x64):
            x = ONES.astype(dtype)
            kept = jax.jit(lambda x, key: dropout(x, 0.3, key=key) != 0)(x, key)
        np.testing.assert_array_equal(kept, expected)
    raw = dropout(ONES, 0.3, key=jax.random.PRNGKey(2)) != 0
    np.testing.assert_array_equal(raw, expected)


# What is refused


@pytest.mark.parametrize("rate", [1.5, -0.1, np.nan, np.inf, 2, -1])
def test_rate_outside_zero_to_one_is_refused(rate):
    with pytest.raises(ValueError, match=rf"`rate` must be from 0 to 1, .*, got {rate}"):
        dropout(ONES, rate)


@pytest.mark.parametrize(
    ("rate", "named"),
    [
        (True, "bool True"),
        ("0.1", "str '0.1'"),
        (None, "NoneType None"),
        (jnp.float32(0.1), "JAX array"),
    ],
)
def test_rate_that_is_no_python_number_is_refused(rate, named):
    message = rf"`rate` must be a Python number from 0 to 1, got a {named}.*pass float\(rate\)"
    with pytest.raises(TypeError, match=message):
        dropout(ONES, rate)


def test_traced_rate_is_refused():
    with pytest.raises(TypeError, match=r"`rate` must be a Python number .* got a JAX array"):
        jax.jit(lambda rate: dropout(ONES, rate))(0.1)


@pytest.mark.parametrize("mask", [ONES, ONES.astype(int), ONES.astype(np.uint8)])
def test_mask_that_is_not_boolean_is_refused_with_the_polarity(mask):
    with pytest.raises(TypeError, match=r"`mask` must be boolean with True = keep, .* == 1"):
        dropout(ONES, 0.5, mask=mask)


@pytest.mark.parametrize("shape", [(), (64,), (1, 64), (3, 1), (64, 3)])
def test_mask_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"`mask` must have the shape of `x`, \[3, 64\], got \["):
        dropout(ONES, 0.5, mask=np.ones(shape, bool))


def test_key_together_with_a_mask_is_refused():
    with pytest.raises(ValueError, match="`key` and `mask` are both given"):
        dropout(ONES, 0.5, key=jax.random.key(0), mask=ONES == 1)


def test_integers_are_refused():
    with pytest.raises(TypeError, match=r"`x` must hold float32, .* got int32"):
        dropout(ONES.astype(np.int32), 0.5)


@given(rate=st.floats(0, 1, exclude_max=True), seed=st.integers(0, 9))
def test_every_rate_keeps_finite_values_finite_and_only_scales_them(rate, seed):
    mask = draw_mask((2, 3), seed)
    actual = np.asarray(dropout(ONES[:2, :3], rate, mask=mask))
    np.testing.assert_array_equal(actual, np.where(mask, np.float32(1 / (1 - rate)), 0))
