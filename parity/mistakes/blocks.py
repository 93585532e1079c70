"""PyTorch: sums around a sublayer that take the wrong operand, and means over padding."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from parity.frameworks.torch_calls import Call, Result
from parity.mistakes.ancestors import ancestors
from parity.mistakes.guess import Guess

# Results of a sublayer, at most.
_FAR = 80
_NORMS = ("layer_norm", "rms_norm", "group_norm", "batch_norm")


def block_mistakes(call: Call) -> Iterator[Guess]:
    """Yield mistakes of a residual sum, or of a mean that leaves out padding."""
    if call.name in ("add", "radd", "iadd") and len(call.places) > 1:
        yield from _residual(call)
    if call.name in ("div", "truediv") and len(call.places) > 1:
        yield from _mean(call)
    if call.name in _NORMS and call.places:
        yield from _normed(call)


def _residual(call: Call) -> Iterator[Guess]:
    """Yield a sum with the norm of what torch adds as it is."""
    x, y = call.places[:2]
    if not isinstance(x, Tensor) or not isinstance(y, Tensor) or x.shape != y.shape:
        return
    norms = [result for result in ancestors(call, _FAR) if result.call.name in _NORMS]
    for place, base in ((0, x), (1, y)):
        for result in norms:
            if _takes(result, base):
                places = [x, y]
                places[place] = result.value
                cause = "the port adds what comes out of the norm, torch what goes into it"
                yield Guess("residual-after-norm", cause, "x + f(norm(x))", partial(call, *places))


def _normed(call: Call) -> Iterator[Guess]:
    """Yield the norm of one term of a sum, where torch takes that of the sum."""
    total = call.maker(call.places[0])
    if total is None or total.name not in ("add", "radd", "iadd") or len(total.places) < 2:
        return
    x, y = total.places[:2]
    for term, other, word in ((x, y, "first"), (y, x, "second")):
        if isinstance(term, Tensor) and term.shape == call.places[0].shape:
            cause = f"the port takes the norm of the {word} term, and adds the other to it"
            yield Guess("norm-order", cause, "norm(x + y)", partial(_sum, call, term, other))


def _sum(call: Call, term: Tensor, other: Tensor) -> Tensor:
    total: Tensor = call(term) + other
    return total


def _takes(result: Result, base: Tensor) -> bool:
    given = (*result.call.places, result.call.named.get("input"))[0]
    return isinstance(given, Tensor) and given.shape == base.shape and torch.equal(given, base)


def _mean(call: Call) -> Iterator[Guess]:
    """Yield other ways to pool what torch sums with weights, and divides by their sum."""
    total = call.maker(call.places[0])
    if total is None or total.name != "sum" or not isinstance(call.places[0], Tensor):
        return
    axis = total.named.get("dim", (*total.places, None)[1])
    product = total.maker(total.places[0])
    if not isinstance(axis, int) or product is None or product.name not in ("mul", "rmul"):
        return
    x = max(product.places[:2], key=_size)
    fix = "(x * mask).sum(axis) / mask.sum(axis)"
    plain = "the port takes the mean of padding as well"
    yield Guess("mean-over-padding", plain, fix, partial(x.mean, axis))
    counted = "the port hides padding, and divides by the number of all tokens"
    masked = total.places[0]
    yield Guess("mean-over-padding", counted, fix, partial(masked.mean, axis))
    yield Guess("pool-kind", "the port sums, torch takes the mean", fix, call.places[0].clone)
    for place, word in ((0, "first"), (-1, "last")):
        cause = f"the port takes the {word} token, torch the mean"
        yield Guess("pool-kind", cause, fix, x.select(axis, place).clone)
    yield Guess("pool-kind", "the port takes the greatest", fix, partial(x.amax, axis))


def _size(value: object) -> int:
    return value.numel() if isinstance(value, Tensor) else 0
