"""Float64 values with the error that float32 or less would have made on the way to them.

Each rounding is taken as an error of its own, of half an ulp, and carried on through the exact
derivative of every later step; errors that come together add by their squares. A sum of n terms is
off by sqrt(n) half ulp of the terms' sizes (Higham and Mary 2019, theorem 2.4, where n is the bound
of the worst case). The worst case of a whole encoder is a million times what any encoder has been
seen to be off by, and would catch nothing. Gradients are computed by a tape, and carry errors too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.cases.expected import WIDE, half_ulp

# An exponential, a root, a quotient or an erf is good to two ulp: accelerators have no better ones.
FUNCTION = 4 * WIDE


@dataclass(frozen=True, eq=False)
class Noisy:
    """An array and how uncertain it is.

    Attributes:
      value: float64.
      variance: of its error, element by element.
    """

    value: np.ndarray
    variance: np.ndarray

    def noisier(self, deviation: Any) -> Noisy:
        """Return the same with one more error of its own."""
        return Noisy(self.value, self.variance + np.square(deviation))


Pull = Callable[[Noisy], Noisy]


@dataclass(frozen=True, eq=False)
class Node(Noisy):
    """A step of a computation.

    Attributes:
      parents: what it was computed from, each with what turns the gradient of this into its own.
    """

    parents: tuple[tuple[Node, Pull], ...] = ()


def given(value: np.ndarray, deviation: Any = 0.0) -> Node:
    """Begin with an array: exact, or off by so much."""
    wide = value.astype(np.float64)
    return Node(wide, np.broadcast_to(np.square(deviation), wide.shape))


def step(result: Noisy, *parents: tuple[Node, Pull]) -> Node:
    """Return a step with its result."""
    return Node(result.value, result.variance, parents)


def total(ours: Noisy, theirs: Noisy) -> Noisy:
    """Add in float32."""
    value = ours.value + theirs.value
    return Noisy(value, ours.variance + theirs.variance).noisier(WIDE * value)


def times(ours: Noisy, theirs: Noisy) -> Noisy:
    """Multiply in float32; the arrays are broadcast."""
    a, b = ours.value, theirs.value
    variance = ours.variance * b**2 + a**2 * theirs.variance + ours.variance * theirs.variance
    return Noisy(a * b, variance).noisier(WIDE * a * b)


def contract(spec: str, ours: Noisy, theirs: Noisy) -> Noisy:
    """Sum products as ``np.einsum`` does, in float32."""
    a, b = ours.value, theirs.value
    (left, right), result = spec.partition("->")[0].split(","), spec.partition("->")[2]
    sizes = dict(zip(left + right, a.shape + b.shape, strict=True))
    terms = np.prod([size for axis, size in sizes.items() if axis not in result])
    variance = (
        np.einsum(spec, ours.variance, b**2)
        + np.einsum(spec, a**2, theirs.variance)
        + np.einsum(spec, ours.variance, theirs.variance)
    )
    deviation = WIDE * np.sqrt(terms) * np.einsum(spec, np.abs(a), np.abs(b))
    return Noisy(np.einsum(spec, a, b), variance).noisier(deviation)


def summed(noisy: Noisy, kept: int) -> Noisy:
    """Sum in float32 over all axes but the last ``kept``."""
    axes = tuple(range(noisy.value.ndim - kept))
    terms = noisy.value.size / np.prod(noisy.value.shape[len(axes) :])
    result = Noisy(noisy.value.sum(axes), noisy.variance.sum(axes))
    return result.noisier(WIDE * np.sqrt(terms) * np.abs(noisy.value).sum(axes))


def narrowed(noisy: Noisy, dtype: str) -> Noisy:
    """Round to a dtype; float32 is what everything has been rounded to already."""
    if dtype == "float32":
        return noisy
    # An uncertain value may lie in the next binade, where an ulp is larger.
    return noisy.noisier(half_ulp(np.abs(noisy.value) + np.sqrt(noisy.variance), dtype))


def rounded(node: Node, dtype: str) -> Node:
    """Store in a dtype, and in the backward pass its gradient."""
    return step(narrowed(node, dtype), (node, lambda slope: narrowed(slope, dtype)))


def product(spec: str, ours: Node, theirs: Node, dtype: str) -> Node:
    """Sum products of two arrays that are stored in a dtype, as ``contract`` does."""
    (left, right), result = spec.partition("->")[0].split(","), spec.partition("->")[2]
    return step(
        contract(spec, ours, theirs),
        (ours, lambda d: narrowed(contract(f"{result},{right}->{left}", d, theirs), dtype)),
        (theirs, lambda d: narrowed(contract(f"{left},{result}->{right}", ours, d), dtype)),
    )


def added(ours: Node, theirs: Node) -> Node:
    """Add; the second array may have fewer axes."""
    wide = Noisy(
        np.broadcast_to(theirs.value, ours.value.shape),
        np.broadcast_to(theirs.variance, ours.value.shape),
    )
    kept = theirs.value.ndim
    shares = kept < ours.value.ndim
    return step(
        total(ours, wide),
        (ours, lambda slope: slope),
        (theirs, lambda slope: summed(slope, kept) if shares else slope),
    )


def scaled(node: Node, factor: Noisy | float | np.ndarray) -> Node:
    """Multiply by constants."""
    noisy = given(np.asarray(factor)).noisier(WIDE * np.asarray(factor))
    return step(times(node, noisy), (node, lambda slope: times(slope, noisy)))


def stretched(node: Node, row: Node) -> Node:
    """Multiply by a row of parameters."""
    return step(
        times(node, row),
        (node, lambda slope: times(slope, row)),
        (row, lambda slope: summed(times(slope, node), 1)),
    )


def gradients(output: Node, cotangent: Noisy, wanted: Sequence[Node]) -> list[Noisy]:
    """Return the gradient of ``sum(output * cotangent)``.

    Args:
      output: where the tape ends.
      cotangent: of it.
      wanted: nodes that it depends on.
    """
    slopes: dict[int, Noisy] = {id(output): cotangent}
    for node in _downwards(output):
        for parent, pull in node.parents:
            part = pull(slopes[id(node)])
            known = slopes.get(id(parent))
            slopes[id(parent)] = part if known is None else total(known, part)
    return [slopes[id(node)] for node in wanted]


def _downwards(output: Node) -> Iterator[Node]:
    """Yield every node after all that were computed from it."""
    order: list[Node] = []
    seen: set[int] = set()

    def visit(node: Node) -> None:
        if id(node) not in seen:
            seen.add(id(node))
            for parent, _ in node.parents:
                visit(parent)
            order.append(node)

    visit(output)
    yield from reversed(order)
