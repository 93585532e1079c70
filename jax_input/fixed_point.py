"""Numbers of size at most 1 in fixed point, and their rounding to a float, in integers alone.

Call these where 64-bit types are on (``with jax.enable_x64(True)``).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax


class Magnitude(NamedTuple):
    """The number ``word * 2**(-63 - shift)``, below zero where ``negative``.

    ``word`` (at most 2**63) and ``shift`` (0 to 63) are uint64, ``negative`` is bool.
    """

    word: Array
    shift: Array
    negative: Array


def multiply_high(left: Array, right: Array | np.ndarray) -> Array:
    """Return the upper 64 bits of a product of uint64, at most 2 too small."""
    left_high, left_low = left >> np.uint64(32), left & np.uint64(0xFFFFFFFF)
    right_high, right_low = right >> np.uint64(32), right & np.uint64(0xFFFFFFFF)
    crossed = ((left_high * right_low) >> np.uint64(32)) + (
        (left_low * right_high) >> np.uint64(32)
    )
    return left_high * right_high + crossed


def to_fixed(value: Magnitude) -> Array:
    """Return a number of size at most 1 as int64 with 62 fraction bits, rounded."""
    rounded = ((value.word >> value.shift) + np.uint64(1)) >> np.uint64(1)
    signed = rounded.astype(jnp.int64)
    return jnp.where(value.negative, -signed, signed)


def add_angles(left: tuple[Array, Array], right: tuple[Array, Array]) -> Magnitude:
    """Return ``sin(a + b)`` within 2**-60, from the (sine, cosine) of ``a`` and of ``b``.

    Args:
      left: sine and cosine as int64 with 62 fraction bits (``to_fixed``).
      right: the same for the other angle; the shapes broadcast.

    Returns:
      sin a cos b + cos a sin b, summed over the four products of 32-bit halves. Each sum is
      shifted before it can leave 63 bits.
    """
    (sine_high, sine_low), (cosine_high, cosine_low) = map(_halves, left)
    (other_sine_high, other_sine_low), (other_cosine_high, other_cosine_low) = map(_halves, right)
    upper = sine_high * other_cosine_high + cosine_high * other_sine_high
    crossed = sine_high * other_cosine_low + cosine_high * other_sine_low
    lowest = _upper_half(sine_low * other_cosine_low) + _upper_half(cosine_low * other_sine_low)
    crossed_back = sine_low * other_cosine_high + cosine_low * other_sine_high
    places = np.int64(30)
    total = (upper << np.int64(2)) + ((crossed + lowest) >> places) + (crossed_back >> places)
    word = jnp.abs(total).astype(jnp.uint64) << np.uint64(1)
    return Magnitude(word, jnp.zeros_like(word), total < np.int64(0))


def _halves(value: Array) -> tuple[Array, Array]:
    """Return the signed upper and the unsigned lower 32 bits of an int64, each as int64."""
    return value >> np.int64(32), value & np.int64(0xFFFFFFFF)


def _upper_half(value: Array) -> Array:
    """Return the upper 32 bits of an int64 that holds an unsigned product."""
    return (value.astype(jnp.uint64) >> np.uint64(32)).astype(jnp.int64)


def round_to(value: Magnitude, dtype: np.dtype, *, invalid: Array | None = None) -> Array:
    """Round a number once, to nearest even, and return it in ``dtype``.

    Args:
      value: a number of size at most 1.
      dtype: float16 (with gradual underflow), bfloat16, float32 or float64.
      invalid: where to return NaN instead.

    Returns:
      An array of ``value``'s shape. Up to its last step, the bit cast, it is integers.
    """
    kind = jnp.finfo(dtype)
    stored, bias, smallest = kind.nmant, kind.maxexp - 1, kind.minexp
    bits = np.dtype(f"uint{kind.bits}")

    zeros = lax.clz(value.word)
    word = value.word << zeros
    exponent = zeros + value.shift  # of one half, so that it is not negative
    if smallest > -64:
        excess = jnp.clip(exponent.astype(jnp.int64) + smallest, 0, stored + 2).astype(jnp.uint64)
        lost = (word & ((np.uint64(1) << excess) - np.uint64(1))) != np.uint64(0)
        word = (word >> excess) | lost.astype(jnp.uint64)
        exponent = jnp.minimum(exponent, np.uint64(-smallest))
    kept = word >> np.uint64(62 - stored)  # one bit more than the significand
    sticky = (word << np.uint64(stored + 2)) != np.uint64(0)
    round_up = kept & ((kept >> np.uint64(1)) | sticky.astype(jnp.uint64)) & np.uint64(1)
    # The leading bit of a normal number adds one to the exponent field, so it is one less here.
    field = (np.uint64(bias - 1) - exponent) << np.uint64(stored)
    pattern = jnp.where(
        value.word == np.uint64(0), np.uint64(0), field + (kept >> np.uint64(1)) + round_up
    )
    pattern = pattern | (value.negative.astype(jnp.uint64) << np.uint64(kind.bits - 1))
    if invalid is not None:
        not_a_number = np.array(np.nan, dtype).view(bits).astype(np.uint64)
        pattern = jnp.where(invalid, not_a_number, pattern)
    return lax.bitcast_convert_type(pattern.astype(bits), dtype)
