"""From an array and what it should be to a row, where nothing better than either is known."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parity.causes import likely_cause
from parity.distance import Distance, measure
from parity.formats import differing_bits, is_nan, widen
from parity.row_parts import about, measured, missing, notes, unlike, value_at, worst_place
from parity.rows import Label, Row
from parity.verdict import SAME_BITS, Limit

if TYPE_CHECKING:
    from jaxtyping import Shaped


def compare_with(
    label: Label,
    actual: Shaped[np.ndarray, "*shape"] | None,
    expected: Shaped[np.ndarray, "*shape"] | None,
    *,
    equal_nan: bool,
    override: tuple[float, float] | None,
) -> Row:
    """Hold one array against another, which is taken for right.

    Args:
      label: what it is about.
      actual: the array under test.
      expected: what it should be.
      equal_nan: whether NaN on both sides is right.
      override: absolute and relative tolerance, as NumPy has them; by default one ulp.
    """
    if actual is None or expected is None:
        return missing(label, actual, expected)
    row = unlike(label, actual, expected, expected)
    if row is not None:
        return row
    distance = measure(actual, expected, equal_nan=equal_nan)
    limit, reason = _one_sided_limit(distance, expected, override)
    differ = differing_bits(actual, expected)
    passed = limit.allows(distance)
    words = f"{label.names[0]} is off"
    if passed:
        words = f"within {limit.source}" if differ.any() else SAME_BITS
    remarks = notes(actual, expected)
    if not equal_nan and np.any(is_nan(actual) & is_nan(expected)):
        remarks = (*remarks, "NaN on both sides; `equal_nan=True` takes that for equal")
    place = worst_place(distance, limit)
    return Row(
        **about(label, actual, passed, words, "" if passed else "port"),
        **measured(distance, limit, place),
        port_error=distance.max_abs,
        ulp=distance.ulp,
        reason=reason,
        port_value=value_at(actual, place),
        exact_value=value_at(expected, place),
        differing=int(differ.sum()),
        cause="" if passed else likely_cause(actual, expected),
        notes=remarks,
    )


def _one_sided_limit(
    distance: Distance, expected: np.ndarray, override: tuple[float, float] | None
) -> tuple[Limit, str]:
    if override is not None:
        atol, rtol = override
        with np.errstate(invalid="ignore"):
            allowed = atol + rtol * np.abs(widen(expected))
        reason = f"overridden: {atol:g} + {rtol:g} * |expected|"
        return Limit(math.inf, math.inf, allowed, "override"), reason
    if not distance.floating:
        return Limit(0.0, 0.0, math.inf, "equality"), ""
    return Limit(distance.unit, 1.0, math.inf, "one ulp"), ""
