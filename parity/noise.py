"""How far a side lies from itself: run twice, and on one example alone. No limit can be below."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from parity.case import Arrays, Case, Tensor
from parity.distance import measure
from parity.formats import differing_bits
from parity.rows import Row

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Shaped

Floors = Mapping[str, float]


def floors(
    case: Case, side: Callable[[Arrays], Arrays], first: Arrays, *, alone: bool
) -> dict[str, float]:
    """Return the greatest distance of each tensor from itself, where it is not zero.

    What the side draws is drawn from the same key each time.

    Args:
      case: that is run.
      side: its port or its reference.
      first: what that has computed from the case's inputs.
      alone: whether the first example is also computed without the others.
    """
    inputs = case.inputs()
    found = _apart(first, side(inputs))
    if alone and case.batch:
        example = {name: _example(case, name, array) for name, array in inputs.items()}
        named = {name: array for name, array in first.items() if name in case.batch}
        for name, floor in _apart(
            {name: array[:1] for name, array in named.items()}, side(example)
        ).items():
            found[name] = max(floor, found.get(name, 0.0))
    return found


def _example(case: Case, name: str, array: np.ndarray) -> np.ndarray:
    return array[:1] if name in case.batch else array


def _apart(ours: Arrays, again: Arrays) -> dict[str, float]:
    """Return the distances of the tensors of ``ours`` whose bits are not those of another run."""
    pairs = {name: (array, again[name]) for name, array in ours.items()}
    return {name: _greatest(*pair) for name, pair in pairs.items() if differing_bits(*pair).any()}


def _greatest(ours: Shaped[np.ndarray, "*shape"], again: Shaped[np.ndarray, "*shape"]) -> float:
    return measure(ours, again.astype("float64")).max_abs


def held(row: Row, expected: Tensor | None, port: Floors, reference: Floors) -> Row:
    """Refuse a limit that is below the noise floor of either side, and tell the floor.

    Args:
      row: the verdict on a tensor.
      expected: what was promised of it.
      port: floors of the port's tensors.
      reference: the same of the reference.
    """
    floor = max(port.get(row.tensor, 0.0), reference.get(row.tensor, 0.0))
    if not floor or expected is None or row.limit is None:
        return row
    noisy = row.names[0 if floor == port.get(row.tensor) else 1]
    told = replace(
        row, notes=(*row.notes, f"noise floor: two runs of {noisy} are {floor:.2g} apart")
    )
    if expected.same_bits:
        words = f"the same bits are promised, and two runs of {noisy} differ"
    elif row.limit < floor:
        words = f"the limit {row.limit:.2g} is below the noise floor {floor:.2g} of {noisy}"
    else:
        return told
    return replace(told, passed=False, verdict=words)
