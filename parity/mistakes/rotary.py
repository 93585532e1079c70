"""PyTorch: rotary positions, however they are written: found by what they do, not by their code.

A rotation keeps the length of each pair of features, and turns it by an angle that hangs on the
position alone. Where a call completes one, the angles are read off, and other rotations follow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from parity.frameworks.torch_calls import Call
from parity.mistakes.ancestors import ancestors
from parity.mistakes.guess import Guess

_ENDS = ("cat", "concat", "add", "radd", "flatten", "reshape", "view", "type_as", "to")
_BASES = (500_000.0, 10_000.0, 1_000_000.0, 100_000.0, 1_000.0, 100.0)
_STRETCHES = (2.0, 4.0, 8.0, 0.5, 0.25, 0.125)
_QUERY = re.compile(r"(^|[./_])(q|wq|query)([._\d]|proj|$)")
Layout = Literal["interleaved", "halves"]


@dataclass(frozen=True, eq=False)
class Rotation:
    """How one tensor was turned into another.

    Attributes:
      x: before.
      layout: of the pairs that turn: 0 with 1, or 0 with half the width.
      angles: of each pair, in radians; of the shape of x, with half its width.
    """

    x: Tensor
    layout: Layout
    angles: Tensor

    def __call__(self) -> Tensor:
        """Turn."""
        first, second = _pairs(self.x, self.layout)
        cos, sin = self.angles.cos(), self.angles.sin()
        turned = (first * cos - second * sin, second * cos + first * sin)
        if self.layout == "halves":
            return torch.cat(turned, -1)
        return torch.stack(turned, -1).flatten(-2)


def _pairs(x: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    if layout == "halves":
        first, second = x.chunk(2, -1)
        return first, second
    return x[..., ::2], x[..., 1::2]


def rotation(call: Call) -> Rotation | None:
    """Return the rotation that a call completes, if it does."""
    if call.name not in _ENDS:
        return None
    y = call()
    if not isinstance(y, Tensor) or y.dim() < 3 or y.shape[-1] % 2 or not y.is_floating_point():
        return None
    before = (result.value for result in ancestors(call) if result.value.shape == y.shape)
    for x in before:
        for layout in ("halves", "interleaved"):
            if (found := _between(x, y, layout)) is not None:
                return found
    return None


def _between(x: Tensor, y: Tensor, layout: Layout) -> Rotation | None:
    (x0, x1), (y0, y1) = _pairs(x, layout), _pairs(y, layout)
    if torch.equal(x, y) or not _close(x0**2 + x1**2, y0**2 + y1**2):
        return None
    angles = torch.atan2(x0 * y1 - x1 * y0, x0 * y0 + x1 * y1)
    # The same for every head, or every row: else it is a swap, which also keeps lengths.
    axes = [axis for axis in range(x.dim() - 1) if x.shape[axis] > 1]
    fixed = [axis for axis in axes if _is_one(angles.cos(), axis) and _is_one(angles.sin(), axis)]
    return Rotation(x, layout, angles) if fixed and len(fixed) < len(axes) else None


def _is_one(values: Tensor, axis: int) -> bool:
    return _close(values, values.narrow(axis, 0, 1).expand_as(values))


def _close(ours: Tensor, theirs: Tensor) -> bool:
    return torch.allclose(ours, theirs, rtol=1e-6, atol=1e-9)


def rotary_mistakes(call: Call) -> Iterator[Guess]:
    """Yield mistakes of a rotation, and a rotation of values."""
    if call.name in ("matmul", "attended", "bmm", "scaled_dot_product_attention"):
        yield from _values(call)
    found = rotation(call)
    if found is None:
        return
    which = "query" if any(_QUERY.search(name) for name in _names(call)) else "key"
    fix = "rotate queries and keys"
    cause = f"the port does not rotate its {which}"
    yield Guess(f"{which}-not-rotated", cause, fix, found.x.clone)
    yield Guess("rotary-missing", "the port has no rotary positions", fix, found.x.clone)
    cause = "the port rotates the other way"
    fix = "first * cos - second * sin, second * cos + first * sin"
    back = replace(found, angles=-found.angles)
    yield Guess("rotated-backwards", cause, fix, back)
    yield from _layouts(found)
    yield from _frequencies(found)


def _names(call: Call) -> Iterator[str]:
    """Yield the names of weights that went into a call."""
    for result in ancestors(call):
        yield from (key for key in result.call.sources if key.startswith("weights/"))


def _layouts(found: Rotation) -> Iterator[Guess]:
    told = {"halves": "its halves", "interleaved": "neighbours"}
    other: Layout = "interleaved" if found.layout == "halves" else "halves"
    cause = f"the pairs that turn are {told[other]} in the port, {told[found.layout]} in torch"
    fix = f"pair {told[found.layout]}"
    yield Guess("interleaved-halves", cause, fix, replace(found, layout=other))
    swapped = replace(found, angles=torch.pi / 2 - found.angles)
    cause = "sine and cosine of the rotation have changed places in the port"
    yield Guess("sine-cosine-swapped", cause, "x * cos + rotate_half(x) * sin", swapped)


def _frequencies(found: Rotation) -> Iterator[Guess]:
    """Yield other frequencies, where positions are 0, 1, 2 ... along one axis."""
    place = _places(found.angles)
    if place is None:
        return
    axis, own = place
    half = len(own)
    columns = torch.arange(half, dtype=own.dtype)
    base = float(own[1]) ** -half
    fix = f"base {base:.6g}"
    told = {
        f"the base is {other:g} in the port, {base:.6g} in torch": other ** (-columns / half)
        for other in _BASES
        if abs(other / base - 1) > 1e-6
    }
    told["the exponents run to 1/2 in the port, to 1 in torch"] = base ** (-columns / half / 2)
    told["the exponents run over the whole width in the port"] = base ** (-2 * columns / half)
    for cause, frequencies in told.items():
        yield Guess("rotary-base", cause, fix, partial(_turned, found, axis, frequencies))
    for stretch in _STRETCHES:
        cause = f"positions count {stretch:g} times as much in the port"
        answer = partial(_turned, found, axis, own * stretch)
        yield Guess("rotary-scaling", cause, "positions * frequency", answer)


def _places(angles: Tensor) -> tuple[int, Tensor] | None:
    """Return the axis of positions and the frequencies, if positions start at 0 and rise by 1."""
    half = angles.shape[-1]
    for axis in range(angles.dim() - 1):
        if half < 2 or angles.shape[axis] < 2 or _is_one(angles, axis):
            continue
        rows = angles.movedim(axis, 0).reshape(angles.shape[axis], -1, half)[:, 0]
        own = rows[1]
        turned = torch.arange(len(rows), dtype=own.dtype)[:, None] * own
        is_range = _close(turned.cos(), rows.cos())
        is_falling = bool((own > 0).all() and (own.diff() < 0).all())
        if is_range and is_falling and math.isclose(own[0], 1, rel_tol=1e-6):
            return axis, own
    return None


def _turned(found: Rotation, axis: int, frequencies: Tensor) -> Tensor:
    shape = [1] * (found.angles.dim() - 1)
    shape[axis] = found.angles.shape[axis]
    places = torch.arange(shape[axis], dtype=frequencies.dtype).reshape(*shape, 1)
    angles = (places * frequencies).expand_as(found.angles)
    return replace(found, angles=angles)()


def _values(call: Call) -> Iterator[Guess]:
    """Yield values that are rotated like the keys were."""
    if len(call.places) < 2 or not isinstance(call.places[1], Tensor):
        return
    place = 2 if call.name == "scaled_dot_product_attention" else 1
    value = call.places[place]
    for result in [*ancestors(call)]:
        found = rotation(result.call) if result.value.shape == value.shape else None
        if found is not None and not torch.equal(result.value, value):
            own = replace(found, x=value)
            places = [*call.places]
            places[place] = own()
            cause = "the port rotates the values as well"
            yield Guess("value-rotated", cause, "rotate queries and keys", partial(call, *places))
            return
