"""PyTorch: axes in another order: flattened, reshaped, joined or split otherwise."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from parity.frameworks.torch_calls import Call
from parity.mistakes.guess import Guess

_FLAT = ("flatten", "view", "reshape")
_TURNS = ("permute", "transpose", "swapaxes", "swapdims", "movedim", "moveaxis", "t")
_JOINS = ("cat", "concat", "concatenate", "stack", "hstack")
_SPLITS = ("chunk", "split", "tensor_split", "unbind")
_MOST_AXES = 4


def shape_mistakes(call: Call) -> Iterator[Guess]:
    """Yield mistakes of the order of axes, and of what is joined or split."""
    if call.name in _FLAT:
        yield from _flattened(call)
    if call.name in _TURNS:
        yield from _turned(call)
    if call.name in _JOINS:
        yield from _joined(call)
    if call.name in _SPLITS:
        yield from _split(call)
    if call.name == "glu":
        x, axis = call.places[0], (*call.places, call.named.get("dim", -1))[1]
        cause = "the halves of glu have changed places in the port"
        value, gate = x.chunk(2, axis)
        answer = partial(_gated, gate, value)
        yield Guess("halves-swapped", cause, "a * sigmoid(b): the gate comes second", answer)
    if call.name in ("flip", "roll"):
        cause = f"the port leaves out {call.name}"
        yield Guess("reversed", cause, f"jnp.{call.name}", call.places[0].clone)


def _gated(value: Tensor, gate: Tensor) -> Tensor:
    return value * gate.sigmoid()


def _flattened(call: Call) -> Iterator[Guess]:
    """Yield axes merged in another order: an image has its channels last in JAX."""
    x, result = call.places[0], call()
    axes = _merged(tuple(x.shape), tuple(result.shape))
    if not 2 <= len(axes) <= _MOST_AXES:
        return
    last = (*axes[1:], axes[0])
    orders = [last, *(order for order in itertools.permutations(axes) if order != last)]
    for order in orders:
        if order == axes:
            continue
        cause = f"the axes {axes} are flattened in the order {order} in the port"
        fix = "order the axes as torch has them before the reshape"
        if order == last and len(axes) > 2:
            cause = "an image is flattened with its channels last in the port, first in torch"
            fix = "jnp.transpose(x, (0, 3, 1, 2)) before the reshape, or permute the kernel's rows"
        answer = partial(_in_order, x, axes, order, tuple(result.shape))
        yield Guess("nchw-flatten", cause, fix, answer)


def _merged(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes that become one; () if it is not that alone that happens."""
    if not 0 < len(after) < len(before):
        return ()
    count = len(before) - len(after) + 1
    for first in range(len(after)):
        size = 1
        for width in before[first : first + count]:
            size *= width
        if (*before[:first], size, *before[first + count :]) == after:
            return tuple(a for a in range(first, first + count) if before[a] > 1)
    return ()


def _in_order(
    x: Tensor, axes: tuple[int, ...], order: tuple[int, ...], shape: tuple[int, ...]
) -> Tensor:
    whole = [*range(x.dim())]
    for place, axis in zip(axes, order, strict=True):
        whole[place] = axis
    return x.permute(whole).reshape(shape)


def _turned(call: Call) -> Iterator[Guess]:
    x, result = call.places[0], call()
    shape = tuple(result.shape)
    cause = f"the port reshapes where torch calls {call.name}: the elements are mixed"
    fix = "jnp.transpose with the order of the axes, not reshape"
    yield Guess("reshape-not-transpose", cause, fix, partial(x.reshape, shape))
    if shape == tuple(x.shape):
        cause = f"the port leaves out {call.name}"
        yield Guess("transpose-missing", cause, "jnp.transpose", x.clone)


def _joined(call: Call) -> Iterator[Guess]:
    parts = [*call.places[0]]
    cause = "the port joins the parts in the opposite order"
    fix = "jnp.concatenate in the order of torch"
    yield Guess("concat-order", cause, fix, partial(call, parts[::-1]))
    if call.name == "stack" or len(parts) < 2 or len({part.shape for part in parts}) > 1:
        return
    own = call.named.get("dim", call.places[1] if len(call.places) > 1 else 0)
    for axis in range(parts[0].dim()):
        if axis != own % parts[0].dim():
            cause = f"the port joins along axis {axis}, torch along {own}"
            answer = partial(torch.cat, parts, axis)
            yield Guess("concat-order", cause, f"jnp.concatenate(..., axis={own})", answer)
    cause = "the port interleaves the parts, torch puts one after the other"
    answer = partial(_interleaved, parts, own)
    yield Guess("concat-order", cause, fix, answer)


def _interleaved(parts: list[Tensor], axis: int) -> Tensor:
    axis %= parts[0].dim()
    return torch.stack(parts, axis + 1).flatten(axis, axis + 1)


def _split(call: Call) -> Iterator[Guess]:
    parts = call()
    if len({part.shape for part in parts}) > 1:
        return
    count = len(parts)
    orders = itertools.permutations(range(count)) if count <= _MOST_AXES else ()
    name = {2: "halves-swapped", 3: "qkv-permuted"}.get(count, "blocks-permuted")
    for order in orders:
        if order != tuple(range(count)):
            cause = f"the port takes the {count} parts in the order {order}"
            answer = partial(_ordered, parts, order)
            yield Guess(name, cause, "the parts in the order of torch", answer)
    if call.name == "unbind":
        return
    own = call.named.get("dim", call.places[2] if len(call.places) > 2 else 0)
    if isinstance(own, int) and isinstance(call.places[0], Tensor):
        cause = f"each part is every {count}-th entry in the port, a block in torch"
        answer = partial(_every, call.places[0], count, own)
        yield Guess("heads-interleaved", cause, f"jnp.split(x, {count}, axis={own})", answer)
        size = call.places[0].shape[own] // count
        for heads in (h for h in range(2, size) if size % h == 0):
            cause = f"the packed axis is read as [{heads} heads, {count}, width] in the port"
            answer = partial(_by_head, call.places[0], heads, count, own)
            fix = f"read it as [{count}, heads, width]"
            yield Guess("qkv-permuted", cause, fix, answer, needs_held=True)


def _by_head(x: Tensor, heads: int, count: int, axis: int) -> tuple[Tensor, ...]:
    axis %= x.dim()
    parts = x.unflatten(axis, (heads, count, -1)).unbind(axis + 1)
    return tuple(part.flatten(axis, axis + 1) for part in parts)


def _ordered(parts: tuple[Tensor, ...], order: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(parts[place] for place in order)


def _every(x: Tensor, count: int, axis: int) -> tuple[Tensor, ...]:
    return x.unflatten(axis, (-1, count)).unbind(axis + 1 if axis >= 0 else axis)
