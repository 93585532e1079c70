"""PyTorch: two steps in the opposite order, and sums that take what came before."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from parity.frameworks.torch_calls import Call
from parity.mistakes.activations import KINDS
from parity.mistakes.guess import Guess
from parity.mistakes.norms import NORMS

_SUMS = ("add", "iadd", "radd")
_PRODUCTS = ("mul", "rmul", "imul")
_POOLS = ("avg_pool1d", "avg_pool2d", "max_pool1d", "max_pool2d", "adaptive_avg_pool2d", "mean")
_LAYERS = ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose2d")
_ONE_BY_ONE = (*KINDS, "softmax", "clamp")
_STEPS = (*_ONE_BY_ONE, *NORMS, *_POOLS, *_LAYERS)


def order_mistakes(call: Call) -> Iterator[Guess]:
    """Yield a step before the one that it follows, and a residual from another place."""
    x = call.places[0] if call.places else call.named.get("input")
    maker = call.maker(x)
    if call.name in _STEPS and maker is not None:
        yield from _swapped(call, maker)
    if call.name in _ONE_BY_ONE and maker is not None and maker.name in _SUMS:
        yield from _before_sum(call, maker)
    if call.name in _SUMS and len(call.places) > 1:
        yield from _sum(call)
    if call.name in _PRODUCTS and len(call.places) > 1:
        yield from _product(call)


def _name(call: Call) -> str:
    return call.module or call.name


def _swapped(call: Call, maker: Call) -> Iterator[Guess]:
    if maker.name not in _STEPS or not maker.places or maker.name == call.name:
        return
    cause = f"the port computes {_name(call)} before {_name(maker)}, torch after it"
    is_norm = call.name in NORMS or maker.name in NORMS
    tensor = next((c.module for c in (call, maker) if c.name in NORMS), "")
    code = "norm-order" if is_norm else "step-order"
    fix = f"{_name(call)}({_name(maker)}(x))"
    yield Guess(code, cause, fix, partial(_other_way, call, maker), tensor=tensor)


def _other_way(call: Call, maker: Call) -> Any:
    return maker(call(maker.places[0]))


def _before_sum(call: Call, maker: Call) -> Iterator[Guess]:
    x, y = maker.places[:2]
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        return
    fix = f"{call.name}(x + f(x))"
    for place, word in ((0, "first"), (1, "second")):
        cause = f"the port applies {call.name} to the {word} term of a sum, torch to the sum"
        answer = partial(_one_term, call, x, y, place)
        yield Guess("activation-order", cause, fix, answer)
    cause = f"the port applies {call.name} to both terms of a sum, torch to the sum"
    yield Guess("activation-order", cause, fix, partial(_both_terms, call, x, y))


def _one_term(call: Call, x: Tensor, y: Tensor, place: int) -> Any:
    return call(x) + y if place == 0 else x + call(y)


def _both_terms(call: Call, x: Tensor, y: Tensor) -> Any:
    return call(x) + call(y)


def _sum(call: Call) -> Iterator[Guess]:
    """Yield sums whose activation comes after, or whose term is from one step before or after."""
    for place, word in ((0, "first"), (1, "second")):
        value, other = call.places[place], call.places[1 - place]
        maker = call.maker(value)
        if maker is None or not isinstance(other, Tensor) or not maker.places:
            continue
        before = maker.places[0]
        if not isinstance(before, Tensor) or before.shape != value.shape:
            continue
        if maker.name in _ONE_BY_ONE:
            cause = f"the port applies {maker.name} to the sum, torch to its {word} term"
            answer = partial(_after, maker, before, other)
            yield Guess("activation-order", cause, f"{maker.name}(x) + y", answer)
        cause = f"the {word} term of a sum is taken before {_name(maker)} in the port"
        fix = "add what torch adds"
        yield Guess("residual-source", cause, fix, partial(torch.add, before, other))


def _product(call: Call) -> Iterator[Guess]:
    """Yield gates of another order: f(x * y) for f(x) * y, and x * f(y)."""
    for place, word, rest in ((0, "first", "second"), (1, "second", "first")):
        value, other = call.places[place], call.places[1 - place]
        maker = call.maker(value)
        if maker is None or maker.name not in _ONE_BY_ONE or not isinstance(other, Tensor):
            continue
        before, fix = maker.places[0], f"{maker.name}(x) * y"
        cause = f"the port applies {maker.name} to the product, torch to its {word} factor"
        yield Guess("activation-order", cause, fix, partial(_whole, maker, before, other))
        cause = (
            f"the port applies {maker.name} to the {rest} factor of a product, torch to the {word}"
        )
        yield Guess("activation-order", cause, fix, partial(_gated, maker, before, other))


def _whole(maker: Call, before: Tensor, other: Tensor) -> Any:
    return maker(before * other)


def _gated(maker: Call, before: Tensor, other: Tensor) -> Any:
    return before * maker(other)


def _after(maker: Call, before: Tensor, other: Tensor) -> Any:
    return maker(before + other)
