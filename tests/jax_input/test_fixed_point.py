from fractions import Fraction

import jax
import jax.numpy as jnp
import ml_dtypes
import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_input import fixed_point
from jax_input.fixed_point import Magnitude

DTYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
words = st.integers(0, 2**63) | st.builds(
    lambda top, places, low: min(top << places | low, 2**63),
    st.integers(0, 2**12),
    st.integers(30, 51),
    st.integers(0, 1),
)
shifts = st.integers(0, 63)
products = st.integers(0, 2**64 - 1)


def magnitudes(triples):
    word, shift, negative = zip(*triples, strict=True)
    return Magnitude(np.array(word, np.uint64), np.array(shift, np.uint64), np.array(negative))


def nearest(value: Fraction, dtype) -> Fraction:
    """Round to nearest even at the dtype's own spacing, subnormals included."""
    kind = jnp.finfo(dtype)
    if value == 0:
        return Fraction(0)
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    while Fraction(2) ** exponent > value:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= value:
        exponent += 1
    spacing = Fraction(2) ** (max(exponent, int(kind.minexp)) - int(kind.nmant))
    return round(value / spacing) * spacing


@pytest.mark.parametrize("dtype", DTYPES)
@given(st.lists(st.tuples(words, shifts, st.booleans()), min_size=20, max_size=20))
def test_rounding_is_to_nearest_even_with_gradual_underflow(dtype, triples):
    value = magnitudes(triples)
    with jax.enable_x64(True):
        got = np.asarray(jax.jit(fixed_point.round_to, static_argnums=1)(value, np.dtype(dtype)))
    assert got.dtype == dtype
    for rounded, (word, shift, negative) in zip(got, triples, strict=True):
        expected = nearest(Fraction(word, 2 ** (63 + shift)), dtype)
        assert Fraction(float(rounded)) == (-expected if negative else expected)
        assert np.signbit(float(rounded)) == negative


@pytest.mark.parametrize("dtype", DTYPES)
def test_invalid_entries_are_nan(dtype):
    with jax.enable_x64(True):
        value = Magnitude(
            jnp.array([5, 5], jnp.uint64), jnp.zeros(2, jnp.uint64), jnp.zeros(2, bool)
        )
        got = fixed_point.round_to(value, np.dtype(dtype), invalid=jnp.array([True, False]))
    assert np.isnan(np.asarray(got).astype(float)).tolist() == [True, False]


@given(
    st.lists(
        st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), min_size=20, max_size=20
    )
)
def test_upper_half_of_a_product_is_at_most_two_too_small(pairs):
    left, right = (np.array(side, np.uint64) for side in zip(*pairs, strict=True))
    with jax.enable_x64(True):
        got = jax.jit(fixed_point.multiply_high)(left, right)
    for high, (a, b) in zip(np.asarray(got), pairs, strict=True):
        assert 0 <= (a * b >> 64) - int(high) <= 2


@given(st.lists(st.tuples(st.floats(0, 6.28), st.floats(0, 6.28)), min_size=20, max_size=20))
def test_sum_of_angles_is_within_2_to_the_minus_60(pairs):
    def fixed(function, angle):
        return int(mpmath.nint(function(mpmath.mpf(angle)) * 2**62))

    with mpmath.workprec(200):
        left, right = zip(*pairs, strict=True)
        rows = [
            tuple(np.array([fixed(f, a) for a in side], np.int64) for f in (mpmath.sin, mpmath.cos))
            for side in (left, right)
        ]
        with jax.enable_x64(True):
            value = jax.jit(fixed_point.add_angles)(*rows)
        for (a, b), word, negative in zip(pairs, value.word, value.negative, strict=True):
            got = mpmath.ldexp(int(word), -63) * (-1 if negative else 1)
            exact = mpmath.sin(mpmath.mpf(a) + mpmath.mpf(b))
            assert abs(got - exact) < mpmath.mpf(2) ** -60


@given(st.lists(st.tuples(words, shifts, st.booleans()), min_size=20, max_size=20))
@example([(3, 1, False)] * 20)  # three quarters of a unit, which a cut would lose
def test_fixed_point_keeps_62_fraction_bits(triples):
    value = magnitudes(triples)
    with jax.enable_x64(True):
        got = jax.jit(fixed_point.to_fixed)(value)
    for fixed, (word, shift, negative) in zip(np.asarray(got), triples, strict=True):
        exact = Fraction(word, 2 ** (shift + 1)) * (-1 if negative else 1)
        assert abs(int(fixed) - exact) <= Fraction(1, 2)  # rounded, not cut
