"""Closed forms in Python integers: the sinusoidal table as it would be without any rounding.

Nothing here looks like the code under test on purpose. There, turns are counted modulo one with a
fixed number of bits; here the angle is a rational number of radians to as many bits as the
positions need, and sine and cosine are Taylor series in integers.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np

from parity.fixed_point import GUARD, SineCosine, pi, powers

if TYPE_CHECKING:
    from jaxtyping import Float, Real

Layout = Literal["interleaved", "halves"]

# An angle that is a multiple of a quarter turn to 62 bits (the closest among 2**32 positions and
# 2**30 frequencies, by chance) leaves 98 bits of its sine; float64 takes 53 of them.
_BITS = 160
_CHUNK = 1 << 14


def sinusoid(
    positions: Real[np.ndarray, "*batch"],
    d_model: int,
    *,
    base: float = 10_000.0,
    layout: Layout = "interleaved",
    freq_shift: int = 0,
    cos_first: bool = False,
) -> Float[np.ndarray, "*batch d_model"]:
    """Return the positional encoding, each value the float64 nearest to the true one.

    Args:
      positions: integers or floats of any size, taken for exactly what they are.
      d_model: number of columns, at least 1.
      base: wavelengths run from 2 pi to 2 pi times this; above 0.
      layout: "interleaved" has sine and cosine of one frequency side by side, "halves" has all
        sines first.
      freq_shift: frequency i is ``base ** (-2i / d_model)`` for 0, and
        ``base ** (-i / (d_model // 2 - 1))`` for 1.
      cos_first: sine and cosine change places.

    Returns:
      float64, ``positions.shape + (d_model,)``. A position that is not finite reads NaN. About
      4 us an entry.

    Raises:
      ValueError: if an option is none of its values.

    Source: Vaswani et al. 2017, section 3.5; Machin 1706 for pi.
    """
    _require(d_model, base, layout, freq_shift)
    flat = _plain(np.asarray(positions)).reshape(-1)
    unique, inverse = np.unique(flat, return_inverse=True)
    finite = np.isfinite(unique)
    sines = np.full((unique.size, (d_model + 1) // 2), np.nan)
    cosines = sines.copy()
    exponents = _exponents(d_model, freq_shift)
    rows = [Fraction(position) for position in unique[finite].tolist()]
    sines[finite], cosines[finite] = _sines_and_cosines(rows, Fraction(base), exponents)
    columns = _columns(sines, cosines, d_model, layout, cos_first)
    return columns[inverse].reshape(*np.shape(positions), d_model)


def _plain(positions: Real[np.ndarray, "*batch"]) -> Real[np.ndarray, "*batch"]:
    """Return bfloat16, which NumPy can't sort, as float64."""
    return positions if positions.dtype.kind in "iuf" else positions.astype(np.float64)


def _require(d_model: int, base: float, layout: str, freq_shift: int) -> None:
    if d_model < 1:
        raise ValueError(f"`d_model` must be at least 1, got {d_model}.")
    if not 0 < base < math.inf:
        raise ValueError(f"`base` must be finite and above 0, got {base}.")
    if layout not in ("interleaved", "halves"):
        raise ValueError(f"`layout` must be 'interleaved' or 'halves', got {layout!r}.")
    if freq_shift not in (0, 1):
        raise ValueError(f"`freq_shift` must be 0 or 1, got {freq_shift!r}.")


def _exponents(d_model: int, freq_shift: int) -> list[Fraction]:
    """Return the powers of the base, one a frequency."""
    count = (d_model + 1) // 2
    if freq_shift == 0:
        return [Fraction(2 * i, d_model) for i in range(count)]
    return [Fraction(i, max(d_model // 2 - 1, 1)) for i in range(count)]


def _columns(
    sines: Float[np.ndarray, "rows frequencies"],
    cosines: Float[np.ndarray, "rows frequencies"],
    d_model: int,
    layout: Layout,
    cos_first: bool,
) -> Float[np.ndarray, "rows d_model"]:
    first, second = (cosines, sines) if cos_first else (sines, cosines)
    if layout == "halves":
        return np.concatenate([first, second[:, : d_model // 2]], axis=1)
    table = np.empty((len(sines), d_model))
    table[:, 0::2], table[:, 1::2] = first, second[:, : d_model // 2]
    return table


def _sines_and_cosines(
    positions: list[Fraction], base: Fraction, exponents: list[Fraction]
) -> tuple[Float[np.ndarray, "rows frequencies"], Float[np.ndarray, "rows frequencies"]]:
    """Return both functions of every position times every frequency."""
    shape = (len(positions), len(exponents))
    bits, work = _bits(positions, base, exponents)
    frequencies = np.array(powers(base, exponents, work), dtype=object)
    quarter_turn = pi(work) >> 1
    sine_cosine = SineCosine(bits)
    sines, cosines = np.empty(shape), np.empty(shape)
    step = max(1, _CHUNK // shape[1])
    for start in range(0, shape[0], step):
        chunk = slice(start, start + step)
        angles = np.array([_times(frequencies, p) for p in positions[chunk]], dtype=object)
        quarters = angles // quarter_turn
        both = sine_cosine(angles - quarters * quarter_turn >> (work - bits))
        sines[chunk], cosines[chunk] = _turn(quarters, *both)
    return sines, cosines


def _times(frequencies: np.ndarray, position: Fraction) -> np.ndarray:
    return frequencies * position.numerator // position.denominator


def _bits(positions: list[Fraction], base: Fraction, exponents: list[Fraction]) -> tuple[int, int]:
    """Return the bits after the point of a reduced angle, and of a frequency.

    A small angle needs more for the same relative error; a large position or frequency
    multiplies the errors of the frequencies and of pi.
    """
    octaves = float(max(exponents)) * math.log2(base)
    finest = max((p.denominator.bit_length() for p in positions), default=0)
    longest = max((math.ceil(abs(p)).bit_length() for p in positions), default=0)
    bits = _BITS + finest + math.ceil(max(octaves, 0.0))
    return bits, bits + longest + math.ceil(max(-octaves, 0.0)) + GUARD


def _turn(
    quarters: np.ndarray, sine: Float[np.ndarray, "*shape"], cosine: Float[np.ndarray, "*shape"]
) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
    """Turn an angle in the first quadrant on by a number of quarter turns."""
    quadrant = (quarters % 4).astype(np.int64)
    odd = quadrant % 2 == 1
    sine, cosine = np.where(odd, cosine, sine), np.where(odd, sine, cosine)
    return np.where(quadrant >= 2, -sine, sine), np.where(odd ^ (quadrant >= 2), -cosine, cosine)
