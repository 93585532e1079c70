"""Units: a layer of PyTorch with its tensors, or the leaves of a port that hold one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from parity.layouts import Part, Shape

PACKED = re.compile(r"(?i)(^|[./_])(c_attn|w?qkv|qkv_proj|in_proj|query_key_value)(/|$)")
QKV = ("query", "key", "value")


@dataclass(frozen=True)
class Layer:
    """What is known of a module of PyTorch.

    Attributes:
      type: "Linear", "LSTM", ...; that of the base where it is a subclass; "" if nobody knows.
      facts: its options, such as in_features.
    """

    type: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Spec:
    """Shape of an array, and its dtype if it is known."""

    shape: Shape
    dtype: np.dtype | None


def spec_of(value: Any) -> Spec:
    """Return shape and dtype of an array, or of a shape."""
    dtype = getattr(value, "dtype", None)
    return Spec(tuple(getattr(value, "shape", value)), None if dtype is None else np.dtype(dtype))


def is_weight(spec: Spec) -> bool:
    """Say whether an array can be a weight: neither integers nor truth values."""
    return spec.dtype is None or spec.dtype.kind not in "iub"


@dataclass(frozen=True)
class Unit:
    """Tensors or leaves that belong together.

    Attributes:
      path: of the module.
      kind: of the layer; of a port what its main leaf is called; "cell LSTM" and so on.
      parts: by role: "weight", "bias", "mean", "var"; those of a cell have one for each gate.
      members: of a stack, unit by unit.
    """

    path: str
    kind: str
    parts: Mapping[str, tuple[Part, ...]]
    members: tuple[Unit, ...] = ()

    @property
    def signature(self) -> tuple[Any, ...]:
        """Return what decides with which others it may be paired."""
        shapes = tuple((r, tuple(p.shape for p in ps)) for r, ps in sorted(self.parts.items()))
        return self.kind, shapes, len(self.members)

    def all_parts(self) -> list[Part]:
        """Return every part once, those of all members of a stack."""
        own = [
            part for unit in self.members or (self,) for ps in unit.parts.values() for part in ps
        ]
        return [part for part in dict.fromkeys(own) if part.name]


def one_each(path: str, kind: str, parts: Mapping[str, Part]) -> Unit:
    """Return a unit with one part in each role."""
    return Unit(path, kind, {role: (part,) for role, part in parts.items()})


def thirds(unit: Unit, axes: Mapping[str, int], separator: str) -> list[Unit]:
    """Return query, key and value of a layer that computes all three; itself if it can't be.

    Args:
      unit: with one part in each role.
      axes: along which the three lie, by role.
      separator: of its path.
    """
    parts = {role: part for role, (part,) in unit.parts.items()}
    if any(part.shape[axes[role]] % 3 for role, part in parts.items()):
        return [unit]
    return [
        one_each(
            f"{unit.path}{separator}{name}",
            unit.kind,
            {role: _third(part, axes[role], number) for role, part in parts.items()},
        )
        for number, name in enumerate(QKV)
    ]


def _third(part: Part, axis: int, number: int) -> Part:
    is_axis_of_three = part.shape[axis] == 3 and len(part.shape) > 1
    return part.row(number, axis) if is_axis_of_three else part.cut(axis, number, 3)


def stacked(units: list[Unit], prefix: str) -> list[Unit]:
    """Return units in which those of one list, which differ in its number alone, are one.

    Args:
      units: of PyTorch.
      prefix: of the list: "encoder.layers".
    """
    pattern = re.compile(rf"{re.escape(prefix)}\.(\d+)(?=\.|$)" if prefix else r"^(\d+)(?=\.|$)")
    rows: dict[str, list[Unit]] = {}
    for unit in units:
        # One number at a time: what has lists inside itself keeps theirs.
        found = pattern.match(unit.path)
        path = f"{prefix}{unit.path[found.end() :]}" if found else unit.path
        rows.setdefault(path if found else f"={path}", []).append(unit)
    return [
        unit
        for path, alike in rows.items()
        for unit in (alike if path.startswith("=") or len(alike) < 2 else _stack(path, alike))
    ]


def _stack(path: str, alike: list[Unit]) -> list[Unit]:
    if len({unit.signature for unit in alike}) > 1:
        return alike
    return [replace(alike[0], path=path, members=tuple(alike))]


def row(unit: Unit, number: int) -> Unit:
    """Return a port's unit without its first axis, at a number."""
    return replace(
        unit,
        parts={
            r: tuple(p.row(number) if p.name else p for p in ps) for r, ps in unit.parts.items()
        },
    )


def depth(unit: Unit) -> int:
    """Return the length of the first axis that all the leaves have in common; 0 if none."""
    sizes = {part.shape[:1] for part in unit.all_parts()}
    return next(iter(sizes))[0] if len(sizes) == 1 and sizes != {()} else 0
