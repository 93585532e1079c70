"""Sine of ``position * frequency`` in integers: the same bits on every device.

An angle is held as a fraction of a turn in 128 bits, where integer overflow drops whole turns and
keeps the rest exactly. The sine is a polynomial in fixed point, and the bits of the float are put
together by shifts, so that no compiler flag, contraction or vendor sine can change them.

The functions work on uint64 arrays. Call them where 64-bit types are on
(``with jax.enable_x64(True)``).
"""

from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jax_input.fixed_point import Magnitude, multiply_high

_TWO_PI = Decimal(
    "6.28318530717958647692528676655900576839433879875021164194988918461563281257241799725606965"
)
# Chebyshev fits on z in [0, 1/4], lowest power first; the even terms of the alternating series are
# added and the odd ones subtracted: sin(pi/2 r) = r P(r*r) within 2**-68 of r,
# cos(pi/2 r) = 1 - z Q(z) within 2**-72. The first five have 63 fraction bits, the others 56, so
# that they fit 32 bits and their products need a single multiplication.
_SINE = (
    *(0xC90FDAA22168C235, 0x52AEF39896F94AED, 0xA335E33BAD56C90, 0x99696673156112),
    *(0x541E0D2172F61, 0x3C60E969FE, 0xF4776897, 0x2D8B70F),
)
_COSINE = (
    *(0x9DE9E64DF22EF2D2, 0x20783E1036B58765, 0x2ABA78FC797FEDE, 0x1E1F506891AE95),
    *(0xD368F9504365, 0x7E74E1C22, 0x1B6DE8B9, 0x479D18),
)
LIMIT = 2**31


class Turns(NamedTuple):
    """A fraction of a turn, ``(high * 2**64 + low) / 2**128``, as two uint64 arrays."""

    high: Any
    low: Any


def turns_per_position(base: float, exponents: Sequence[Fraction]) -> Turns:
    """Return ``base ** -exponent`` radians as turns, rounded to 2**-128 of a turn.

    Args:
      base: finite and above 0.
      exponents: one for each frequency.

    Returns:
      Two NumPy uint64 arrays ``[len(exponents)]``, from decimal arithmetic on the host.
    """
    with localcontext() as context:
        context.prec = 90
        log_base = Decimal(base).ln()
        radians = [
            (-log_base * exponent.numerator / exponent.denominator).exp() for exponent in exponents
        ]
        units = [int((value / _TWO_PI * 2**128).to_integral_value()) for value in radians]
    low_mask = 2**64 - 1
    return Turns(
        np.array([unit >> 64 & low_mask for unit in units], np.uint64),
        np.array([unit & low_mask for unit in units], np.uint64),
    )


def split_integer(positions: Array) -> tuple[Array, Array, Array | None]:
    """Return size, sign, and where a position is beyond 32 bits (None where it can't be)."""
    kind = jnp.iinfo(positions.dtype)
    negative = positions < 0
    whole = positions.astype(jnp.uint64)  # two's complement, so its negation is the size
    whole = jnp.where(negative, np.uint64(0) - whole, whole)
    if kind.max < LIMIT:
        return whole, negative, None
    return whole, negative, ~((whole < np.uint64(LIMIT)) | (negative & (whole == LIMIT)))


def split_real(positions: Array) -> tuple[Array, Array, Array, Array]:
    """Return whole part, fraction in 2**-64, sign, and where a float32 position has no row."""
    pattern = lax.bitcast_convert_type(positions, jnp.uint32).astype(jnp.int64)
    field = (pattern >> np.int64(23)) & np.int64(0xFF)
    implied = jnp.minimum(field, np.int64(1)) << np.int64(23)
    significand = ((pattern & np.int64((1 << 23) - 1)) | implied).astype(jnp.uint64)
    whole = _shift(significand, jnp.clip(field - 150, -63, 9))
    fraction = _shift(significand, jnp.clip(field - 86, -63, 63))
    fraction = jnp.where(field >= 150, np.uint64(0), fraction)
    negative = (pattern >> np.int64(31)) == np.int64(1)
    return whole, fraction, negative, whole > np.uint64(LIMIT)


def _shift(value: Array, places: Array) -> Array:
    """Return ``value * 2**places`` without the bits that leave its 64."""
    left = jnp.maximum(places, np.int64(0)).astype(jnp.uint64)
    right = jnp.maximum(-places, np.int64(0)).astype(jnp.uint64)
    return (value >> right) << left


def multiply(position: Array, frequency: Turns) -> Turns:
    """Return ``position * frequency`` modulo one turn, exactly; ``position`` is below 2**32."""
    upper_part = position * (frequency.low >> np.uint64(32))
    lower_part = position * (frequency.low & np.uint64(0xFFFFFFFF))
    carry = (upper_part + (lower_part >> np.uint64(32))) >> np.uint64(32)
    return Turns(position * frequency.high + carry, position * frequency.low)


def multiply_fraction(fraction: Array, frequency: Turns) -> Turns:
    """Return ``fraction / 2**64 * frequency`` within 2**-62 of a turn.

    Args:
      fraction: uint64.
      frequency: below one turn, since a whole turn is not kept.
    """
    return Turns(multiply_high(fraction, frequency.high), fraction * frequency.high)


def add(left: Turns, right: Turns) -> Turns:
    """Return the sum of two angles modulo one turn."""
    low = left.low + right.low
    carry = (low < left.low).astype(jnp.uint64)
    return Turns(left.high + right.high + carry, low)


def sine(angle: Turns) -> Magnitude:
    """Return the sine of an angle, within 2**-60 of its own size.

    Near a zero of the sine most upper bits of the angle are zeros. The angle is therefore
    normalised before it is cut to 64 bits: with 96 bits in all, position 7,846,412 in column 358
    of width 512 rounds to the wrong float32.
    """
    one = np.uint64(1)
    quadrant = angle.high >> np.uint64(62)
    high = (angle.high << np.uint64(2)) | (angle.low >> np.uint64(62))
    low = angle.low << np.uint64(2)
    # Past the middle of the quadrant, count from its other end and exchange sine and cosine.
    flip = (high >> np.uint64(63)) == one
    borrow = (low != np.uint64(0)).astype(jnp.uint64)
    high = jnp.where(flip, np.uint64(0) - high - borrow, high)
    low = jnp.where(flip, np.uint64(0) - low, low)
    is_cosine = flip ^ ((quadrant & one) == one)

    zeros = jnp.minimum(lax.clz(high), np.uint64(63))
    normalised = (high << zeros) | ((low >> one) >> (np.uint64(63) - zeros))
    square = multiply_high(high, high)
    polynomial = _polynomial(square, is_cosine)
    product = multiply_high(jnp.where(is_cosine, square, normalised), polynomial)
    word = jnp.where(is_cosine, np.uint64(1 << 63) - product, product)
    return Magnitude(word, jnp.where(is_cosine, np.uint64(0), zeros), quadrant > one)


def _polynomial(square: Array, is_cosine: Array) -> Array:
    """Return P(square) or Q(square) with 63 fraction bits; ``square`` has 64 and is below 1/4."""
    coefficients = [
        jnp.where(is_cosine, np.uint64(cosine_term), np.uint64(sine_term))
        for sine_term, cosine_term in zip(_SINE, _COSINE, strict=True)
    ]
    square_high = square >> np.uint64(32)
    total = coefficients[7]
    for coefficient in coefficients[6:4:-1]:
        total = coefficient - ((square_high * total) >> np.uint64(32))
    total = total << np.uint64(63 - 56)
    for coefficient in coefficients[4::-1]:
        total = coefficient - multiply_high(square, total)
    return total
