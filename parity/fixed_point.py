"""Functions of real numbers in Python integers, in units of ``2 ** -bits``.

Errors are a few units each; callers ask for more bits than they need.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

GUARD = 64
# Sine and cosine are tabulated at multiples of 2**-KNOTS; the series covers what lies between.
KNOTS = 8


def pi(bits: int) -> int:
    """Return pi, by Machin's formula."""
    work = bits + GUARD
    quarter = 4 * _inverse_series(5, work, sign=-1) - _inverse_series(239, work, sign=-1)
    return 4 * quarter >> GUARD


def powers(base: Fraction, exponents: list[Fraction], bits: int) -> list[int]:
    """Return ``base ** -exponent`` for each exponent."""
    work = bits + GUARD
    log_2 = 2 * _inverse_series(3, work, sign=1)
    log_base = _log(base, log_2, work)
    logs = [-(log_base * e.numerator // e.denominator) for e in exponents]
    return [_exp(log, log_2, work) >> GUARD for log in logs]


def _inverse_series(n: int, bits: int, *, sign: int) -> int:
    """Return the arc tangent of 1/n (sign -1), or the inverse hyperbolic tangent (sign 1)."""
    return _odd_series((1 << bits) // n, lambda power: sign * power // (n * n))


def _odd_series(first: int, following: Callable[[int], int]) -> int:
    """Return z + z**3 / 3 + z**5 / 5 + ..., given how each power follows from the last."""
    total, power, n = 0, first, 1
    while power not in (0, -1):
        total += power // n
        power, n = following(power), n + 2
    return total


def _log(x: Fraction, log_2: int, bits: int) -> int:
    """Return the natural logarithm, as that of a power of two and of a factor near one."""
    twos = x.numerator.bit_length() - x.denominator.bit_length()
    rest = x / Fraction(2) ** twos
    ratio = (rest - 1) / (rest + 1)
    z = (ratio.numerator << bits) // ratio.denominator
    return twos * log_2 + 2 * _odd_series(z, lambda power: power * z * z >> (2 * bits))


def _exp(x: int, log_2: int, bits: int) -> int:
    twos, rest = divmod(x, log_2)
    total = term = 1 << bits
    n = 0
    while term:
        n += 1
        term = (term * rest >> bits) // n
        total += term
    return total << twos if twos >= 0 else total >> -twos


class SineCosine:
    """Sine and cosine of angles from 0 to pi/2, integers in units of ``2 ** -bits``."""

    def __init__(self, bits: int) -> None:
        """Tabulate both functions once for many calls."""
        self.bits = bits
        self.terms = _taylor_terms(bits, KNOTS)
        knots = [k << (bits - KNOTS) for k in range((2 << KNOTS) + 1)]
        self.knots = self._series(np.array(knots, dtype=object), _taylor_terms(bits, -1))

    def __call__(
        self, angles: np.ndarray
    ) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
        """Return both, each the float64 nearest to the true value.

        Args:
          angles: an array of Python integers.
        """
        shift = self.bits - KNOTS
        sine, cosine = self._series(angles & ((1 << shift) - 1), self.terms)
        knot = (angles >> shift).astype(np.int64)
        knot_sine, knot_cosine = (table[knot] for table in self.knots)
        one = 1 << (2 * self.bits)
        # The quotient of two Python integers is the nearest float64.
        return (
            ((knot_sine * cosine + knot_cosine * sine) / one).astype(np.float64),
            ((knot_cosine * cosine - knot_sine * sine) / one).astype(np.float64),
        )

    def _series(self, angles: np.ndarray, terms: list[int]) -> tuple[np.ndarray, np.ndarray]:
        square = angles * angles >> self.bits
        sine = _alternating(terms[1::2], square, self.bits) * angles >> self.bits
        return sine, _alternating(terms[0::2], square, self.bits)


def _alternating(terms: list[int], z: np.ndarray, bits: int) -> np.ndarray:
    """Return terms[0] - terms[1] * z + terms[2] * z**2 - ..."""
    total: Any = terms[-1]
    for term in terms[-2::-1]:
        total = term - (total * z >> bits)
    return total


def _taylor_terms(bits: int, below: int) -> list[int]:
    """Return 1/0!, 1/1!, 1/2!, ... until the term of an angle under ``2 ** -below`` vanishes."""
    terms: list[int] = []
    factorial = 1
    while len(terms) < 2 or factorial.bit_length() + below * len(terms) <= bits + 4:
        terms.append((1 << bits) // factorial)
        factorial = math.factorial(len(terms))
    return terms
