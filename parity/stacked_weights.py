"""What is wrong with a leaf that holds the weights of several layers, one stacked on another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parity.cause import Cause, in_any_layer
from parity.formats import widen
from parity.placement import Placement
from parity.weight_guesses import close


def stacked_cause(ours: np.ndarray, right: np.ndarray, parts: Sequence[Placement]) -> Cause | None:
    """Name layers that have changed places; None if this is another kind of leaf, or mistake.

    Args:
      ours: the leaf that the port was given.
      right: what it should be.
      parts: where the tensors of the layers are in it.
    """
    names = [part.source.name for part in parts]
    if len(set(names)) < len(names) or len(names) < 2 or ours.shape != right.shape:
        return None
    if any(part.is_added for part in parts):
        return None
    mine, yours = ([widen(part.target.of(leaf)) for part in parts] for leaf in (ours, right))
    if len({value.shape for value in yours}) > 1:
        return None
    held = [_place(value, own, yours, ours.dtype) for own, value in enumerate(mine)]
    wrong = [place for place, other in enumerate(held) if other != place]
    known = [other for other in held if other is not None]
    if not wrong:
        return None
    first, path = wrong[0], parts[0].target.name
    are_layers = len({in_any_layer(name) for name in names}) == 1
    if len(known) < len(held):
        if len(wrong) == len(held):  # it is one mistake of all
            return None
        told = ", ".join(names[place] for place in wrong)
        rest = "the other layers are" if are_layers else "the rest of it is"
        cause = f"{path} differs at {told}; {rest} right"
        fix = f"{parts[first].leaf} = {names[first]} {parts[first].how}"
        return Cause("weight-differs", names[first], cause, fix)
    if not are_layers:  # projections, say, of which another mistake tells more
        return None
    order = ", ".join(str(other) for other in held)
    cause = f"{path} has its layers in the order ({order})"
    fix = f"stack {names[0]}, {names[1]}, ... in the order of their numbers, each once"
    return Cause("layers-swapped", names[first], cause, fix)


def _place(value: np.ndarray, own: int, right: Sequence[np.ndarray], dtype: np.dtype) -> int | None:
    """Return the layer whose weights these are, its own first; None if they are of none."""
    places = sorted(range(len(right)), key=lambda place: place != own)
    return next((place for place in places if close(value, right[place], dtype)), None)
