"""The port's side of a placement: leaves that belong together, and what they are called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from parity.layouts import Part, Shape
from parity.placement_cells import port_cells
from parity.placement_names import words_of
from parity.placement_units import PACKED, Unit, one_each, thirds

COLLECTIONS = ("params", "batch_stats", "constants")
# The role of a leaf, and what its unit is called for it, by a word of its name.
ROLES = {
    "kernel": ("weight", "kernel"),
    "embedding": ("weight", "embedding"),
    **dict.fromkeys(("scale", "gamma", "g"), ("weight", "norm")),
    **dict.fromkeys(("weight", "w"), ("weight", "weight")),
    **dict.fromkeys(("bias", "b", "beta"), ("bias", "")),
    "mean": ("mean", "norm"),
    "var": ("var", "norm"),
}


def port_units(shapes: Mapping[str, Shape]) -> list[Unit]:
    """Return the leaves in groups, in their order."""
    named = {_inside(name): name for name in shapes}
    if len(named) < len(shapes):  # two collections with a leaf of the same name
        named = {name: name for name in shapes}
    parts = {path: Part(path, shapes[name]) for path, name in named.items()}
    cells = {
        path: Unit(path, f"cell {cell.kind} {cell.convention}", cell.parts)
        for path, cell in port_cells({path: part.shape for path, part in parts.items()}).items()
    }
    taken = {part.name for unit in cells.values() for part in unit.all_parts()}
    groups = _groups({path: part for path, part in parts.items() if path not in taken})
    units = [*cells.values(), *(u for path, group in groups.items() for u in _units(path, group))]
    return [_renamed(unit, named) for unit in units]


def _inside(name: str) -> str:
    head, _, rest = name.partition("/")
    return rest if head in COLLECTIONS and rest else name


def _renamed(unit: Unit, named: Mapping[str, str]) -> Unit:
    return replace(
        unit,
        parts={
            role: tuple(replace(part, name=named.get(part.name, "")) for part in parts)
            for role, parts in unit.parts.items()
        },
    )


def _groups(parts: Mapping[str, Part]) -> dict[str, dict[str, tuple[str, Part]]]:
    """Return name and part by unit and role; what has no role is a unit of its own."""
    groups: dict[str, dict[str, tuple[str, Part]]] = {}
    for path, part in parts.items():
        unit, role, kind = _role(path)
        if role and role not in groups.get(unit, {}):
            groups.setdefault(unit, {})[role] = kind, part
        else:
            groups[path] = {"weight": ("array", part)}
    return groups


def _role(path: str) -> tuple[str, str, str]:
    """Return the unit that a leaf belongs to, its role there, and what it is called."""
    parent, _, last = path.rpartition("/")
    if letters := re.fullmatch(r"([wWb])_?([qkvo])", last):
        last = f"{letters[1].lower()}_{letters[2]}"
    found = words_of(last)
    told = [word for word in found if word in ROLES]
    if not told:
        return path, "", "array"
    role, kind = ROLES[told[-1]]
    found.remove(told[-1])
    own = "_".join(word for word in found if word not in ("running", "moving"))
    return "/".join(filter(None, (parent, own))), role, kind


def _units(path: str, group: Mapping[str, tuple[str, Part]]) -> list[Unit]:
    kind = next((kind for kind, _ in group.values() if kind), "array")
    own = {role: part for role, (_, part) in group.items()}
    if set(own) == {"bias"}:
        return [one_each(path, "array", {"weight": own["bias"]})]
    unit = one_each(path, kind, own)
    if kind not in ("kernel", "weight", "array") or not PACKED.search(path):
        return [unit]
    return thirds(unit, _packed_axes(own), "/")


def _packed_axes(own: Mapping[str, Part]) -> dict[str, int]:
    """Return along which axes query, key and value lie: the last one, or one of three."""
    shape = own["weight"].shape
    is_wide = len(shape) < 3 or shape[-1] == 3 * shape[-2] or 3 not in shape
    bias = own["bias"].shape if "bias" in own else ()
    return {
        "weight": len(shape) - 1 if is_wide else shape.index(3),
        "bias": len(bias) - 1 if is_wide or 3 not in bias else bias.index(3),
    }
