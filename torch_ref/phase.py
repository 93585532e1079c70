"""Sine and cosine of ``position * frequency``, before their one rounding.

The angle is counted in turns, as an integer modulo one turn. Only the fraction of a turn matters,
and integers keep exactly that fraction, so no position is too large. The steps:

1. each frequency becomes an integer number of ``2**-256`` turns per position, from ``decimal``;
2. ``position * frequency`` modulo one turn, exactly, in 32-bit limbs held by int64 tensors;
3. the nearest of 256 points on the circle, whose sine and cosine are known to 106 bits, and the
   small rest, by angle addition in float64;
4. one rounding to the dtype asked for (``torch_ref.rounding``). An entry whose float64 value lies
   too near a tie, or too near a zero, is computed again in Python integers.
"""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

BITS = 256
"""Binary places of the Python integers: phases and sines are multiples of ``2**-BITS``."""

POINTS = 256
"""Points on the circle. The rest is at most half a step, 0.0123 radians."""

SineCosine: TypeAlias = tuple[Float[Tensor, "n count"], Float[Tensor, "n count"]]

LIMB = 32
LIMB_MASK = (1 << LIMB) - 1


def pi(bits: int) -> int:
    """Return pi in units of ``2**-bits``, by Machin's formula; the error is below one unit."""
    guard = 32

    def arccotangent(x: int) -> int:
        term = total = (1 << (bits + guard)) // x
        n = 1
        while term:
            term //= -x * x
            n += 2
            total += term // n
        return total

    return (16 * arccotangent(5) - 4 * arccotangent(239)) >> guard


def turns_per_position(base: float, step: Fraction, count: int) -> list[int]:
    """Return ``base ** (-step * i) / (2 pi)`` for ``i < count``.

    Args:
      base: finite and above 0.
      step: the exponent between two neighbours.
      count: how many frequencies.

    Returns:
      Integers in units of ``2**-BITS`` turns per position, within one unit.
    """
    with localcontext() as context:
        # 78 digits hold BITS; a base far from 1 needs as many more as its exponent has digits.
        context.prec = 120 + abs(Decimal(base).adjusted())
        bits = math.ceil(context.prec * math.log2(10))
        two_pi = Decimal(2 * pi(bits)) / (1 << bits)
        ratio = Decimal(base) ** (Decimal(-step.numerator) / step.denominator)
        unit = Decimal(1 << BITS) / two_pi
        return [int((unit * ratio**i).to_integral_value()) for i in range(count)]


def sine_of_turns(phase: int) -> int:
    """Return the sine of an angle, by its Taylor series in integers.

    Args:
      phase: the angle in units of ``2**-BITS`` turns.

    Returns:
      The sine in units of ``2**-BITS``, within ``2**8`` units.
    """
    turn = 1 << BITS
    signed = (phase + turn // 2) % turn - turn // 2
    angle = (2 * pi(BITS) * signed) >> BITS
    square = (angle * angle) >> BITS
    term = total = angle
    n = 1
    while term not in {0, -1}:
        n += 2
        term = -(term * square // (n * (n - 1))) >> BITS
        total += term
    return total


@dataclass(frozen=True)
class Circle:
    """Sine and cosine of `POINTS` equally spaced angles, each as a high and a low float64."""

    sine: Float[Tensor, " points"]
    sine_rest: Float[Tensor, " points"]
    cosine: Float[Tensor, " points"]
    cosine_rest: Float[Tensor, " points"]


def circle() -> Circle:
    """Return the sines and cosines of the `POINTS` angles to 106 bits, by repeated rotation."""
    step_sine = sine_of_turns((1 << BITS) // POINTS)
    step_cosine = sine_of_turns((1 << BITS) // POINTS + (1 << BITS) // 4)
    quarter = POINTS // 4
    first, sine, cosine = [], 0, 1 << BITS
    for _ in range(quarter):
        first.append(sine)
        sine, cosine = (
            (sine * step_cosine + cosine * step_sine) >> BITS,
            (cosine * step_cosine - sine * step_sine) >> BITS,
        )
    half = [*first, 1 << BITS, *first[:0:-1]]
    exact = half + [-value for value in half]
    high = [value / (1 << BITS) for value in exact]
    low = [float(Fraction(v, 1 << BITS) - Fraction(h)) for v, h in zip(exact, high, strict=True)]
    sines = torch.tensor(high, dtype=torch.float64, device="cpu")
    rests = torch.tensor(low, dtype=torch.float64, device="cpu")
    return Circle(sines, rests, sines.roll(-quarter), rests.roll(-quarter))


def reduce(
    positions: Int[Tensor, "n 1"], frequencies: list[int]
) -> tuple[Int[Tensor, "n count"], Float[Tensor, "n count"]]:
    """Return ``position * frequency`` as the nearest point of the circle and a rest.

    Args:
      positions: int64, from -(2**31) to 2**31.
      frequencies: in units of ``2**-BITS`` turns per position.

    Returns:
      The number of the point, and the rest in units of ``2**-64`` turns. The rest carries the
      rounding of the frequency to 128 bits: at most ``abs(position) * 2**-65`` units.
    """
    rounded = [((f >> (BITS - 129)) + 1) >> 1 for f in frequencies]
    limbs = []
    carry = torch.zeros((), dtype=torch.int64, device="cpu")
    for shift in range(0, 4 * LIMB, LIMB):
        limb = [f >> shift & LIMB_MASK for f in rounded]
        # At most 2**31 * (2**32 - 1) + 2**31 in size, which int64 holds.
        total = positions * torch.tensor(limb, dtype=torch.int64, device="cpu") + carry
        limbs.append(total & LIMB_MASK)
        carry = total >> LIMB
    step = (1 << LIMB) // POINTS
    point = (limbs[3] + step // 2) // step
    whole = ((limbs[3] - point * step) << LIMB) + limbs[2]
    rest = whole.double() + (limbs[1] * 2.0**-LIMB + limbs[0] * 2.0 ** (-2 * LIMB))
    return point % POINTS, rest


def sine_and_cosine(
    point: Int[Tensor, "n count"], rest: Float[Tensor, "n count"], on: Circle
) -> SineCosine:
    """Return sine and cosine in float64, by angle addition from the nearest point of the circle.

    ``sin(p + t) = sin p + (sin p (cos t - 1) + cos p sin t)``, with abs(t) at most 0.0123. The
    series leave 2**-66 of ``sin t`` and ``cos t - 1``; the roundings of the bracket, a few times
    2**-53 of at most 0.0123, come to less than 2**-57; the last sum rounds once more. So the
    error is at most 2**-54 + 2**-57. Near a zero the value is ``sin t`` alone, elsewhere it is at
    least 0.0122: the error is below 2**-48 times the value, with a factor of four to spare, as
    long as ``rest`` itself is that good.

    Args:
      point: the number of the point.
      rest: in units of ``2**-64`` turns, at most half a step.
      on: the points.
    """
    t = rest * (math.tau * 2.0**-64)
    square = t * t
    sine_t = t - t * square * (1 / 6 - square * (1 / 120 - square / 5040))
    cosine_t_less_1 = -square * (1 / 2 - square * (1 / 24 - square * (1 / 720 - square / 40320)))

    sine, cosine = on.sine[point], on.cosine[point]
    sine_low = on.sine_rest[point] + sine * cosine_t_less_1
    cosine_low = on.cosine_rest[point] + cosine * cosine_t_less_1
    return sine + (sine_low + cosine * sine_t), cosine + (cosine_low - sine * sine_t)


def turn_on(
    start: SineCosine, fractions: Float[Tensor, "n 1"], frequencies: list[int], on: Circle
) -> SineCosine:
    """Turn on by the fraction of a position.

    Args:
      start: sine and cosine at the whole position below.
      fractions: from 0 to 1; kept to 31 binary places, which is 2**-32 radians or less.
      frequencies: in units of ``2**-BITS`` turns per position.
      on: the points of the circle.
    """
    steps = (fractions * 2.0**31).round().to(torch.int64)
    sine, cosine = sine_and_cosine(*reduce(steps, [f >> 31 for f in frequencies]), on)
    return start[0] * cosine + start[1] * sine, start[1] * cosine - start[0] * sine
