"""Which known mistake explains a tensor that is off: each is tried, and the one that fits named."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from parity.distance import measure
from parity.formats import FORMATS, is_nan, round_to, widen

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

# What a hypothesis may leave over: a few roundings of the side itself, in ulp of its format, and
# at most this part of the error that it explains.
_LEFT_OVER_ULP = 8.0
_LEFT_OVER_PART = 0.125
_RATES = (0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)


def likely_cause(
    actual: Shaped[np.ndarray, "*shape"],
    exact: Shaped[np.ndarray, "*shape"],
    mistakes: Mapping[str, Float[np.ndarray, "*shape"]] | None = None,
) -> str:
    """Say which known mistake turns the exact value into what a side computed.

    Args:
      actual: the side that is off.
      exact: the exact value, of the same shape.
      mistakes: what known mistakes of this computation would have given, by name; they are tried
        before those of any computation.

    Returns:
      A short text, "" if none of them does.
    """
    if actual.shape != exact.shape or actual.size < 2 or actual.dtype.name not in FORMATS:
        return ""
    truth = widen(exact)
    if not widen(actual).any() and truth.any():
        return "every value is zero"
    named = {name: guess for name, guess in (mistakes or {}).items() if _fits(actual, truth, guess)}
    if named:
        return min(named, key=lambda name: measure(actual, named[name]).ulp)
    guesses = (_nan, _transformed, _factor, _shifted, _one_row)
    return next((text for guess in guesses if (text := guess(actual, truth))), "")


def _fits(actual: np.ndarray, exact: np.ndarray, guess: np.ndarray) -> bool:
    """Say whether a guess explains what the exact value did not."""
    off = measure(actual, exact).ulp
    # NaN on both sides is no distance, and any guess would fit; one ulp is within every limit.
    return off > 1 and measure(actual, guess).ulp <= min(_LEFT_OVER_ULP, _LEFT_OVER_PART * off)


def _nan(actual: np.ndarray, exact: np.ndarray) -> str:
    wrong = is_nan(actual) & ~np.isnan(exact)
    return f"{wrong.sum():,} of {wrong.size:,} values are NaN" if wrong.any() else ""


def _transformed(actual: np.ndarray, exact: np.ndarray) -> str:
    for name, guess in _transforms(actual, exact):
        if _fits(actual, exact, guess):
            return name
    return ""


def _transforms(actual: np.ndarray, exact: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    yield "the sign is flipped", -exact
    for dtype in ("bfloat16", "float16"):
        if FORMATS[dtype].digits < FORMATS[actual.dtype.name].digits:
            yield f"rounded to {dtype} on the way", round_to(exact, dtype).astype(np.float64)
    if exact.ndim == 0 or exact.shape[-1] < 2:
        return
    columns = np.arange(exact.shape[-1])
    halves = np.concatenate([columns[0::2], columns[1::2]])
    yield "columns in halves, where they should be interleaved", exact[..., halves]
    yield "columns interleaved, where they should be in halves", exact[..., np.argsort(halves)]
    even = columns[: columns.size // 2 * 2]
    swapped = np.concatenate([even ^ 1, columns[even.size :]])
    yield "neighbouring columns swapped: sine and cosine change places", exact[..., swapped]
    turned = np.roll(columns, columns.size // 2)
    yield "the halves of the columns swapped: sine and cosine change places", exact[..., turned]


def _factor(actual: np.ndarray, exact: np.ndarray) -> str:
    values = widen(actual)
    usable = np.isfinite(values) & np.isfinite(exact)
    power = float(np.sum(exact[usable] ** 2))
    factor = float(np.sum(values[usable] * exact[usable])) / power if power else 1.0
    if (
        not math.isfinite(factor)
        or factor in (0.0, 1.0)
        or not _fits(actual, exact, factor * exact)
    ):
        return ""
    digits = 6 if FORMATS[actual.dtype.name].digits > 11 else 3
    return f"every value is {factor:.{digits}g} times the exact one{_name_of(factor, actual)}"


def _name_of(factor: float, actual: np.ndarray) -> str:
    """Name a factor that can hardly be another."""
    width = actual.shape[-1] if actual.ndim else 1
    close = 2.0 ** -(FORMATS[actual.dtype.name].digits - 1)
    names = {}
    if width > 4:
        names = {math.sqrt(width): f"sqrt({width})", 1 / math.sqrt(width): f"1 / sqrt({width})"}
    names |= {1 - rate: f"1 - {rate}: kept values not divided by 1 - rate" for rate in _RATES}
    names |= {1 / (1 - rate): f"1 / (1 - {rate}): rescaled twice" for rate in _RATES}
    fitting = (name for value, name in names.items() if abs(factor / value - 1) <= close)
    return next((f" = {name}" for name in fitting), "")


def _shifted(actual: np.ndarray, exact: np.ndarray) -> str:
    for axis in range(exact.ndim):
        ours, theirs = np.moveaxis(actual, axis, 0), np.moveaxis(exact, axis, 0)
        if len(ours) < 3:
            continue
        if _fits(ours[:-1], theirs[:-1], theirs[1:]):
            return f"shifted by one along axis {axis}: each holds the value of the next"
        if _fits(ours[1:], theirs[1:], theirs[:-1]):
            return f"shifted by one along axis {axis}: each holds the value of the one before"
    return ""


def _one_row(actual: np.ndarray, exact: np.ndarray) -> str:
    if actual.ndim < 2:
        return ""
    distance = measure(actual, exact)
    far = (distance.errors > _LEFT_OVER_ULP * distance.units).any(axis=-1)
    if far.sum() != 1 or far.size < 2:
        return ""
    row = [int(i) for i in np.argwhere(far)[0]]
    wanted = "; it should be zero, as a padding row is" if not exact[tuple(row)].any() else ""
    return f"only row {row} is off{wanted}"
