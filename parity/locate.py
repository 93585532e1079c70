"""Where a port leaves its reference: which of the reference's steps are found in the port.

A step is one result of the reference. It is found if the port computed the same somewhere, in any
order of axes. A step that the port never holds, because it computes in another order, is no loss
as long as all that follows from it is right. HERE is the first step that is lost.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from parity.formats import is_floating, widen
from parity.hidden_scores import hidden, level

State = Literal["ok", "elsewhere", "here", "off", "constant"]
# Packed projections are often made one by one.
_PARTS = (2, 3, 4)
_MOST_AXES = 5


@dataclass(frozen=True, eq=False)
class Step:
    """One result of the reference.

    Attributes:
      key: tells it from all others.
      module: path of the submodule.
      name: of the function.
      sources: keys of what it was computed from.
      value: in float64.
      limit: how far off a right port may be, absolutely.
    """

    key: str
    module: str
    name: str
    sources: tuple[str, ...]
    value: np.ndarray
    limit: float


@dataclass(frozen=True, eq=False)
class Status:
    """What became of a step in the port.

    Attributes:
      step: which one.
      state: "ok" if it is found, "elsewhere" if not but all that follows is, "here", "off", or
        "constant" if no input goes into it.
      error: of what the port holds of it, or of the nearest; inf if that is not looked for.
      place: which of the port's values that is, -1 if none.
    """

    step: Step
    state: State
    error: float
    place: int


# A mask may be as large as its format allows: such values have no sum, and are found all the same.
_QUIET = np.errstate(over="ignore", invalid="ignore")


class Values:
    """All that a port computed, so that a step can be looked up."""

    @_QUIET
    def __init__(self, arrays: Iterable[np.ndarray], *, masked: bool = True) -> None:
        """Index floating arrays by their size.

        Args:
          arrays: all of them.
          masked: whether some may be scores that a mask hides, which gradients never are.
        """
        self._level: Callable[[np.ndarray], np.ndarray] = level if masked else np.asarray
        wide = (widen(array).reshape(-1) for array in arrays if is_floating(array.dtype))
        self.flat = [self._level(array) for array in wide]
        self._by_size: dict[int, list[int]] = {}
        self._sorted: dict[int, np.ndarray] = {}
        self._totals = [(float(flat.sum()), float(np.abs(flat).sum())) for flat in self.flat]
        for place, flat in enumerate(self.flat):
            self._by_size.setdefault(flat.size, []).append(place)

    def of_size(self, size: int) -> list[np.ndarray]:
        """Return all values of as many elements, flat."""
        return [self.flat[place] for place in self._by_size.get(size, ())]

    @_QUIET
    def nearest(self, value: np.ndarray) -> tuple[float, int]:
        """Return how far off the nearest value is, in any order of axes, and its place.

        Args:
          value: without NaN or infinities.
        """
        places = self._by_size.get(value.size, [])
        # No order of the elements brings two arrays nearer than they are when both are sorted.
        value = self._level(value)
        flat = np.sort(value, axis=None)
        apart = [_apart(self._in_order(place), flat) for place in places]
        if not np.isfinite(apart).any():
            return math.inf, -1
        place = places[int(np.argmin(apart))]
        return min(_apart(self.flat[place], turned) for turned in _turned(value)), place

    def _in_order(self, place: int) -> np.ndarray:
        if place not in self._sorted:  # to sort costs more than all else, and each lost step asks
            self._sorted[place] = np.sort(self.flat[place])
        return self._sorted[place]

    @_QUIET
    def holds(self, value: np.ndarray, limit: float) -> tuple[float, int]:
        """Return the error and place of the first value that is the same, inf and -1 if none is.

        Args:
          value: without NaN or infinities. Equal parts of its last axis may be held one by one.
          limit: within which a value is the same, in any order of axes.
        """
        value = self._level(value)
        found = self._same(value, limit)
        if found[0] <= limit or value.ndim == 0:
            return found
        for count in _PARTS:
            if value.shape[-1] % count or value.shape[-1] == count:
                continue
            parts = [self._same(part, limit) for part in np.split(value, count, axis=-1)]
            if all(part[0] <= limit for part in parts):
                return max(parts)
        return math.inf, -1

    def _same(self, value: np.ndarray, limit: float) -> tuple[float, int]:
        total, absolute = float(value.sum()), float(np.abs(value).sum())
        slack = value.size * limit
        for place in self._by_size.get(value.size, ()):
            its = self._totals[place]
            if abs(its[0] - total) <= slack and abs(its[1] - absolute) <= slack:
                for turned in _turned(value):
                    if (error := _apart(self.flat[place], turned)) <= limit:
                        return error, place
        return math.inf, -1


def _apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    with np.errstate(invalid="ignore"):
        apart = np.abs(ours - theirs).max(initial=0.0)
    return float(apart) if not np.isnan(apart) else math.inf


def _turned(value: np.ndarray) -> Iterator[np.ndarray]:
    """Yield a value flattened, with its axes in every order."""
    yield value.reshape(-1)
    thin = value.squeeze()
    if 1 < thin.ndim <= _MOST_AXES:
        for order in itertools.islice(itertools.permutations(range(thin.ndim)), 1, None):
            yield thin.transpose(order).reshape(-1)


def located(
    steps: Sequence[Step], values: Values, outputs: Mapping[str, bool]
) -> tuple[Status, ...]:
    """Say of each step what became of it in the port.

    Args:
      steps: in the order in which they were computed.
      values: what the port computed.
      outputs: of the steps that are outputs, whether the port returns them.
    """
    moving = _moving(steps)
    found = {step.key: _found(step, values) for step in steps if step.key in moving}
    users: dict[str, list[str]] = {}
    for step in steps:
        for source in step.sources:
            users.setdefault(source, []).append(step.key)
    kept: dict[str, bool] = {}
    for step in reversed(steps):
        follow = [user for user in users.get(step.key, ()) if user in moving]
        rest = [kept[user] for user in follow]
        if step.key in outputs:
            rest.append(outputs[step.key])
        is_found = step.key in moving and found[step.key][0] <= step.limit
        is_dead = not follow and step.key not in outputs
        kept[step.key] = (
            (is_found and outputs.get(step.key, True)) or is_dead or (bool(rest) and all(rest))
        )
    return tuple(_statuses(steps, moving, found, kept, outputs))


def with_nearest(status: Status, values: Values) -> Status:
    """Return a status with what is nearest to a step that the port never holds."""
    value = level(status.step.value)
    if status.state not in ("here", "off") or status.place >= 0 or not np.isfinite(value).all():
        return status
    error, place = values.nearest(value)
    return replace(status, error=error, place=place)


def _moving(steps: Sequence[Step]) -> set[str]:
    """Return the steps into which an input goes."""
    moving: set[str] = set()
    for step in steps:
        if any(source in moving or source.startswith("inputs/") for source in step.sources):
            moving.add(step.key)
    return moving


def _found(step: Step, values: Values) -> tuple[float, int]:
    if not np.isfinite(level(step.value)).all() or step.value.size == 0:
        return math.inf, -1
    return values.holds(step.value, step.limit)


def _statuses(
    steps: Sequence[Step],
    moving: set[str],
    found: Mapping[str, tuple[float, int]],
    kept: Mapping[str, bool],
    outputs: Mapping[str, bool],
) -> Iterator[Status]:
    lost = [
        step
        for step in steps
        if step.key in moving
        and not (found[step.key][0] <= step.limit and outputs.get(step.key, True))
        and not kept[step.key]
    ]
    here = next((step for step in lost if _tells(step.value)), (*lost, None)[0])
    for step in steps:
        error, place = found.get(step.key, (0.0, -1))
        state: State = "off"
        if step.key not in moving:
            state = "constant"
        elif error <= step.limit and outputs.get(step.key, True):
            state = "ok"
        elif kept[step.key]:
            state = "elsewhere"
        elif step is here:
            state = "here"
        yield Status(step, state, error, place)


def _tells(value: np.ndarray) -> bool:
    """Say whether a value can be looked up: a mask, infinities and zeros may be held otherwise."""
    seen = value[~hidden(value)]
    return bool(np.isfinite(seen).all() and seen.size and seen.min() != seen.max())
