"""PyTorch: a mean, a sum, a spread or one entry of an axis: of another kind, axis or place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from parity.frameworks.torch_calls import Call
from parity.mistakes.guess import Guess, given_to

_KINDS: dict[str, Callable[..., Any]] = {
    "mean": torch.mean,
    "sum": torch.sum,
    "max": torch.amax,
    "min": torch.amin,
}
_OWN = {"amax": "max", "amin": "min"}
_SPREADS = ("var", "std", "var_mean", "std_mean")


def reduction_mistakes(call: Call) -> Iterator[Guess]:
    """Yield mistakes of what reduces an axis, or takes one entry of it."""
    if call.name in (*_KINDS, *_OWN):
        yield from _reduction(call)
    if call.name in _SPREADS:
        yield from _spread(call)
    if call.name == "getitem":
        yield from _index(call)
    if call.name == "cumsum":
        yield from _cumulative(call)


def _reduction(call: Call) -> Iterator[Guess]:
    given = given_to(call, "input", "dim", "keepdim")
    x, own = given["input"], _OWN.get(call.name, call.name)
    axis = given.get("dim", given.get("axis"))
    if axis is None or not isinstance(x, Tensor) or isinstance(axis, Tensor):
        return
    axes = tuple(a % x.dim() for a in ([axis] if isinstance(axis, int) else axis))
    keep = {"keepdim": given.get("keepdim", False)}
    is_pair = call.name in ("max", "min")  # with the places of what is greatest
    for kind, function in _KINDS.items():
        if kind != own and not is_pair:
            cause = f"the port takes the {kind} over axis {axis}, torch the {own}"
            fix = f"jnp.{own}(x, axis={axis})"
            yield Guess("reduction", cause, fix, partial(function, x, axes, **keep))
    if is_pair:
        return
    yield from _elsewhere(x, axes, own, keep)
    if own in ("mean", "sum") and len(axes) == 1 and x.shape[axes[0]] > 1:
        size = x.shape[axes[0]]
        cause = f"the port divides by {size - 1}, torch by {size}"
        answer = partial(_divided, call, size / (size - 1))
        if own == "mean":
            yield Guess("reduction", cause, f"jnp.mean(x, axis={axis})", answer)


def _elsewhere(
    x: Tensor, axes: tuple[int, ...], own: str, keep: dict[str, bool]
) -> Iterator[Guess]:
    fix = f"jnp.{own}(x, axis={axes if len(axes) > 1 else axes[0]})"
    if len(axes) == 1:
        for place, word in ((0, "first"), (-1, "last")):
            cause = f"the port takes the {word} entry of axis {axes[0]}, torch the {own}"
            yield Guess("reduction", cause, fix, partial(_entry, x, axes[0], place, keep))
    for other in range(x.dim()):
        if len(axes) == 1 and other != axes[0]:
            cause = f"the port reduces axis {other}, torch axis {axes[0]}"
            yield Guess("reduction", cause, fix, partial(_KINDS[own], x, other, **keep))
            answer = partial(_KINDS[own], x, other, keepdim=not keep["keepdim"])
            told = f"{cause}, and keeps it{' not' if keep['keepdim'] else ''}"
            yield Guess("reduction", told, fix, answer)
    if own == "mean" and prod(x.shape[a] for a in axes) > 1:
        others = tuple(a for a in range(x.dim()) if a not in axes)
        if others and len(axes) > 1:
            cause = f"the port reduces axes {others}, torch axes {axes}"
            yield Guess("reduction", cause, fix, partial(torch.mean, x, others, **keep))


def _entry(x: Tensor, axis: int, place: int, keep: dict[str, bool]) -> Tensor:
    entry = x.select(axis, place)
    return entry.unsqueeze(axis) if keep["keepdim"] else entry


def _divided(call: Call, factor: float) -> Tensor:
    result: Tensor = call() * factor
    return result


def _spread(call: Call) -> Iterator[Guess]:
    """Yield a variance that is divided by n, and not by n - 1 as PyTorch's; or the other way."""
    named = dict(call.named)
    places = [*call.places]
    flags = [at for at, value in enumerate(places) if isinstance(value, bool)]
    unbiased = named.pop("unbiased", True)
    if len(flags) and call.name in ("var", "std"):
        unbiased = places.pop(flags[0])
    own = named.pop("correction", int(unbiased))
    other = 0 if own else 1
    words = {0: "n", 1: "n - 1"}
    cause = f"the {call.name} is divided by {words[other]} in the port, by n - {own:g} in torch"
    answer = partial(call.function, *places, **named, correction=other)
    yield Guess("variance-form", cause, f"jnp.var(x, ddof={own:g})", answer)
    if call.name in ("var", "std"):
        function = {"var": torch.std, "std": torch.var}[call.name]
        what = {"var": "standard deviation", "std": "variance"}[call.name]
        cause = f"the port takes the {what}, torch the {call.name}"
        answer = partial(function, *places, **named, correction=own)
        yield Guess("variance-form", cause, f"jnp.{call.name}", answer)


def _index(call: Call) -> Iterator[Guess]:
    """Yield another entry of the axis from which one is taken."""
    x, index = call.places[0], call.places[1]
    parts = index if isinstance(index, tuple) else (index,)
    if not isinstance(x, Tensor) or not all(isinstance(p, int | slice) for p in parts):
        return
    for axis, part in enumerate(parts):
        if isinstance(part, int) and not isinstance(part, bool):
            yield from _entries(x, parts, axis, part % x.shape[axis])
            if x.shape[axis] > 1 and isinstance(index, tuple):
                yield from _instead(x, parts, axis, part % x.shape[axis])
    yield from _slices(x, parts)


def _entries(x: Tensor, parts: tuple[Any, ...], axis: int, own: int) -> Iterator[Guess]:
    size = x.shape[axis]
    for other in sorted({0, size - 1, own - 1, own + 1} - {own}):
        if 0 <= other < size:
            cause = f"the port takes entry {other} of axis {axis}, torch entry {own}"
            key = (*parts[:axis], other, *parts[axis + 1 :])
            fix = f"take entry {own}"
            yield Guess("last-step", cause, fix, partial(x.__getitem__, key))


def _instead(x: Tensor, parts: tuple[Any, ...], axis: int, own: int) -> Iterator[Guess]:
    rest = (*parts[:axis], *parts[axis + 1 :])
    for kind, function in _KINDS.items():
        cause = f"the port takes the {kind} over axis {axis}, torch entry {own}"
        answer = partial(_reduced, function, x, axis, rest)
        yield Guess("reduction", cause, f"take entry {own}", answer)


def _reduced(function: Callable[..., Tensor], x: Tensor, axis: int, rest: Any) -> Tensor:
    return function(x, axis)[rest]


def _slices(x: Tensor, parts: tuple[Any, ...]) -> Iterator[Guess]:
    """Yield the window of the same size at the other end, or one further."""
    for axis, part in enumerate(parts):
        if not isinstance(part, slice) or axis >= x.dim():
            continue
        start, stop, step = part.indices(x.shape[axis])
        if step != 1 or (start, stop) == (0, x.shape[axis]):
            continue
        last = x.shape[axis] - (stop - start)
        for other in sorted({0, last, start - 1, start + 1} - {start}):
            if 0 <= other <= last:
                cause = f"the port takes axis {axis} from {other} on, torch from {start}"
                key = (*parts[:axis], slice(other, other + stop - start), *parts[axis + 1 :])
                fix = f"x[{start}:{stop}] along axis {axis}"
                yield Guess("slice-moved", cause, fix, partial(x.__getitem__, key))


def _cumulative(call: Call) -> Iterator[Guess]:
    given = given_to(call, "input", "dim")
    x, axis = given["input"], given["dim"]
    cause = "the port sums from the end, torch from the start"
    answer = partial(_from_the_end, x, axis)
    yield Guess("reversed", cause, f"jnp.cumsum(x, {axis})", answer)
    cause = "the sum leaves out the entry itself in the port"
    yield Guess("reduction", cause, f"jnp.cumsum(x, {axis})", partial(_exclusive, x, axis))


def _from_the_end(x: Tensor, axis: int) -> Tensor:
    return x.flip(axis).cumsum(axis).flip(axis)


def _exclusive(x: Tensor, axis: int) -> Tensor:
    return x.cumsum(axis) - x
