"""PyTorch: calls that are left out, or given another of the results before them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from parity.cause import in_any_layer
from parity.frameworks.torch_calls import Call, tensors
from parity.mistakes.guess import Guess

# What changes values and keeps their shape. That sigmoid or a mask is left out has a name of its
# own too, which goes before this one.
_STEPS = (
    *("matmul", "bmm", "mm", "einsum", "cumsum", "exp", "log", "sqrt", "rsqrt", "square", "pow"),
    *("abs", "neg", "log1p", "expm1", "sin", "cos", "tril", "triu", "masked_fill", "sigmoid"),
    *("log_softmax", "normalize", "logsumexp", "sort"),
)
_BROADCAST = (
    "add",
    "radd",
    "iadd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "imul",
    "div",
    "truediv",
    "matmul",
)
With = Callable[[Tensor], object]
# Results that another may be taken for, the nearest first; and constants that may be reversed.
_MOST, _SMALL = 24, 4096


def input_mistakes(call: Call) -> Iterator[Guess]:
    """Yield a call that is left out, one with a constant reversed, one of another result."""
    if call.name in _STEPS:
        shape = _shape(call)
        for number, (value, _) in enumerate(_operands(call)):
            if tuple(value.shape) == shape:
                cause = f"the port leaves out {call.name}, and goes on with what goes into it"
                name = f"{cause}, operand {number + 1}" if number else cause
                yield Guess("step-missing", name, f"apply {call.name}", value.clone)
    if call.name in _BROADCAST:
        yield from _reversed(call)
    yield from _others(call)


def _shape(call: Call) -> tuple[int, ...]:
    # Where a reference runs again, what a call gives is not there before the call is answered.
    made = call()
    return tuple(made.shape) if isinstance(made, Tensor) else ()


def _operands(call: Call) -> Iterator[tuple[Tensor, With]]:
    """Yield what a call is given, also in a list, with the same call of something else."""
    for place, value in enumerate(call.places):
        items = list(value) if isinstance(value, list | tuple) else [value]
        for number, item in enumerate(items):
            if isinstance(item, Tensor) and item.is_floating_point():
                yield item, partial(_with, call, place, number if items != [value] else None)


def _with(call: Call, place: int, number: int | None, other: Tensor) -> object:
    places = [*call.places]
    if number is None:
        places[place] = other
    else:
        places[place] = [*places[place][:number], other, *places[place][number + 1 :]]
    return call(*places)


def _reversed(call: Call) -> Iterator[Guess]:
    """Yield a small operand, such as a mean of each channel, with an axis reversed."""
    most = min(_SMALL, math.prod(_shape(call)) // 2)
    for number, (value, given) in enumerate(_operands(call)):
        for axis, size in enumerate(value.shape):
            if size > 1 and value.numel() <= most:
                cause = (
                    f"axis {axis} of operand {number + 1} of {call.name} is reversed in the port"
                )
                answer = partial(given, value.flip(axis))
                yield Guess("reversed", cause, "order it as torch does", answer, needs_held=True)


def _others(call: Call) -> Iterator[Guess]:
    """Yield a call that is given another result of the same shape, if the port holds what it is."""
    before = itertools.takewhile(lambda result: result.call is not call, call.results.values())
    known: dict[str, Tensor] = {}
    for result in before:
        name = _told(result.key)
        known.pop(name, None)  # the nearest of those with one name is the last of all
        known[name] = result.value
    given_in = _inputs(call)
    results = {**given_in, **known}
    for number, (value, given) in enumerate(_operands(call)):
        is_input = (name for name, other in given_in.items() if other is value)
        own = _told(call.source(value)) or next(is_input, "something else")
        alike = [name for name, x in results.items() if x.shape == value.shape and name != own]
        for name in alike[: -_MOST - 1 : -1]:
            other = results[name].detach()
            if value.numel() > 1 and not torch.equal(other, value):
                cause = f"the port takes {call.name} of {name}, torch of {own}"
                told = f"{cause}, as operand {number + 1}" if number else cause
                answer = partial(given, other.clone())
                yield Guess("wrong-input", told, f"give it {own}", answer, needs_held=True)


def _inputs(call: Call) -> dict[str, Tensor]:
    """Return what earlier calls were given that is no result, and no weight."""
    before = [*itertools.takewhile(lambda result: result.call is not call, call.results.values())]
    seen = {id(value) for value in (*(r.tensor for r in before), *call.weights.values())}
    # What is written into is a copy, of what was there before.
    every = [
        x for c in (*(r.call for r in before), call) for x in tensors(c.places[int(c.mutates) :])
    ]
    found = {id(value): value for value in every if id(value) not in seen}
    real = [value for value in found.values() if value.is_floating_point() and value.numel() > 1]
    return {f"input {number + 1}": value for number, value in enumerate(real)}


def _told(key: str) -> str:
    return re.sub(r"#1(?!\d)", "", in_any_layer(key).replace(":", " ")).strip()
