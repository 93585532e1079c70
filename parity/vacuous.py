"""Comparisons that could hardly fail: of nothing, of NaN, of one value, of one row many times."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parity.case import Tensor
from parity.formats import is_nan
from parity.rows import VACUOUS, Row

if TYPE_CHECKING:
    from jaxtyping import Shaped


def refused(row: Row, expected: Tensor | None) -> Row:
    """Fail a row that has passed and says little, unless its tensor has a reason to be like that.

    Args:
      row: the verdict on a tensor.
      expected: what was expected of it. Nothing excuses one without elements.
    """
    if expected is None or not row.passed or (expected.uniform and expected.exact.size):
        return row
    why = vacuous(expected.exact)
    return replace(row, passed=False, verdict=f"{VACUOUS}: {why}") if why else row


def vacuous(exact: Shaped[np.ndarray, "*shape"]) -> str:
    """Say why a comparison with these values says little, "" if it does not.

    Args:
      exact: what both sides should have computed. One element alone says what it says.
    """
    if exact.size == 0:
        return "there are no elements"
    if is_nan(exact).all():
        return "every element is NaN"
    if exact.size == 1:
        return ""
    if _equal(exact, exact.reshape(-1)[0]):
        return f"every element is {exact.reshape(-1)[0]:g}"
    for axis, length in enumerate(exact.shape):
        if length > 1 and _equal(exact, np.take(exact, [0], axis)):
            return f"all {length} along axis {axis} are the same"
    return ""


def _equal(exact: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.all((exact == other) | (is_nan(exact) & is_nan(np.asarray(other)))))
