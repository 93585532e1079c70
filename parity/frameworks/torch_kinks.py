"""PyTorch: gradients at a kink, which the last bits of a value decide.

Where relu, a clamp or a maximum is given a value within its error of the kink, a right port may
take the other branch, and no rounding of what comes out shows it: the gradient jumps. Both branches
are taken here, and a port may be off by what lies between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from parity.frameworks.torch_calls import Call, Rewrite, tensors
from parity.frameworks.torch_trace import Run

_KINKED = (
    *("relu", "relu6", "leaky_relu", "prelu", "rrelu", "threshold", "abs", "clamp", "clip"),
    *("elu", "selu", "celu", "hardtanh", "hardsigmoid", "hardswish", "hardshrink", "softshrink"),
    *("maximum", "minimum", "max", "min", "amax", "amin", "clamp_min", "clamp_max", "l1_loss"),
    *(f"{kind}max_pool{axes}d" for kind in ("", "adaptive_") for axes in (1, 2, 3)),
)
# Where one operand meets the other, what either is off by counts.
_OF_TWO = ("clamp", "clip", "clamp_min", "clamp_max", "maximum", "minimum", "max", "min", "l1_loss")
# Which part of the greatest slope a jump is, at least: slopes that vary are no kinks.
_JUMP = 1e-2
# What jumps at two kinks may cancel: so they are moved all at once, and by half, at random.
_HALVES = 4


class Kinks:
    """Moves what is near a kink to its other side, in a reference that runs again."""

    def __init__(self, exact: Run, errors: Mapping[str, float]) -> None:
        """Find what is near a kink.

        Args:
          exact: the run in float64.
          errors: how far off each step may be, by key.
        """
        calls = {result.call.key: result.call for result in exact.results.values()}
        self._moves: dict[str, Tensor] = {}
        for key, call in calls.items():
            if (x := _given(call)) is not None:
                move = _move(call, x, _error(call, errors))
                if move.any():
                    self._moves[key] = move

    def rewrites(self) -> Iterator[Rewrite]:
        """Yield what takes other branches, of all kinks and of some; nothing if there are none."""
        if not self._moves:
            return
        yield _Moved(self._moves)
        if sum(int(move.count_nonzero()) for move in self._moves.values()) == 1:
            return
        random = torch.Generator().manual_seed(0)
        for _ in range(_HALVES):
            kept = {
                key: move * torch.randint(2, move.shape, generator=random)
                for key, move in self._moves.items()
            }
            yield _Moved(kept)


class _Moved:
    """Answers calls that are given something near their kink."""

    def __init__(self, moves: Mapping[str, Tensor]) -> None:
        self._moves = moves

    def __call__(self, call: Call) -> Any:
        move = self._moves.get(call.key)
        return NotImplemented if move is None else call(call.places[0] + move)


def _given(call: Call) -> Tensor | None:
    x = call.places[0] if call.places and call.sources else None
    is_kinked = call.name in _KINKED and isinstance(x, Tensor) and x.is_floating_point()
    return x.detach() if is_kinked and isinstance(x, Tensor) and x.numel() else None


def _error(call: Call, errors: Mapping[str, float]) -> float:
    """Return how far off what a call is given may be; weights and inputs are as they are."""
    given = tensors((call.places, call.named)) if call.name in _OF_TWO else call.places[:1]
    return sum(errors.get(call.source(value), 0.0) for value in given)


@torch.inference_mode(mode=False)
def _move(call: Call, x: Tensor, error: float) -> Tensor:
    """Return by what each element has to be moved for another slope, 0 where that is too far."""
    move, slope = torch.zeros_like(x), _slope(call, x)
    # Of a maximum the greatest goes down, and the others up.
    for tried in (torch.ones_like(x), -torch.ones_like(x), torch.where(slope != 0, -1.0, 1.0)):
        other = _slope(call, x + error * tried)
        least = _JUMP * max(float(slope.abs().max()), float(other.abs().max()))
        jumps = (other - slope).abs() > least
        move = torch.where(jumps & (move == 0), error * tried, move)
    return move


def _slope(call: Call, x: Tensor) -> Tensor:
    slope: Tensor = torch.autograd.functional.vjp(lambda x: _first(call(x)).sum(), x)[1]
    return slope


def _first(result: Any) -> Tensor:
    found: Tensor = result if isinstance(result, Tensor) else result[0]
    return found
