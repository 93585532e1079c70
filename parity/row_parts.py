"""Parts that every row is made of: what it is about, where it is worst, why it can't be one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from parity.distance import Distance, Place, argmax
from parity.formats import is_floating, widen
from parity.rows import Label, Row, Value
from parity.verdict import Limit


def about(
    label: Label, array: np.ndarray | None, passed: bool, words: str, side: str
) -> dict[str, Any]:
    """Return the fields of a row that say what it is about, and how it ended."""
    return {
        "case": label.case,
        "tensor": label.tensor,
        "dtype": array.dtype.name if array is not None else "",
        "device": label.device,
        "verdict": words,
        "passed": passed,
        "side": side,
        "elements": array.size if array is not None else 0,
        "names": label.names,
    }


def measured(distance: Distance, limit: Limit, place: Place) -> dict[str, Any]:
    """Return the fields of a row that hold one side against its limit."""
    used = limit.used(distance)
    return {
        "limit": limit.at(distance, place) if used.size else None,
        "limit_source": limit.source_at(distance, place) if used.size else "",
        "over_limit": float(used.max(initial=0.0)),
        "where": place,
        "beyond": int(np.sum(used > 1)),
    }


def worst_place(distance: Distance, limit: Limit) -> Place:
    """Return the element to show: the one furthest over its limit, or the one that is most off."""
    used = limit.used(distance)
    return argmax(used) if used.max(initial=0.0) > 1 else distance.place


def value_at(array: np.ndarray, place: Place) -> Value:
    """Return an element as a Python number, None if there is none."""
    if array.size == 0:
        return None
    value = array[place]
    return float(value) if is_floating(array.dtype) else value.item()


def notes(ours: np.ndarray, theirs: np.ndarray) -> tuple[str, ...]:
    """Say what makes a comparison less than it looks."""
    if ours.size == 0:
        return ("empty: only shape and dtype were compared",)
    if not widen(ours).any() and not widen(theirs).any():
        return ("zero everywhere on both sides",)
    return ()


def missing(label: Label, port: np.ndarray | None, reference: np.ndarray | None) -> Row:
    """Return the row of a tensor that one side does not have."""
    there = port if port is not None else reference
    words, side = "there is no exact value to compare it with", ""
    if port is None:
        words, side = f"missing on the side of {label.names[0]}", "port"
    elif reference is None:
        words, side = f"missing on the side of {label.names[1]}", "reference"
    return Row(**about(label, there, False, words, side), port_error=math.inf)


def unlike(label: Label, port: np.ndarray, reference: np.ndarray, exact: np.ndarray) -> Row | None:
    """Return the row of arrays that can't be compared, None if they can."""
    shapes = [list(array.shape) for array in (port, reference, exact)]
    other = label.names[1]
    if shapes[0] != shapes[1]:
        words = f"shape {shapes[0]}, {other} has {shapes[1]}"
        side = "reference" if shapes[0] == shapes[2] else "port"
    elif port.dtype != reference.dtype:
        words, side = f"dtype {port.dtype.name}, {other} has {reference.dtype.name}", ""
    elif shapes[0] != shapes[2]:
        words, side = f"shape {shapes[0]} on both sides, exact {shapes[2]}", "both"
    else:
        return None
    return Row(**about(label, port, False, words, side), port_error=math.inf)
