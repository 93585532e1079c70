"""PyTorch: what a port holds of a step that no known mistake explains: a factor, a shift."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parity.frameworks.torch_calls import Call
from parity.mistakes.guess import Guess

# A line goes through any two points: of fewer values than this none is fitted.
_FEWEST = 6
_ALIKE = 1e-5
# How much of a clipped step must be as it was.
_UNCLIPPED = 0.2
_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "abs(x)": torch.abs,
    "x ** 2": torch.square,
    "exp(x)": torch.exp,
    "log(x)": torch.log,
    "sqrt(x)": torch.sqrt,
    "1 / x": torch.reciprocal,
}


def fits(
    call: Call, value: Tensor, held: Sequence[np.ndarray], holds: Callable[[Tensor], bool]
) -> Iterator[Guess]:
    """Yield what a port may have made of a step.

    Args:
      call: that made it.
      value: of the step, in float64.
      held: all that the port computed of that size, flat.
      holds: whether the port computed a value, in any order of axes.
    """
    for name, function in _FUNCTIONS.items():
        if holds(function(value)):
            cause = f"the port goes on with {name} of what {call.name} gives"
            answer = partial(_of, function, call)
            yield Guess("step-extra", cause, "leave out that step", answer)
    for axis in range(value.dim()):
        yield from _moved(call, value, axis, holds)
    if value.numel() < _FEWEST:
        return
    for order in _orders(value):
        theirs = order.reshape(-1).numpy()
        for ours in held:
            yield from _lines(call, ours, theirs)
            yield from _clipped(call, ours, theirs)


def _of(function: Callable[[Tensor], Tensor], call: Call) -> Tensor:
    return function(call())


def _moved(
    call: Call, value: Tensor, axis: int, holds: Callable[[Tensor], bool]
) -> Iterator[Guess]:
    if value.shape[axis] < 2:
        return
    if holds(value.flip(axis)):
        cause = f"the port reverses axis {axis} of what {call.name} gives"
        answer = partial(_of, partial(torch.flip, dims=(axis,)), call)
        yield Guess("reversed", cause, "keep the order", answer)
    for shift in (1, -1):
        if holds(value.roll(shift, axis)):
            cause = f"the port shifts what {call.name} gives by {shift} along axis {axis}"
            answer = partial(_of, partial(torch.roll, shifts=shift, dims=axis), call)
            yield Guess("shifted-by-one", cause, "do not shift it", answer)


def _orders(value: Tensor) -> Iterator[Tensor]:
    """Yield a value as it is, and with its channels last."""
    yield value
    if value.dim() > 2:
        yield value.movedim(1, -1)


def _lines(call: Call, ours: np.ndarray, theirs: np.ndarray) -> Iterator[Guess]:
    """Yield a factor, a constant, or both."""
    spread = theirs - theirs.mean()
    power = float(spread @ spread)
    if not power or not np.isfinite(power) or not np.isfinite(ours).all():
        return
    slope = float(spread @ (ours - ours.mean())) / power
    shift = float(ours.mean() - slope * theirs.mean())
    size = float(np.abs(ours).max(initial=0.0))
    if not slope or np.abs(ours - slope * theirs - shift).max() > _ALIKE * size:
        return
    is_shifted = abs(shift) > _ALIKE * size
    is_scaled = abs(slope - 1) > _ALIKE
    plus = f" {'+' if shift > 0 else '-'} {abs(shift):.5g}" if is_shifted else ""
    if not is_scaled and not is_shifted:
        return
    code = "factor" if is_scaled else "shift"
    if abs(slope + 1) <= _ALIKE and not is_shifted:
        code = "sign"
    cause = f"the port has {slope:.5g} x{plus}, where x is what {call.name} gives in torch"
    answer = partial(_line, call, slope if is_scaled else 1.0, shift if is_shifted else 0.0)
    yield Guess(code, cause, "leave out what is multiplied or added", answer)


def _line(call: Call, slope: float, shift: float) -> Any:
    return call() * slope + shift


def _clipped(call: Call, ours: np.ndarray, theirs: np.ndarray) -> Iterator[Guess]:
    low, high = float(ours.min()), float(ours.max())
    if not low < high or (theirs.min() >= low - _ALIKE and theirs.max() <= high + _ALIKE):
        return
    kept = float(np.mean((theirs > low) & (theirs < high)))
    if kept < _UNCLIPPED or np.abs(np.clip(theirs, low, high) - ours).max() > _ALIKE * (high - low):
        return
    low = -np.inf if theirs.min() >= low - _ALIKE else low
    high = np.inf if theirs.max() <= high + _ALIKE else high
    cause = f"the port clips what {call.name} gives to [{low:.5g}, {high:.5g}]"
    answer = partial(_of, partial(torch.clamp, min=low, max=high), call)
    yield Guess("clipped", cause, "leave out the clip", answer)
