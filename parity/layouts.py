"""How a tensor of PyTorch lies in a leaf of a port: transposed, flipped or as it is; and back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

Shape = tuple[int, ...]
# A number, the first and the end of a range, or None for all; slices have no hash before 3.12.
Index = tuple[int | tuple[int, int] | None, ...]

# What a matrix's axes mean: [in, out], as in Flax, or [out, in], as in PyTorch and Equinox.
IN_OUT, TORCH, ANY = "in_out", "torch", "any"

# The conventions that the name of a leaf leaves open; what is not listed leaves all.
ALLOWED = {"kernel": {IN_OUT}, "embedding": {ANY}, "norm": {ANY}}


@dataclass(frozen=True)
class Part:
    """A tensor or a leaf, or a part of one.

    Attributes:
      name: of the whole.
      shape: of the part.
      index: where it is in the whole, () being all of it.
    """

    name: str
    shape: Shape
    index: Index = ()

    def __str__(self) -> str:
        """Return the name with the index: ``in_proj_weight[0:16]``."""
        inside = ", ".join(_written(i) for i in self.index)
        return f"{self.name}[{inside}]" if inside else self.name

    def of(self, whole: np.ndarray) -> np.ndarray:
        """Return a view of the part in the array that it is of."""
        return whole[self._slices()]

    def fill(self, whole: np.ndarray, value: np.ndarray | float) -> None:
        """Write the part into the array that it is of."""
        whole[self._slices()] = value

    def _slices(self) -> tuple[Any, ...]:
        return tuple(
            slice(*i) if isinstance(i, tuple) else slice(i) if i is None else i for i in self.index
        )

    def cut(self, axis: int, number: int, count: int) -> Part:
        """Return one of ``count`` equal pieces along an axis."""
        size = self.shape[axis] // count
        shape = (*self.shape[:axis], size, *self.shape[axis + 1 :])
        return self._at(axis, (number * size, (number + 1) * size), shape)

    def row(self, number: int, axis: int = 0) -> Part:
        """Return what has a number along an axis, which is then gone."""
        return self._at(axis, number, (*self.shape[:axis], *self.shape[axis + 1 :]))

    def _at(self, axis: int, chosen: int | tuple[int, int], shape: Shape) -> Part:
        whole = [*self.index, *[None] * (axis + 1)]
        place = [at for at, index in enumerate(whole) if not isinstance(index, int)][axis]
        inside = whole[place]
        start = inside[0] if isinstance(inside, tuple) else 0
        shifted = (
            start + chosen if isinstance(chosen, int) else (start + chosen[0], start + chosen[1])
        )
        whole[place] = shifted
        return replace(self, shape=shape, index=tuple(whole[: max(place + 1, len(self.index))]))


def _written(index: int | tuple[int, int] | None) -> str:
    if isinstance(index, tuple):
        return f"{index[0]}:{index[1]}"
    return ":" if index is None else str(index)


@dataclass(frozen=True)
class Layout:
    """A way to put a tensor into a leaf of as many elements.

    Attributes:
      how: in words.
      axes: the order in which the leaf takes the tensor's axes, before it is reshaped.
      flipped: axes of the tensor that run backwards.
    """

    how: str = "as it is"
    axes: Shape = ()
    flipped: Shape = ()

    def forward(self, tensor: np.ndarray, shape: Shape) -> np.ndarray:
        """Return a tensor as a leaf of a shape."""
        seen = np.flip(tensor, self.flipped)
        return (seen.transpose(self.axes) if self.axes else seen).reshape(shape)

    def back(self, leaf: np.ndarray, shape: Shape) -> np.ndarray:
        """Return a leaf as a tensor of a shape."""
        axes = self.axes or tuple(range(len(shape)))
        inverse = sorted(range(len(axes)), key=axes.__getitem__)
        seen = leaf.reshape([shape[axis] for axis in axes]).transpose(inverse)
        return np.flip(seen, self.flipped)


def options(kind: str, tensor: Shape, port: str, leaf: Shape) -> dict[str, Layout]:
    """Return the layouts in which a leaf may hold a layer's main weight, by convention.

    Args:
      kind: of the layer: "Linear", "Conv1D", "Embedding", "matrix" (one of these three, nobody
        knows which), "Conv", "ConvTranspose", "norm" or "array" (a bare parameter).
      tensor: shape of the weight.
      port: what the leaf is called: "kernel", "embedding", "norm", "weight" or "array".
      leaf: shape of the leaf.
    """
    if kind == "matrix":
        kind = "Embedding" if port == "embedding" else "Linear"
    if kind in ("Embedding", "norm", "array"):
        found = {ANY: Layout()} if _without_ones(tensor) == _without_ones(leaf) else {}
    elif kind.startswith("Conv") and kind != "Conv1D":
        found = _convolution(kind, tensor, leaf) if len(tensor) == len(leaf) >= 3 else {}
    else:
        found = _linear(kind, tensor, leaf) if len(tensor) == 2 else {}
    return {c: layout for c, layout in found.items() if c in ALLOWED.get(port, {c})}


def vector(tensor: Shape, leaf: Shape) -> Layout | None:
    """Return how a leaf holds a bias or a statistic: [out], [heads, head_dim] or [out, 1, 1]."""
    return Layout() if prod(tensor) == prod(leaf) else None


def _without_ones(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def _linear(kind: str, tensor: Shape, leaf: Shape) -> dict[str, Layout]:
    """Return layouts of [out, in]; the leaf may split either axis in heads.

    The Conv1D of transformers is [in, out] in PyTorch already.
    """
    transposed, as_it_is = Layout("transposed", (1, 0)), Layout()
    if kind == "Conv1D":
        transposed, as_it_is = as_it_is, transposed
    outs, ins = tensor[::-1] if kind == "Conv1D" else tensor
    splits = range(1, len(leaf)) if len(leaf) <= 3 else ()
    found = {}
    if any(prod(leaf[:at]) == ins and prod(leaf[at:]) == outs for at in splits):
        found[IN_OUT] = transposed
    if leaf == (outs, ins):
        found[TORCH] = as_it_is
    return found


def _convolution(kind: str, tensor: Shape, leaf: Shape) -> dict[str, Layout]:
    """Return layouts of [out, in, *space], or of [in, out, *space] where it is transposed."""
    space = tuple(range(2, len(tensor)))
    last = Layout("channels last", (*space, 1, 0))
    found = {}
    if kind == "ConvTranspose":
        # PyTorch slides the flipped kernel; Flax does so with `transpose_kernel=True` only.
        flipped = Layout("channels last and flipped", (*space, 0, 1), space)
        if leaf == tuple(tensor[axis] for axis in flipped.axes):
            return {IN_OUT: flipped}
        last = replace(last, how="channels last, for transpose_kernel=True")
    elif leaf == tensor:
        found[TORCH] = Layout()
    if leaf == tuple(tensor[axis] for axis in last.axes):
        found[IN_OUT] = last
    return found
