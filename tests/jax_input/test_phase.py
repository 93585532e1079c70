from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_input import phase
from jax_input.phase import Turns

MASK = 2**64 - 1
turns = st.integers(0, 2**128 - 1)


def limbs(values):
    return Turns(
        np.array([value >> 64 for value in values], np.uint64),
        np.array([value & MASK for value in values], np.uint64),
    )


def joined(angle):
    return [int(high) << 64 | int(low) for high, low in zip(*map(np.asarray, angle), strict=True)]


def in_integers(function, *args):
    with jax.enable_x64(True):
        return jax.jit(function)(*args)


def test_two_pi_is_right_in_every_digit_but_the_last():
    with mpmath.workdps(120):
        assert abs(mpmath.mpf(str(phase._TWO_PI)) - 2 * mpmath.pi) < mpmath.mpf(10) ** -89


@pytest.mark.parametrize(
    ("stored", "function", "log_error"),
    [
        (phase._SINE, lambda z: mpmath.sinc(mpmath.pi / 2 * mpmath.sqrt(z)) * mpmath.pi / 2, -68),
        (
            phase._COSINE,
            lambda z: (
                (1 - mpmath.cos(mpmath.pi / 2 * mpmath.sqrt(z))) / z if z else mpmath.pi**2 / 8
            ),
            -71,
        ),
    ],
    ids=["sine", "cosine"],
)
def test_coefficients_are_the_chebyshev_fit(stored, function, log_error):
    with mpmath.workprec(300):
        fit, error = mpmath.chebyfit(function, [mpmath.mpf(0), mpmath.mpf(1) / 4], 8, error=True)
        places = [63] * 5 + [56] * 3
        expected = [int(mpmath.nint(abs(c) * 2**p)) for c, p in zip(fit[::-1], places, strict=True)]
        assert error < mpmath.mpf(2) ** log_error
    assert list(stored) == expected


@pytest.mark.parametrize("base", [2.0, 10_000.0, 1e6, 0.5, 1e30])
@pytest.mark.parametrize("exponent", [Fraction(0), Fraction(1, 3), Fraction(358, 512), Fraction(1)])
def test_turns_are_rounded_to_the_nearest_unit(base, exponent):
    (unit,) = joined(phase.turns_per_position(base, [exponent]))
    with mpmath.workdps(120):
        power = mpmath.power(base, -mpmath.mpf(exponent.numerator) / exponent.denominator)
        exact = power / (2 * mpmath.pi) * mpmath.mpf(2) ** 128 % mpmath.mpf(2) ** 128
        assert abs(unit - exact) <= 0.5


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), turns), min_size=20, max_size=20))
def test_product_with_a_position_is_exact_modulo_a_turn(pairs):
    positions, frequencies = zip(*pairs, strict=True)
    got = in_integers(phase.multiply, np.array(positions, np.uint64), limbs(frequencies))
    assert joined(got) == [p * f % 2**128 for p, f in pairs]


@given(st.lists(st.tuples(turns, turns), min_size=20, max_size=20))
def test_sum_of_angles_is_exact_modulo_a_turn(pairs):
    left, right = zip(*pairs, strict=True)
    got = in_integers(phase.add, limbs(left), limbs(right))
    assert joined(got) == [(a + b) % 2**128 for a, b in pairs]


@given(st.lists(st.tuples(st.integers(0, MASK), turns), min_size=20, max_size=20))
def test_product_with_a_fraction_is_within_a_unit_in_62_bits(pairs):
    fractions, frequencies = zip(*pairs, strict=True)
    got = in_integers(phase.multiply_fraction, np.array(fractions, np.uint64), limbs(frequencies))
    for result, (fraction, frequency) in zip(joined(got), pairs, strict=True):
        assert 0 <= fraction * frequency // 2**64 - result < 2**66


def near_quarter_turns():
    offsets = st.integers(0, 120).flatmap(lambda bits: st.integers(0, 2**bits))
    return st.builds(
        lambda quarter, offset, sign: (quarter * 2**126 + sign * offset) % 2**128,
        st.integers(0, 3),
        offsets,
        st.sampled_from([1, -1]),
    )


@given(st.lists(turns | near_quarter_turns(), min_size=20, max_size=20))
def test_sine_is_within_2_to_the_minus_60_of_its_own_size(angles):
    value = in_integers(phase.sine, limbs(angles))
    with mpmath.workprec(400):
        for angle, word, shift, negative in zip(angles, *map(np.asarray, value), strict=True):
            exact = mpmath.sin(2 * mpmath.pi * angle / mpmath.mpf(2) ** 128)
            got = mpmath.ldexp(int(word), -63 - int(shift)) * (-1 if negative else 1)
            # The angle's own last bit is 2**-125 radians.
            assert abs(got - exact) <= abs(exact) * mpmath.mpf(2) ** -60 + mpmath.mpf(2) ** -125


@given(st.lists(st.floats(-(2**31), 2**31, width=32), min_size=20, max_size=20))
def test_float_position_is_split_without_loss_above_2_to_the_minus_64(values):
    whole, fraction, negative, invalid = map(
        np.asarray, in_integers(phase.split_real, np.array(values, np.float32))
    )
    assert not invalid.any()
    for value, units, rest, sign in zip(values, whole, fraction, negative, strict=True):
        exact = abs(Fraction(value))
        assert 0 <= exact - (int(units) + Fraction(int(rest), 2**64)) < Fraction(1, 2**64)
        assert sign == (np.signbit(value))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2.0**31 + 256, 2.0**32, 3e38])
def test_float_position_beyond_31_bits_is_marked(value):
    *_, invalid = in_integers(phase.split_real, jnp.array([value], jnp.float32))
    assert bool(invalid[0])


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        (np.int8, [-128, 127], None),
        (np.uint32, [2**31 - 1, 2**31, 2**32 - 1], [False, True, True]),
        (np.int64, [-(2**31), -(2**31) - 1, 2**31 - 1, 2**31], [False, True, False, True]),
        (np.int64, [-(2**63), 2**63 - 1, 2**32 + 1], [True, True, True]),
        (np.uint64, [0, 2**31, 2**64 - 1], [False, True, True]),
    ],
)
def test_integer_position_is_split_and_marked_beyond_32_bits(dtype, values, expected):
    whole, negative, invalid = in_integers(phase.split_integer, np.array(values, dtype))
    assert [int(size) for size in whole] == [abs(value) for value in values]
    assert [bool(sign) for sign in negative] == [value < 0 for value in values]
    assert (None if invalid is None else [bool(mark) for mark in invalid]) == expected
