"""How far one array lies from another: absolutely, in units in the last place, and where."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from parity.formats import is_floating, is_whole, ulp, widen

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

Place = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Distance:
    """The errors of an array, element by element.

    Attributes:
      errors: absolute; inf where only one side is NaN, or infinite.
      units: of each element, one ulp of its format at the expected value, or at the scale of the
        tensor (its root mean square) where that is larger. ulp at its own size would count
        millions of them next to the zeros of a sine. 1 for integers and truth values.
      floating: whether the format can round at all.
    """

    errors: Float[np.ndarray, "*shape"]
    units: Float[np.ndarray, "*shape"]
    floating: bool

    @cached_property
    def max_abs(self) -> float:
        """The greatest absolute error."""
        return float(self.errors.max(initial=0.0))

    @cached_property
    def ulp(self) -> float:
        """The greatest error in units."""
        return float(self._in_units.max(initial=0.0))

    @cached_property
    def unit(self) -> float:
        """The largest unit of any element."""
        return float(self.units.max(initial=0.0))

    @cached_property
    def place(self) -> Place:
        """Where the error is greatest, absolutely."""
        return argmax(self.errors)

    @cached_property
    def ulp_place(self) -> Place:
        """Where the error is greatest in units."""
        return argmax(self._in_units)

    @property
    def finite(self) -> bool:
        """Whether no element is infinitely far off."""
        return math.isfinite(self.max_abs)

    @cached_property
    def _in_units(self) -> Float[np.ndarray, "*shape"]:
        with np.errstate(over="ignore"):  # where all expected values are zero, a unit is tiny
            return self.errors / self.units


def measure(
    actual: Shaped[np.ndarray, "*shape"],
    expected: Shaped[np.ndarray, "*shape"],
    *,
    equal_nan: bool = True,
) -> Distance:
    """Measure one array against another of the same shape.

    Args:
      actual: floating, whole or bool; its dtype sets the units.
      expected: of any of these dtypes.
      equal_nan: whether NaN on both sides is no error.

    Raises:
      ValueError: if the shapes differ. Nothing is broadcast.
    """
    if actual.shape != expected.shape:
        raise ValueError(f"`actual` has shape {actual.shape}, `expected` {expected.shape}.")
    floating = is_floating(actual.dtype)
    target = widen(expected)
    scale = root_mean_square(target)
    if floating:
        units = ulp(np.maximum(np.abs(target), scale), actual.dtype)
    else:
        units = np.ones(actual.shape)
    if is_whole(actual.dtype) and is_whole(expected.dtype):
        errors = _whole_errors(actual, expected)
    else:
        errors = _errors(widen(actual), target, equal_nan)
    return Distance(errors, units, floating)


def _errors(
    actual: Float[np.ndarray, "*shape"], expected: Float[np.ndarray, "*shape"], equal_nan: bool
) -> Float[np.ndarray, "*shape"]:
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.abs(actual - expected)
    equal = actual == expected
    if equal_nan:
        equal |= np.isnan(actual) & np.isnan(expected)
    return np.where(equal, 0.0, np.where(np.isnan(errors), np.inf, errors))


def _whole_errors(
    actual: Shaped[np.ndarray, "*shape"], expected: Shaped[np.ndarray, "*shape"]
) -> Float[np.ndarray, "*shape"]:
    """Return errors of integers, where float64 would lose those beyond 2**53."""
    wide = np.abs(widen(actual) - widen(expected))
    return np.where(actual == expected, 0.0, np.maximum(wide, 1.0))


def root_mean_square(values: Float[np.ndarray, "*shape"]) -> float:
    """Return the root mean square of the finite values."""
    finite = values[np.isfinite(values)]
    largest = float(np.abs(finite).max(initial=0.0))
    if largest == 0.0:
        return 0.0
    # Squares of what is scaled to 1 neither overflow nor vanish.
    return largest * math.sqrt(float(np.mean((finite / largest) ** 2)))


def argmax(values: Float[np.ndarray, "*shape"]) -> Place:
    """Return the place of the first greatest value, () if there is none."""
    if values.size == 0:
        return ()
    return tuple(int(i) for i in np.unravel_index(int(values.argmax()), values.shape))
