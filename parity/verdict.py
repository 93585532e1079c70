"""The rule, in one place: how far off a side may be, and what is said about both.

A side is held against the exact value. It may be off by ``k`` times what the other side is off
by, or by one ulp, whichever is more: absolutely, and also in ulp, since a few large values would
hide every fault in the small ones. Where the deviation of the roundings on the way is known, it may
be off by that much as well: roundings that pass through the same steps come together, so that of
two equally good sides one is now and then three times as far off. Above that lies a ceiling derived
from dtype, operation and data, which catches what both sides got wrong alike. The rule is the same
for both sides; so it names the guilty one. A reference that is noisier than the port, but below its
ceiling, is named, and passes unless the same bits were promised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from parity.distance import Distance, Place, root_mean_square
from parity.formats import FORMATS, widen

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

Ceiling = float | np.ndarray
Side = Literal["", "port", "reference", "both"]

SAME_BITS = "same bits"
NOISE_FLOOR = "both at the noise floor"
BITS_DIFFER = "the sides differ in bits, each within its limit"
BOTH_OFF = "both are off"

FEW_ELEMENTS = 1_000


def k(elements: int) -> int:
    """Return how many times the other side's error a side may have.

    2, and 3 below 1,000 elements: the greatest of a few rounding errors scatters so much that
    one of two equally good sides is often more than twice as far off as the other.
    """
    return 2 if elements >= FEW_ELEMENTS else 3


@dataclass(frozen=True, eq=False)
class Limit:
    """How far off one side may be.

    Attributes:
      error: absolute, before the ceiling.
      ulp: in units of the element.
      ceiling: absolute, one for all elements or one for each.
      source: where ``error`` comes from.
      deviation: absolute; an error within it is not held against a side.
    """

    error: float
    ulp: float
    ceiling: Ceiling
    source: Literal["one ulp", "ratio", "equality", "override"]
    deviation: Ceiling = 0.0

    def used(self, distance: Distance) -> Float[np.ndarray, "*shape"]:
        """Return each error over its limit: at most 1 where it is kept."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            allowed = np.minimum(self.error, self.ulp * distance.units)
            allowed = np.minimum(np.maximum(allowed, self.deviation), self.ceiling)
            used = distance.errors / allowed
        used = np.where(np.isinf(distance.errors), np.inf, used)
        return np.where(distance.errors == 0, 0.0, used)

    def allows(self, distance: Distance) -> bool:
        """Say whether every element keeps it."""
        return bool(np.all(self.used(distance) <= 1))

    def at(self, distance: Distance, place: Place) -> float:
        """Return the absolute limit of one element."""
        allowed = min(self.error, self.ulp * float(distance.units[place]))
        return min(max(allowed, at(self.deviation, place)), at(self.ceiling, place))

    def source_at(self, distance: Distance, place: Place) -> str:
        """Return what sets the absolute limit of one element."""
        if self.source in ("override", "equality"):
            return self.source
        smallest = self.at(distance, place)
        if at(self.ceiling, place) <= smallest:
            return "ceiling"
        if smallest == at(self.deviation, place):
            return "deviation"
        if self.error <= smallest:
            return self.source
        return "one ulp" if self.ulp == 1 else "ratio"


@dataclass(frozen=True, eq=False)
class Verdict:
    """What is said about one tensor.

    Attributes:
      words: for people.
      passed: whether the port keeps its limit, the reference its ceiling, and both their promise.
      side: which one is off. A reference that is only noisier than the port is off, and passes.
      port: the port's limit.
      reference: the reference's.
    """

    words: str
    passed: bool
    side: Side
    port: Limit
    reference: Limit


def at(ceiling: Ceiling, place: Place) -> float:
    """Return the ceiling of one element."""
    return float(ceiling[place]) if isinstance(ceiling, np.ndarray) else ceiling


def limit(side: Distance, other: Distance, ceiling: Ceiling, deviation: Ceiling = 0.0) -> Limit:
    """Return how far off a side may be, given how far the other is.

    Args:
      side: the one that is judged.
      other: the one that it is compared with.
      ceiling: absolute.
      deviation: of the roundings on the way, if it is known.
    """
    if not side.floating:
        return Limit(0.0, 0.0, math.inf, "equality")
    # An infinite error of the other side allows everything; the ceiling alone is left.
    times = k(side.errors.size)
    ulp = max(1.0, times * other.ulp)
    if side.unit >= times * other.max_abs:
        return Limit(side.unit, ulp, ceiling, "one ulp", deviation)
    return Limit(times * other.max_abs, ulp, ceiling, "ratio", deviation)


def half_the_digits(exact: Shaped[np.ndarray, "*shape"], dtype: str) -> float:
    """Return the ceiling where nobody derived one: half the digits of the format are right."""
    if dtype not in FORMATS:
        return 0.0
    return root_mean_square(widen(exact)) * 2.0 ** -(FORMATS[dtype].digits / 2)


def judge(
    port: Distance,
    reference: Distance,
    *,
    ceiling: Ceiling,
    equal_bits: bool,
    same_bits: bool,
    deviation: Ceiling = 0.0,
    names: tuple[str, str] = ("the port", "torch"),
) -> Verdict:
    """Judge both sides of a tensor.

    Args:
      port: its distance from the exact value.
      reference: the same of the reference.
      ceiling: the greatest error that either may have.
      equal_bits: whether the sides have the same bits.
      same_bits: whether they promised to.
      deviation: of the roundings on the way, if it is known.
      names: what the sides are called.
    """
    ours, theirs = (
        limit(*sides, ceiling, deviation) for sides in ((port, reference), (reference, port))
    )
    port_off, reference_off = not ours.allows(port), not theirs.allows(reference)
    noise = Limit(math.inf, math.inf, ceiling, "ratio") if reference.floating else theirs
    side = _side(port_off, reference_off)
    passed = not port_off and noise.allows(reference) and (equal_bits or not same_bits)
    return Verdict(_words(side, equal_bits, same_bits, names), passed, side, ours, theirs)


def _side(port_off: bool, reference_off: bool) -> Side:
    if port_off and reference_off:
        return "both"
    return "port" if port_off else "reference" if reference_off else ""


def _words(side: Side, equal_bits: bool, same_bits: bool, names: tuple[str, str]) -> str:
    if side == "both":
        return BOTH_OFF
    if side == "port":
        return f"{names[0]} is off"
    if side == "reference":
        return f"{names[1]} is the side that is off"
    if equal_bits:
        return SAME_BITS
    return BITS_DIFFER if same_bits else NOISE_FLOOR
