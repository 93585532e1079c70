"""How far a side lies from itself: run twice, and on one example alone. No limit can be below."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from parity.case import Arrays, Case, Tensor
from parity.distance import measure
from parity.formats import differing_bits, widen
from parity.rows import Row

Floors = Mapping[str, float]


def floors(
    case: Case,
    side: Callable[[Arrays], Arrays],
    inputs: Arrays,
    first: Arrays,
    *,
    alone: bool,
) -> dict[str, float]:
    """Return the greatest distance of each tensor from itself, where its bits differ.

    What the side draws is drawn from the same key each time. The distance is 0 where only the sign
    of a zero differs.

    Args:
      case: that is run.
      side: its port or its reference.
      inputs: the case's.
      first: what the side has computed from them.
      alone: whether the first example is also computed without the others.
    """
    found = _apart(first, side(inputs))
    if alone and case.batch:
        example = {
            name: array[:1] if name in case.batch else array for name, array in inputs.items()
        }
        shared = {name: array[:1] for name, array in first.items() if name in case.batch}
        for name, floor in _apart(shared, side(example)).items():
            found[name] = max(floor, found.get(name, 0.0))
    return found


def _apart(ours: Arrays, again: Arrays) -> dict[str, float]:
    pairs = {name: (array, again[name]) for name, array in ours.items()}
    return {
        name: measure(array, widen(other)).max_abs
        for name, (array, other) in pairs.items()
        if differing_bits(array, other).any()
    }


def held(row: Row, expected: Tensor | None, port: Floors, reference: Floors) -> Row:
    """Refuse a limit that is below the noise floor of either side, and tell the floor.

    Args:
      row: the verdict on a tensor.
      expected: what was promised of it.
      port: floors of the port's tensors.
      reference: the same of the reference.
    """
    found = [
        (floors[row.tensor], name)
        for floors, name in zip((port, reference), row.names, strict=True)
        if row.tensor in floors
    ]
    if not found or expected is None or row.limit is None:
        return row
    floor, noisy = max(found, key=lambda pair: pair[0])
    told = replace(row, notes=(*row.notes, f"noise floor: {noisy} is {floor:.2g} from itself"))
    if expected.same_bits:
        words = f"the same bits are promised, and {noisy} differs from itself"
    elif row.limit < floor:
        words = f"the limit {row.limit:.2g} is below the noise floor {floor:.2g} of {noisy}"
    else:
        return told
    return replace(told, passed=False, verdict=words)
