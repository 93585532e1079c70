"""What mistakes of a conversion would have made of a weight."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from parity.formats import FORMATS, dtype_of, round_to, widen
from parity.layouts import Layout

# A code of `docs/causes.md`, what the leaf is, and what it would hold then.
WeightGuess = tuple[str, str, np.ndarray]
_PARTS = {2: "halves-swapped", 3: "qkv-permuted", 4: "gate-order"}
_MOST_AXES = 5
# Of a head whose features are in pairs.
_NARROWEST = 4


def weight_guesses(right: np.ndarray, layout: Layout) -> Iterator[WeightGuess]:
    """Yield mistakes of a conversion, the specific ones first.

    Args:
      right: what the leaf should hold, in float64.
      layout: in which it holds the tensor.
    """
    for name in ("bfloat16", "float16"):
        yield "dtype-cast", f"was rounded to {name} on the way", rounded(right, dtype_of(name))
    if right.ndim == 2 and right.shape[0] == right.shape[1]:
        cause = "is as PyTorch stores it: a square kernel left untransposed"
        yield "untransposed-square", cause, right.T
    if right.ndim > 2:
        yield from _window(right, layout)
    yield from _numbers(right)
    for axis in range(right.ndim):
        for shift in (1, -1):
            cause = f"is shifted by one along axis {axis}"
            yield "shifted-by-one", cause, np.roll(right, shift, axis)
        yield "reversed", f"is reversed along axis {axis}", np.flip(right, axis)
        yield from _blocks(right, axis)
    if 2 < right.ndim <= _MOST_AXES:
        for order in itertools.islice(itertools.permutations(range(right.ndim)), 1, None):
            yield "untransposed", f"has its axes in the order {order}", right.transpose(order)
    yield from _heads(right)


def _heads(right: np.ndarray) -> Iterator[WeightGuess]:
    """Yield heads of a leaf that has an axis for them, each of every n-th feature."""
    for axis in range(right.ndim - 1):
        heads, width = right.shape[axis : axis + 2]
        shape = (*right.shape[:axis], width, heads, *right.shape[axis + 2 :])
        cause = f"is interleaved along axes {axis} and {axis + 1}: each head has every n-th feature"
        yield "heads-interleaved", cause, right.reshape(shape).swapaxes(axis, axis + 1)


def rounded(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return values rounded once to a format, in float64."""
    return widen(round_to(widen(values), dtype))


def close(ours: np.ndarray, theirs: np.ndarray, dtype: np.dtype) -> bool:
    """Say whether two arrays are one but for some units of a format."""
    unit = 2.0 ** -FORMATS[dtype.name].digits if dtype.name in FORMATS else 0.0
    scale = np.maximum(np.abs(ours), np.abs(theirs))
    return bool(np.all(np.abs(ours - theirs) <= 4 * unit * scale))


def _window(right: np.ndarray, layout: Layout) -> Iterator[WeightGuess]:
    """Yield a convolution's kernel that is flipped, turned, or has its channels swapped."""
    axes = layout.axes or tuple(range(right.ndim))
    if len(axes) != right.ndim:
        return
    first, second, *rest = (axes.index(axis) for axis in range(right.ndim))
    window = tuple(rest)
    yield "kernel-flipped", "is flipped along its whole window", np.flip(right, window)
    for axis in window:
        yield "kernel-flipped", f"is flipped along axis {axis}", np.flip(right, axis)
    if len(window) == 2:
        cause = "has height and width of its window swapped"
        yield "kernel-turned", cause, right.swapaxes(window[0], window[1])
    if right.shape[first] == right.shape[second]:
        cause = "has input and output channels swapped"
        yield "untransposed-square", cause, right.swapaxes(first, second)


def _numbers(right: np.ndarray) -> Iterator[WeightGuess]:
    """Yield other numbers at the same places."""
    yield "sign", "has the opposite sign", -right
    yield "scale-plus-one", "has one added", right + 1
    yield "scale-plus-one", "has one subtracted", right - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        if (right >= 0).all():
            yield "variance-form", "is the root of what it should be", np.sqrt(right)
            yield "variance-form", "is the inverse of the root", 1 / np.sqrt(right)
        yield "variance-form", "is the square of what it should be", right**2
        yield "variance-form", "is the logarithm of what it should be", np.log(np.abs(right))


def _blocks(right: np.ndarray, axis: int) -> Iterator[WeightGuess]:
    """Yield an axis read in other blocks: gates or q, k, v permuted, heads interleaved."""
    size = right.shape[axis]
    for count, code in _PARTS.items():
        if size % count or size == count:
            continue
        blocks = np.split(right, count, axis)
        for order in itertools.islice(itertools.permutations(range(count)), 1, None):
            cause = f"has its {count} blocks along axis {axis} in the order {order}"
            yield code, cause, np.concatenate([blocks[place] for place in order], axis)
    for count in range(2, size):
        if size % count:
            continue
        parts = np.moveaxis(right, axis, 0).reshape(count, size // count, -1)
        rest = np.delete(right.shape, axis)
        mixed = parts.swapaxes(0, 1).reshape(size, *rest)
        yield from _halves(right, axis, count)
        cause = f"has axis {axis} interleaved: it takes every {size // count}-th, not blocks"
        yield "heads-interleaved", cause, np.moveaxis(mixed, 0, axis)


def _halves(right: np.ndarray, axis: int, heads: int) -> Iterator[WeightGuess]:
    """Yield the features of each head in the other order of rotary positions."""
    width = right.shape[axis] // heads
    if width % 2 or width < _NARROWEST:
        return
    columns = np.arange(right.shape[axis]).reshape(heads, width)
    halves = np.concatenate([columns[:, ::2], columns[:, 1::2]], axis=1).reshape(-1)
    code = "interleaved-halves"
    for order, word in ((halves, "in halves"), (np.argsort(halves), "interleaved")):
        cause = f"has the pairs of each of {heads} heads {word} along axis {axis}"
        yield code, cause, np.take(right, order, axis)
