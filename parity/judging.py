"""From both sides of a tensor and its exact value to a row: how far off, who, why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parity import verdict
from parity.case import Tensor
from parity.causes import likely_cause
from parity.distance import Place, argmax, measure
from parity.formats import differing_bits, fits_float32, is_floating, round_to, widen
from parity.row_parts import about, measured, missing, notes, unlike, value_at, worst_place
from parity.rows import Label, Row

if TYPE_CHECKING:
    from jaxtyping import Bool, Shaped


def compare_tensor(
    label: Label,
    port: Shaped[np.ndarray, "*shape"] | None,
    reference: Shaped[np.ndarray, "*shape"] | None,
    expected: Tensor | None,
) -> Row:
    """Hold both sides of one tensor against its exact value.

    Args:
      label: what it is about.
      port: what the side under test computed; None if it has no such tensor.
      reference: what the reference did.
      expected: the exact value, and how far off the sides may be.
    """
    if port is None or reference is None or expected is None:
        return missing(label, port, reference)
    row = unlike(label, port, reference, expected.exact)
    return row if row is not None else _judged(label, port, reference, expected)


def _judged(label: Label, port: np.ndarray, reference: np.ndarray, expected: Tensor) -> Row:
    ours, theirs = measure(port, expected.exact), measure(reference, expected.exact)
    differ = differing_bits(port, reference)
    said = verdict.judge(
        ours,
        theirs,
        ceiling=expected.ceiling,
        deviation=expected.deviation,
        equal_bits=not differ.any(),
        same_bits=expected.same_bits,
        names=label.names,
    )
    shown, limit = (theirs, said.reference) if said.side == "reference" else (ours, said.port)
    place, side, cause = worst_place(shown, limit), said.side, ""
    if said.words == verdict.BITS_DIFFER:
        place = _greatest_difference(port, reference, differ)
        side, cause = _misrounded(port, reference, expected.exact, differ, label.names)
    elif not said.passed:
        off = reference if side == "reference" else port
        cause = likely_cause(off, expected.exact, expected.mistakes)
    return Row(
        **about(label, port, said.passed, said.words, side),
        **measured(shown, limit, place),
        port_error=ours.max_abs,
        reference_error=theirs.max_abs,
        ulp=ours.ulp,
        reference_ulp=theirs.ulp,
        reason=expected.reason,
        port_value=value_at(port, place),
        reference_value=value_at(reference, place),
        exact_value=value_at(expected.exact, place),
        differing=int(differ.sum()),
        cause=cause,
        notes=(*notes(port, reference), *_doubts(expected)),
    )


def _greatest_difference(
    port: np.ndarray, reference: np.ndarray, differ: Bool[np.ndarray, "*shape"]
) -> Place:
    """Return where the sides lie furthest apart; a -0 against a 0 is a difference too."""
    apart = measure(port, widen(reference)).errors
    return argmax(np.where(differ, apart, -1.0))


def _misrounded(
    port: np.ndarray,
    reference: np.ndarray,
    exact: np.ndarray,
    differ: Bool[np.ndarray, "*shape"],
    names: tuple[str, str],
) -> tuple[verdict.Side, str]:
    """Say which side has the exact value, correctly rounded, wherever the bits differ."""
    if not is_floating(port.dtype):
        return "", ""
    rounded = round_to(widen(exact), port.dtype)
    right = [not np.any(differing_bits(side, rounded) & differ) for side in (port, reference)]
    if right[0] == right[1]:
        return "", ""
    good, bad = names if right[0] else names[::-1]
    text = f"{good} is correctly rounded at all {differ.sum():,} places where they differ"
    return ("reference" if right[0] else "port"), f"{text}, {bad} is not"


def _doubts(expected: Tensor) -> tuple[str, ...]:
    exact = expected.exact
    if expected.exact_kind == "exact" or exact.dtype != np.float64 or exact.size == 0:
        return ()
    return ("the reference in float64 was computed in float32",) if fits_float32(exact) else ()
