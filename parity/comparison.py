"""``parity.compare``: arrays and trees against arrays and trees, strictly, with a report."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from parity.case import Tensor
from parity.formats import FORMATS, is_floating, widen
from parity.judging import compare_tensor
from parity.one_sided import compare_with
from parity.outcome import ParityError, Report
from parity.rows import Label, Row
from parity.trees import flatten
from parity.verdict import half_the_digits

NAMES = ("actual", "expected")


def compare(
    actual: Any,
    expected: Any,
    *,
    exact: Any = None,
    atol: float | None = None,
    rtol: float | None = None,
    equal_nan: bool = False,
    raises: bool = True,
) -> Report:
    """Compare arrays, tensors or trees of them: shapes, dtypes, structure and values.

    Nothing is broadcast or cast, and nothing empty passes. Without ``exact``, every element of
    ``actual`` may be one ulp away: of its own where it is large, of the tensor's root mean square
    where it is small. With ``exact`` both sides are held against it by the rule of
    `parity.verdict`, and the one that is off is named.

    Args:
      actual: what is under test: an array of NumPy, JAX or PyTorch, a number, or a dict, list,
        tuple or named tuple of them.
      expected: what it is compared with.
      exact: the same structure in float64 (or integers): what both should have computed.
      atol: overrides the rule with ``atol + rtol * |expected|``, as in NumPy. Printed.
      rtol: the same; the one that is not given is 0. Neither goes together with ``exact``.
      equal_nan: whether NaN on both sides is equal. With ``exact`` it is where that is NaN.
      raises: whether a difference raises.

    Returns:
      The report; ``report.passed`` says whether all is well.

    Raises:
      ParityError: if something differs or nothing was compared; its ``report`` says what.
      TypeError: if a leaf is not an array of floats, integers or bools, ``exact`` no finer
        than ``actual``, a tolerance no number or a switch no bool.
      ValueError: if a tolerance is negative, infinite or NaN, or given together with ``exact``.
    """
    _require_bool("equal_nan", equal_nan)
    _require_bool("raises", raises)
    override = _override(exact, atol, rtol)
    ours, theirs = flatten(actual, "actual"), flatten(expected, "expected")
    paths = list(dict.fromkeys([*theirs, *ours]))
    if exact is None:
        rows = [
            compare_with(
                _label(path),
                ours.get(path),
                theirs.get(path),
                equal_nan=equal_nan,
                override=override,
            )
            for path in paths
        ]
    else:
        truth = flatten(exact, "exact")
        rows = [_held(path, ours.get(path), theirs.get(path), truth.get(path)) for path in paths]
    report = Report(tuple(_nothing_empty(row) for row in rows))
    _warn_of_zeros(report)
    if raises and not report.passed:
        raise ParityError(report)
    return report


def _override(exact: Any, atol: float | None, rtol: float | None) -> tuple[float, float] | None:
    if atol is None and rtol is None:
        return None
    if exact is not None:
        raise ValueError(
            "`exact` must be given without `atol` and `rtol`, which override its rule. "
            "Leave out `exact`, or both tolerances."
        )
    return tolerance("atol", atol), tolerance("rtol", rtol)


def tolerance(name: str, value: Any) -> float:
    """Return a tolerance that a caller gave, 0 if none.

    Raises:
      TypeError: if it is no number.
      ValueError: if it is negative, infinite or NaN.
    """
    if value is None:
        return 0.0
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(
            f"`{name}` must be a number such as 1e-6, or None for the rule; "
            f"got {type(value).__name__} {value!r}."
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not 0 <= number < math.inf:
        raise ValueError(f"`{name}` must be finite and at least 0, got {value}.")
    return number


def _require_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"`{name}` must be True or False, got {type(value).__name__} {value!r}.")


def _label(path: str) -> Label:
    return Label("", path, "", NAMES)


def _held(
    path: str,
    actual: np.ndarray | None,
    expected: np.ndarray | None,
    exact: np.ndarray | None,
) -> Row:
    """Hold both sides against the exact value, with a ceiling that nobody derived."""
    if actual is None or exact is None:
        return compare_tensor(_label(path), actual, expected, None)
    _require_finer(path, exact, actual)
    truth = widen(exact) if is_floating(exact.dtype) else exact
    name = actual.dtype.name
    ceiling = half_the_digits(truth, name)
    tensor = Tensor(truth, ceiling, f"half the digits of {name}", same_bits=False)
    return compare_tensor(_label(path), actual, expected, tensor)


def _require_finer(path: str, exact: np.ndarray, actual: np.ndarray) -> None:
    ours, theirs = FORMATS.get(actual.dtype.name), FORMATS.get(exact.dtype.name)
    if ours is None or theirs is None or exact.dtype == np.float64:
        return
    if theirs.digits <= ours.digits:
        raise TypeError(
            f"`exact` at `{path}` is {exact.dtype.name}, no finer than `actual`. "
            "Compute it in float64."
        )


def _nothing_empty(row: Row) -> Row:
    """Fail a row that compared no element."""
    if row.elements or not row.passed:
        return row
    return replace(row, passed=False, verdict="nothing to compare: no elements")


def _warn_of_zeros(report: Report) -> None:
    for row in report.rows:
        if "zero everywhere on both sides" in row.notes:
            warnings.warn(
                f"`{row.tensor or 'actual'}` is zero everywhere on both sides, which most "
                "mistakes would not change. Compare it where it is not zero.",
                stacklevel=3,
            )
