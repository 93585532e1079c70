import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jax_input.rounding import product, round_to, rounded, widen

TIES_AND_EDGES = [
    *(0.0, -0.0, np.inf, -np.inf, np.nan, 65_504.0, 65_519.9, 65_520.0, -65_520.0, 3e38),
    *(2**-24, 2**-25, -(2**-25), 1.00001 * 2**-25, 1.5 * 2**-24, 2.5 * 2**-24),
    *(2**-14, 2**-14 - 2**-25, 2**-14 - 2**-26, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11),
]


def sample(count=1 << 16):
    generator = np.random.default_rng(0)
    spread = np.exp2(generator.integers(-30, 20, count))
    values = generator.standard_normal(count) * spread
    return np.concatenate([values, TIES_AND_EDGES]).astype(np.float32)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
def test_narrowing_rounds_to_nearest_even_with_gradual_underflow(dtype, transform):
    x = sample()
    with np.errstate(over="ignore"):
        expected = x.astype(dtype)
    actual = transform(lambda x: round_to(x, np.dtype(dtype)))(jnp.asarray(x))
    assert actual.dtype == dtype
    np.testing.assert_array_equal(actual.astype(np.float32), expected.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))
    kept = transform(lambda x: rounded(x, np.dtype(dtype)))(jnp.asarray(x))
    np.testing.assert_array_equal(kept, expected.astype(np.float32))


@pytest.mark.parametrize(
    ("dtype", "value", "nearest"),
    [
        # Each lies just beyond a tie of the narrow dtype, by less than float32 shows.
        (jnp.bfloat16, 1 + 2**-8 + 2**-40, 1 + 2**-7),
        (jnp.bfloat16, 1 - 2**-9 + 2**-40, 1.0),
        (np.float16, 1 + 2**-11 + 2**-40, 1 + 2**-10),
        (np.float16, 2**-14 + 2**-25 + 2**-60, 2**-14 + 2**-24),
        (np.float16, 2**-25 + 2**-70, 2**-24),
        (np.float32, 1 + 2**-24 + 2**-50, 1 + 2**-23),
    ],
)
def test_float64_is_rounded_once_and_not_by_way_of_float32(dtype, value, nearest):
    with jax.enable_x64(True):
        actual = jax.jit(lambda x: round_to(x, np.dtype(dtype)))(np.float64(value))
    assert float(actual) == nearest


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.float16])
def test_widening_rounds_again_what_the_compiler_left_wide(dtype):
    left, right = np.random.default_rng(0).standard_normal((2, 50_000)).astype(dtype)
    total = (left.astype(np.float32) + right.astype(np.float32)).astype(dtype)
    expected = total.astype(np.float32) * np.float32(3)
    tripled = jax.jit(lambda left, right: widen(left + right) * np.float32(3))(left, right)
    np.testing.assert_array_equal(tripled, expected)


@pytest.mark.parametrize("x64", [False, True])
def test_product_is_not_contracted_with_the_sum_that_follows(x64):
    dtype = np.float64 if x64 else np.float32
    x, y = np.random.default_rng(0).standard_normal((2, 8, 512, 512)).astype(dtype)
    with jax.enable_x64(x64):
        actual = jax.jit(lambda x, y: product(x, 512**0.5) + y)(x, y)
    np.testing.assert_array_equal(actual, x * dtype(512**0.5) + y)


def test_product_keeps_nan_infinity_and_the_sign_of_zero():
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38], np.float32)
    with np.errstate(over="ignore"):
        expected = x * np.float32(-2)
    actual = product(jnp.asarray(x), -2)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(np.signbit(actual)[1:], np.signbit(expected)[1:])
    all_ones = jax.lax.bitcast_convert_type(jnp.int32(2**31 - 1), jnp.float32)
    assert np.isnan(product(all_ones, 1))


def test_product_can_be_differentiated_twice_in_both_modes():
    x = np.random.default_rng(0).standard_normal(5).astype(np.float32)
    check_grads(lambda x: product(x, 1.7) ** 2, (x,), order=2)


def test_gradient_passes_through_the_rounding_of_values_unrounded():
    x, slope = np.float32(0.3), np.float32(1 / 3)
    bfloat16 = np.dtype(jnp.bfloat16)
    assert jax.grad(lambda x: rounded(x, bfloat16) * slope)(x) == slope
    _, tangent = jax.jvp(lambda x: rounded(x, bfloat16), (x,), (slope,))
    assert tangent == slope
