"""PyTorch: attention with a wrong scale, axis, order of heads or of projections."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from parity.frameworks.torch_calls import Call
from parity.mistakes.guess import Guess
from parity.mistakes.masks import HIDDEN, hide

_SPLIT = "x.reshape(batch, seq_len, num_heads, head_dim)"
_INTERLEAVED = (
    "the heads are interleaved in the port: each takes every n-th feature, not a block of them"
)
_MIXED = "without moving their axis: tokens and heads are mixed"


def attention_mistakes(call: Call) -> Iterator[Guess]:
    """Yield mistakes of attention, in PyTorch's own or written out."""
    if call.name == "split_heads":
        yield from _split(call)
    if call.name == "merge_heads":
        yield from _merged(call.places[0])
    if call.name in ("view", "reshape", "unflatten", "flatten"):
        yield from _viewed(call)
    if call.name in ("chunk", "split", "unbind"):
        yield from _permuted(call(), call.name)
    if call.name == "attention_inputs":
        yield from _crossed(call)
    if call.name in ("repeat_heads", "repeat_interleave"):
        yield from _repeated(call)
    if call.name in ("scaled", "div", "mul", "truediv"):
        yield from _scale(call)
    if call.name in ("scores", "matmul"):
        yield from _scores(call)
    if call.name in ("softmax", "log_softmax"):
        yield from _softmax(call)


def _split(call: Call) -> Iterator[Guess]:
    """Yield other readings of query, key and value as heads, and their permutations."""
    *projected, num_heads = call.places
    answer = partial(_each, _every_nth, projected, num_heads)
    yield Guess("heads-interleaved", _INTERLEAVED, _SPLIT, answer)
    cause = f"the port splits the heads {_MIXED}"
    fix = "jnp.swapaxes(x, -2, -3) after the reshape"
    yield Guess("heads-mixed", cause, fix, partial(_each, _unmoved, projected, num_heads))
    yield from _permuted(call(), "heads")


def _each(function: object, values: list[Tensor], num_heads: int) -> tuple[Tensor, ...]:
    assert callable(function)
    return tuple(function(value, num_heads) for value in values)


def _every_nth(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (-1, num_heads)).movedim(-1, -3)


def _unmoved(x: Tensor, num_heads: int) -> Tensor:
    return x.reshape(*x.shape[:-2], num_heads, x.shape[-2], -1)


def _permuted(parts: tuple[Tensor, ...], where: str) -> Iterator[Guess]:
    """Yield query, key and value in another order."""
    if len(parts) not in (2, 3) or len({part.shape for part in parts}) > 1:
        return
    if len(parts) == 2 and parts[0].dim() > 3:  # heads: that is how rotary positions begin
        return
    names = ("query", "key", "value") if len(parts) == 3 else ("first half", "second half")
    code = "qkv-permuted" if len(parts) == 3 else "halves-swapped"
    for order in itertools.islice(itertools.permutations(range(len(parts))), 1, None):
        told, own = ", ".join(names[place] for place in order), ", ".join(names)
        cause = f"the parts of {where} are taken in the order {told} in the port, {own} in torch"
        fix = f"{own} = the parts in the order of torch"
        yield Guess(code, cause, fix, partial(_taken, parts, order))


def _taken(parts: tuple[Tensor, ...], order: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(parts[place].clone() for place in order)


def _merged(x: Tensor) -> Iterator[Guess]:
    """Yield other ways to join the heads of [..., num_heads, seq_len, head_dim]."""
    yield Guess("heads-interleaved", _INTERLEAVED, _SPLIT, partial(_joined_by_feature, x))
    cause = f"the port joins the heads {_MIXED}"
    fix = "jnp.swapaxes(x, -2, -3) before the reshape"
    shape = (*x.shape[:-3], x.shape[-2], -1)
    yield Guess("heads-mixed", cause, fix, partial(x.reshape, shape))


def _joined_by_feature(x: Tensor) -> Tensor:
    return x.movedim(-3, -1).flatten(-2)


def _viewed(call: Call) -> Iterator[Guess]:
    """Yield other readings of a last axis that is split in two, or of two that are joined."""
    x, result = call.places[0], call()
    if not isinstance(result, Tensor) or not x.is_floating_point():
        return
    if result.dim() == x.dim() + 1 and result.shape[:-2] == x.shape[:-1]:
        outer, inner = result.shape[-2:]
        if outer > 1 and inner > 1:
            answer = partial(_swapped, x, (inner, outer))
            yield Guess("heads-interleaved", _INTERLEAVED, _SPLIT, answer)
            cause = f"the port splits the heads {_MIXED}"
            mixed = x.reshape(*x.shape[:-2], outer, x.shape[-2], inner).transpose(-2, -3)
            fix = "jnp.swapaxes(x, -2, -3) after the reshape"
            yield Guess("heads-mixed", cause, fix, mixed.clone)
    elif x.dim() > 3 and result.dim() == x.dim() - 1 and result.shape[:-1] == x.shape[:-2]:
        yield from _merged(x.transpose(-2, -3))


def _swapped(x: Tensor, shape: tuple[int, int]) -> Tensor:
    return x.unflatten(-1, shape).transpose(-1, -2)


def _crossed(call: Call) -> Iterator[Guess]:
    """Yield attention to the wrong one of two sequences."""
    query, key, value = call.places
    fix = "nn.MultiHeadDotProductAttention()(query, key_and_value)"
    cause = "the port attends to the queries' own sequence, torch to another"
    yield Guess("cross-attention", cause, fix, partial(_clones, query, query, query))
    cause = "the port takes the queries from the other sequence"
    yield Guess("cross-attention", cause, fix, partial(_clones, key, key, value))
    cause = "queries and keys have changed places in the port"
    yield Guess("cross-attention", cause, fix, partial(_clones, key, query, query))


def _clones(*values: Tensor) -> tuple[Tensor, ...]:
    return tuple(value.clone() for value in values)


def _repeated(call: Call) -> Iterator[Guess]:
    """Yield keys and values of grouped queries in the order 0, 1, 0, 1, not 0, 0, 1, 1."""
    x, result = call.places[0], call()
    sizes = zip(x.shape, result.shape, strict=True)
    axis = next((place for place, (own, its) in enumerate(sizes) if own != its), None)
    if axis is not None and x.is_floating_point():
        cause = "the port tiles the heads of keys and values, torch repeats each"
        times = [1] * x.dim()
        times[axis] = result.shape[axis] // x.shape[axis]
        fix = f"jnp.repeat(x, {times[axis]}, axis={axis}), not jnp.tile"
        yield Guess("kv-heads-tiled", cause, fix, partial(x.repeat, times))


def _scale(call: Call) -> Iterator[Guess]:
    """Yield a factor that is left out, inverted, squared or of another width."""
    x, factor = (*call.places, None, None)[:2]
    if isinstance(factor, Tensor) and factor.numel() == 1 and factor.is_floating_point():
        factor = float(factor)
    if not isinstance(x, Tensor) or not isinstance(factor, int | float) or factor in (0, 1):
        return
    own = 1 / factor if call.name in ("div", "truediv") else factor
    name = _shown(own)
    fix = f"multiply by {name}"
    told = {
        "scale-missing": (f"the port leaves out the factor {name}", 1.0),
        "scale-inverse": (f"the port divides by {name}, torch multiplies by it", 1 / own),
        "scale-twice": (f"the port applies the factor {name} twice", own**2),
    }
    for code, (cause, other) in told.items():
        yield Guess(code, cause, fix, partial(torch.mul, x, other))
    for heads in sorted({size for size in x.shape[1:-1] if size > 1}):
        wider = own / math.sqrt(heads)
        cause = f"the port scales by {_shown(wider)}, torch by {name}: the width of all heads"
        yield Guess("scale-width", cause, fix, partial(torch.mul, x, wider))


def _shown(factor: float) -> str:
    for told, square in (("1 / sqrt", factor**-2), ("sqrt", factor**2)):
        if (factor < 1) == told.startswith("1") and math.isclose(square, round(square)):
            root = f"{told}({round(square)})"
            is_plain = math.isclose(factor, round(factor)) or math.isclose(
                1 / factor, round(1 / factor)
            )
            return f"{factor:.4g} = {root}" if is_plain else root
    return f"{factor:.4g}"


def _scores(call: Call) -> Iterator[Guess]:
    """Yield scores with queries and keys exchanged, and with a scale that torch does not have."""
    if len(call.places) < 2 or not isinstance(result := call(), Tensor):
        return
    a, b = call.places[:2]
    if a.dim() < 3 or b.dim() < 3:
        return
    if result.shape[-1] == result.shape[-2]:
        cause = "queries and keys have changed places in the scores of the port"
        fix = 'jnp.einsum("bqhd,bkhd->bhqk", query, key)'
        yield Guess("scores-transposed", cause, fix, result.mT.clone)
    root = math.sqrt(a.shape[-1])
    cause = f"the port divides a product by {_shown(root)}, torch does not"
    yield Guess("scale-extra", cause, "leave out the scale", partial(torch.div, result, root))


def _softmax(call: Call) -> Iterator[Guess]:
    x, function = call.places[0], getattr(torch, call.name)
    x = x.clamp(min=HIDDEN)
    own = call.named.get("dim", call.places[1] if len(call.places) > 1 else -1)
    own = own % x.dim() - x.dim()
    fix = f"jax.nn.{call.name}(x, axis={own})"
    for axis in range(-x.dim(), 0):
        if axis != own:
            cause = f"{call.name} is over axis {axis} in the port, over {own} in torch"
            yield Guess("softmax-axis", cause, fix, partial(function, x, axis))
    yield Guess("softmax-missing", f"the port leaves out {call.name}", fix, x.clone)
    if call.name == "softmax" and x.dim() > 2 and x.shape[-1] == x.shape[-2]:
        causal = torch.ones(x.shape[-2:], dtype=torch.bool).tril()
        cause = "the port has a causal mask, torch has none: it hides later tokens"
        fix = "leave out the causal mask"
        yield Guess("mask-causal", cause, fix, partial(function, hide(x, causal), -1))
