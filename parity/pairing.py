"""Which output of a port is which of its reference, and in which order of axes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from parity.formats import is_floating, widen

Axes = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Paired:
    """An output on both sides.

    Attributes:
      port: its path in the port.
      reference: its path in the reference.
      axes: of the port's, that bring it into the order of the reference; None if none does.
    """

    port: str
    reference: str
    axes: Axes | None


def paired(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    layouts: tuple[Axes, ...] = (),
) -> tuple[list[Paired], tuple[str, ...]]:
    """Pair the outputs of two sides.

    Args:
      ours: of the port.
      theirs: of the reference.
      layouts: orders of axes in which the inputs of the port differ; outputs may differ so too.

    Returns:
      The pairs, and what has to be told about outputs that have no partner.
    """
    if ours.keys() == theirs.keys():
        names = [(name, name) for name in theirs]
    elif len(ours) == len(theirs):
        names = list(zip(ours, theirs, strict=True))
    elif len(ours) == 1 or len(theirs) == 1:
        names = [_single(ours, theirs)]
    else:
        names = [(name, name) for name in theirs if name in ours]
    pairs = [Paired(a, b, _axes(ours[a], theirs[b], layouts)) for a, b in names]
    left = [f"{n} of the reference" for n in theirs if n not in {b for _, b in names}]
    left += [f"{n} of the port" for n in ours if n not in {a for a, _ in names}]
    told = tuple(f"output {name} is not compared: the other side has none" for name in left)
    return pairs, told


def _single(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> tuple[str, str]:
    """Return the first of several that has the shape of the one."""
    if len(ours) == 1:
        (mine,) = ours
        fitting = [n for n, value in theirs.items() if value.shape == ours[mine].shape]
        return mine, (fitting or [next(iter(theirs))])[0]
    (yours,) = theirs
    fitting = [n for n, value in ours.items() if value.shape == theirs[yours].shape]
    return (fitting or [next(iter(ours))])[0], yours


def _axes(ours: np.ndarray, theirs: np.ndarray, layouts: tuple[Axes, ...]) -> Axes | None:
    for axes in layouts:
        # A port is asked for shapes before it has values: they have no transpose.
        if len(axes) == ours.ndim and tuple(ours.shape[axis] for axis in axes) == theirs.shape:
            return axes
    return tuple(range(ours.ndim)) if ours.shape == theirs.shape else None


def turned(ours: np.ndarray, theirs: np.ndarray) -> Axes | None:
    """Return the order of axes in which two arrays are nearest, if there is one but the plain."""
    if ours.ndim != theirs.ndim or not 1 < ours.ndim < 6 or not is_floating(ours.dtype):
        return None
    orders = [
        axes
        for axes in itertools.permutations(range(ours.ndim))
        if ours.transpose(axes).shape == theirs.shape
    ]
    wide = widen(ours)
    return min(
        orders, key=lambda axes: float(np.abs(wide.transpose(axes) - theirs).max()), default=None
    )


def layouts_of(
    ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]
) -> tuple[Axes, ...]:
    """Return the orders of axes that bring inputs of the port into those of the reference."""
    found = []
    for name, mine in ours.items():
        yours = theirs.get(name)
        if yours is None or mine.ndim != yours.ndim or not 2 < mine.ndim < 6:
            continue
        for axes in itertools.permutations(range(mine.ndim)):
            if axes != tuple(range(mine.ndim)) and np.array_equal(mine.transpose(axes), yours):
                found.append(axes)
                break
    return tuple(dict.fromkeys(found))
