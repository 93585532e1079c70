"""Where each tensor of a PyTorch model lies in the parameters of its port, and back.

Layers are paired by type and path, never by shape alone (`parity.placement_pairs`), and every
tensor has one place and every leaf one tensor, or there is no plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.formats import FORMATS, round_to, widen
from parity.layouts import Layout, Part
from parity.placement_mapping import MappingError, shown
from parity.placement_plan import Placed, planned
from parity.placement_units import Layer, Spec, spec_of

__all__ = ["Layer", "MappingError", "Placement", "Plan", "plan"]


@dataclass(frozen=True)
class Placement:
    """A tensor, or a part of one, in a leaf.

    Attributes:
      torch: its name: ``fc.weight``, ``in_proj_weight[0:16]``.
      leaf: the path of the leaf, or of a part: ``qkv/kernel[:, 0:16]``.
      how: in words: "transposed (Linear)".
      source: the part of the tensor.
      target: the part of the leaf.
      layout: what lies between.
      is_added: whether it is added to what another tensor puts there.
    """

    torch: str
    leaf: str
    how: str
    source: Part
    target: Part
    layout: Layout
    is_added: bool = False

    def __str__(self) -> str:
        """Return a line: ``fc.weight [16,32] -> Dense_0/kernel [32,16] transposed (Linear)``."""
        left = f"{self.torch} {shown(self.source.shape)}"
        return f"{left} -> {self.leaf} {shown(self.target.shape)} {self.how}"


@dataclass(frozen=True)
class Plan:
    """Where every tensor goes.

    Attributes:
      placements: all of them, in the order of PyTorch.
      left_out: tensors without a place, with the reason.
      tensors: shape and dtype by name.
      leaves: shape and dtype by path.
      tied: names of PyTorch that are other names of a tensor, with its first name.
      absent: parts of tensors that the port has no place for, and that must be zero.
    """

    placements: tuple[Placement, ...]
    left_out: Mapping[str, str]
    tensors: Mapping[str, Spec]
    leaves: Mapping[str, Spec]
    tied: Mapping[str, str]
    absent: tuple[Part, ...] = ()

    def place(self, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the leaves that hold these tensors, in memory of their own.

        Raises:
          MappingError: if a tensor is missing, or isn't zero where the port has no place for it.
        """
        if missing := sorted({p.source.name for p in self.placements} - set(weights)):
            raise MappingError(f"`weights` has no `{missing[0]}`. Give all the plan was made for.")
        self._require_zeros(weights)
        addends = {p.target: p for p in self.placements if p.is_added}
        leaves: dict[str, np.ndarray] = {}
        for p in self.placements:
            if p.is_added:
                continue
            value = p.layout.forward(p.source.of(weights[p.source.name]), p.target.shape)
            leaf = self.leaves[p.target.name]
            if p.target.name not in leaves:
                leaves[p.target.name] = np.empty(leaf.shape, leaf.dtype or value.dtype)
            out = leaves[p.target.name]
            if more := addends.get(p.target):
                other = more.source.of(weights[more.source.name]).reshape(value.shape)
                p.target.fill(out, _sum(value, other, out.dtype))
            else:
                p.target.fill(out, cast(value, out.dtype))
        return leaves

    def _require_zeros(self, weights: Mapping[str, np.ndarray]) -> None:
        for part in self.absent:
            if np.any(part.of(weights[part.name]) != 0):
                raise MappingError(
                    f"`{part}` is not zero, and the port has no place for it: nnx.GRUCell has no "
                    "bias b_hn in r * (W_hn h + b_hn). Use a cell that has (linen.GRUCell), or "
                    "set it to zero in PyTorch."
                )

    def back(self, leaves: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the tensors that these leaves hold, bit for bit, in memory of their own.

        Where two tensors are added in one leaf, the second is the sum and the first zero.

        Raises:
          MappingError: if leaves of one tensor differ.
        """
        tensors: dict[str, np.ndarray] = {}
        filled: dict[tuple[str, str], Placement] = {}
        for p in self.placements:
            first = self.tied.get(p.source.name, p.source.name)
            leaf = leaves[p.target.name]
            spec = self.tensors[p.source.name]
            out = tensors.setdefault(first, np.zeros(spec.shape, spec.dtype or leaf.dtype))
            if p.is_added:
                continue
            value = cast(p.layout.back(p.target.of(leaf), p.source.shape), out.dtype)
            place = first, str(p.source).removeprefix(p.source.name)
            other = filled.setdefault(place, p)
            if other is not p and value.tobytes() != p.source.of(out).tobytes():
                raise MappingError(
                    f"`{other.leaf}` and `{p.leaf}` differ, and are one tensor in PyTorch: "
                    f"`{first}`. Make them equal, or untie the weights there."
                )
            p.source.fill(out, value)
        return self._with_tied(tensors)

    def pull_back(self, gradients: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the gradients of the tensors from those of the leaves.

        A tensor in two leaves, or tied, has the sum; two that are added both have that of the
        sum. A tensor none of whose leaves has a gradient has none.
        """
        tensors: dict[str, np.ndarray] = {}
        for p in self.placements:
            if p.target.name not in gradients:
                continue
            leaf = gradients[p.target.name]
            first = self.tied.get(p.source.name, p.source.name)
            out = tensors.setdefault(first, np.zeros(self.tensors[p.source.name].shape, leaf.dtype))
            p.source.fill(out, p.source.of(out) + p.layout.back(p.target.of(leaf), p.source.shape))
        return self._with_tied(tensors)

    def _with_tied(self, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        copies = {n: tensors[first].copy() for n, first in self.tied.items() if first in tensors}
        found = tensors | copies
        return {name: found[name] for name in self.tensors if name in found}

    def __str__(self) -> str:
        """Return the map, a line a tensor."""
        lines = [str(placement) for placement in self.placements]
        lines += [f"{name}: left out, {reason}" for name, reason in self.left_out.items()]
        return "\n".join(lines)


def plan(
    weights: Mapping[str, Any],
    layers: Mapping[str, Layer],
    leaves: Mapping[str, Any],
    mapping: Mapping[str, Any] | None = None,
    *,
    tied: Mapping[str, str] | None = None,
    convention: str = "",
) -> Plan:
    """Find the place of every tensor of a PyTorch model in the leaves of its port.

    Args:
      weights: tensors of the state_dict, by name: anything with a shape and a dtype, or a shape.
      layers: what the modules are, by path; {} if nobody knows.
      leaves: of the port, by path, in order of creation.
      mapping: settles the rest, as `parity.placement_mapping.told` reads it.
      tied: other names of a tensor, with its first name.
      convention: "torch" if square matrices of the port are [out, in] unless their names say
        otherwise, "in_out" if they are [in, out]; "" if the others of the tree have to tell.

    Raises:
      MappingError: if a tensor has no place, a leaf no tensor, or two ways are as good.
    """
    tensors = {name: spec_of(value) for name, value in weights.items()}
    places = {path: spec_of(value) for path, value in leaves.items()}
    found = planned(tensors, layers, places, mapping or {}, tied or {}, convention)
    placements = (_placement(placed, layers, tensors, places) for placed in found.placed)
    return Plan(tuple(placements), found.left_out, tensors, places, dict(tied or {}), found.absent)


def _placement(
    placed: Placed,
    layers: Mapping[str, Layer],
    tensors: Mapping[str, Spec],
    leaves: Mapping[str, Spec],
) -> Placement:
    source, target = placed.source, placed.target
    layer = layers.get(source.name.rpartition(".")[0])
    ours, theirs = tensors[source.name].dtype, leaves[target.name].dtype
    how = [f"{placed.layout.how} ({(layer and layer.type) or placed.kind})"]
    how += ["added"] if placed.is_added else []
    how += [f"cast from {ours} to {theirs}"] if ours and theirs and ours != theirs else []
    return Placement(
        str(source), str(target), ", ".join(how), source, target, placed.layout, placed.is_added
    )


def cast(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return values in a dtype, rounded once; the same bits in the same dtype."""
    if values.dtype == dtype:
        return values
    if values.dtype.name in FORMATS and dtype.name in FORMATS:
        return round_to(widen(values), dtype)
    return values.astype(dtype)


def _sum(values: np.ndarray, more: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a sum, rounded once; the very bits where zero is added, which -0 would not keep."""
    total = cast(widen(values) + widen(more), dtype)
    return np.where(more == 0, cast(values, dtype), total)
