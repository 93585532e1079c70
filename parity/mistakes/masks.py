"""PyTorch: masks of the other meaning, added, turned, shifted, applied too late, or left out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from parity.frameworks.torch_calls import Call
from parity.mistakes.guess import Guess

_VIEWS = (
    *("getitem", "view", "reshape", "unsqueeze", "squeeze", "expand", "expand_as", "transpose"),
    *("permute", "contiguous", "clone", "to", "type", "float", "double"),
)
# A port hides with a finite number: where it hides all, softmax is uniform and not NaN.
HIDDEN = -1e30
# What an additive mask holds below this is hidden.
_LOW = -1e3
_FIX = "a mask is True where it may attend; the padding mask of torch is True where it may not"
_BIAS = "nn.MultiHeadDotProductAttention takes a bool mask: give an additive one as bias"


@dataclass(frozen=True, eq=False)
class Masking:
    """What a call that masks is given.

    Attributes:
      scores: before it.
      keep: True where it may attend, of a shape that broadcasts with them.
      adds: whether the mask is one of numbers.
    """

    scores: Tensor
    keep: Tensor
    adds: bool


def masking(call: Call) -> Masking | None:
    """Read a call that masks; None if it does not."""
    operands = call.places[:3]
    if call.name == "where" and len(operands) == 3:
        return _where(*operands)
    if len(operands) < 2 or not all(isinstance(value, Tensor) for value in operands[:2]):
        return None
    scores, mask = operands[:2]
    if call.name == "masked_fill" and mask.dtype == torch.bool and _is_low(operands[-1]):
        return Masking(scores, ~mask, adds=False)
    if call.name == "masked" and mask.dtype == torch.bool:
        return Masking(scores, mask, adds=False)
    if call.name in ("masked", "add", "iadd") and scores.dim() >= mask.dim() and _adds(mask):
        return Masking(scores, mask > _LOW, adds=True)
    return None


def _where(keep: Tensor, scores: object, other: object) -> Masking | None:
    if isinstance(scores, Tensor) and scores.dim() and _is_low(other):
        return Masking(scores, keep, adds=False)
    if isinstance(other, Tensor) and other.dim() and _is_low(scores):
        return Masking(other, ~keep, adds=False)
    return None


def _is_low(value: object) -> bool:
    if isinstance(value, Tensor):
        return value.numel() == 1 and float(value) < _LOW
    return isinstance(value, int | float) and value < _LOW


def _adds(mask: Tensor) -> bool:
    hidden = mask < _LOW
    return mask.is_floating_point() and bool(hidden.any() and (mask[~hidden] == 0).all())


def mask_mistakes(call: Call) -> Iterator[Guess]:
    """Yield mistakes of a mask."""
    if call.name == "softmax":
        yield from _late(call)
    found = masking(call)
    if found is None:
        return
    scores, keep = found.scores, found.keep
    yield Guess("mask-missing", "the port does not apply the mask", "pass mask=", scores.clone)
    if found.adds and _is_given(call, call.places[1]):
        read = "a mask that is to be added is read as truth values in the port"
        yield Guess("additive-mask-as-bool", read, _BIAS, partial(hide, scores, ~keep))
    opposite = "the mask has the opposite meaning in the port"
    yield Guess("mask-polarity", opposite, _FIX, partial(hide, scores, ~keep))
    added = "the port adds a mask of 0 and 1 to the scores"
    for told, mask in ((added, keep), (f"{added}, 1 where it is hidden", ~keep)):
        answer = partial(torch.add, scores, mask.to(scores.dtype))
        yield Guess("mask-added", told, "jnp.where(mask, scores, -inf)", answer)
    product = "the port multiplies the scores by a mask of 0 and 1: what is hidden still has weight"
    answer = partial(torch.mul, scores, keep.to(scores.dtype))
    yield Guess("mask-multiplied", product, "jnp.where(mask, scores, -inf)", answer)
    yield from _turned(scores, keep)


def _is_given(call: Call, mask: Tensor) -> bool:
    """Say whether a mask is an input, which the port is given as well, or a view of one."""
    while (maker := call.maker(mask)) is not None:
        first = maker.places[0] if maker.places else None
        if maker.name not in _VIEWS or not isinstance(first, Tensor):
            return False
        call, mask = maker, first
    return True


def hide(scores: Tensor, keep: Tensor) -> Tensor:
    """Hide scores with a large finite number."""
    return scores.masked_fill(~keep, HIDDEN)


def _turned(scores: Tensor, keep: Tensor) -> Iterator[Guess]:
    """Yield a mask over queries in place of keys, and mistakes of a causal part."""
    queries, keys = scores.shape[-2:] if scores.dim() > 1 else (0, 1)
    if queries != keys or not keep.dim():
        return
    whole = keep.expand(torch.broadcast_shapes(keep.shape, scores.shape[-2:]))
    causal = torch.ones(queries, keys, dtype=torch.bool).tril()
    if not (whole & ~causal).any():
        yield from _causal(scores, whole, causal)
    else:
        cause = "the port has a causal mask as well: it hides later tokens"
        fix = "leave out the causal mask"
        yield Guess("mask-causal", cause, fix, partial(hide, scores, whole & causal))
    turned = "the mask is applied to the queries in the port, to the keys in torch"
    fix = "mask of shape [batch, 1, queries, keys]"
    yield Guess("mask-transposed", turned, fix, partial(hide, scores, whole.mT))


def _causal(scores: Tensor, keep: Tensor, causal: Tensor) -> Iterator[Guess]:
    fix = "nn.make_causal_mask: a query sees itself and what is before it"
    seen, ones = keep.any(-2, keepdim=True), torch.ones_like(causal)
    alone = "the port hides padding alone, and leaves out the causal mask"
    told = [("mask-causal-missing", alone, seen)] if not bool(seen.all()) else []
    told += [
        ("mask-padding-missing", "the port leaves out the padding, and is causal alone", causal),
        (
            "mask-causal-reversed",
            "the port hides earlier tokens, torch later ones",
            causal.mT & seen,
        ),
        ("mask-causal-shifted", "the port hides a query from itself", ones.tril(-1) & seen),
        ("mask-causal-shifted", "the port shows a query the next token", ones.tril(1) & seen),
    ]
    for code, cause, mask in told:
        if not torch.equal(mask.expand_as(keep), keep):
            yield Guess(code, cause, fix, partial(hide, scores, mask))


def _late(call: Call) -> Iterator[Guess]:
    """Yield a mask that comes after softmax, and one where all is hidden to a query."""
    scores = call.places[0]
    if scores.dim() and (scores <= HIDDEN).all(-1).any():
        cause = "a query that may attend to nothing attends to all alike in the port, not in torch"
        spread = partial(functional.softmax, scores.clamp(min=HIDDEN), -1)
        yield Guess("mask-all-hidden", cause, "multiply the output by mask.any(-1)", spread)
    before = call.maker(scores)
    found = masking(before) if before is not None else None
    if found is None:
        return
    fix = "jnp.where(mask, scores, -inf) before softmax"
    late = "the mask comes after softmax in the port: the weights no longer sum to 1"
    yield Guess("mask-after-softmax", late, fix, partial(_after, found, math.nan))
    even = "the port puts a large negative number after softmax, torch before it"
    yield Guess("mask-after-softmax", even, fix, partial(_after, found, HIDDEN))


def _after(found: Masking, number: float) -> Tensor:
    weights = functional.softmax(found.scores, -1)
    return weights * found.keep if math.isnan(number) else hide(weights, found.keep)
