"""The steps to a plan: what the mapping says, what pairs by itself, how square matrices lie."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from parity.layouts import ANY, Layout, Part
from parity.placement_mapping import MappingError, Told, refuse_unpaired, shown, told
from parity.placement_names import ordered
from parity.placement_pairs import Match, Pairing, paired
from parity.placement_port import port_units
from parity.placement_said import said
from parity.placement_torch import torch_units
from parity.placement_units import Layer, Spec, Unit, is_weight, row, stacked

# What these are called says how their matrices lie.
NAMED = {"kernel", "embedding", "norm"}


@dataclass(frozen=True)
class Placed:
    """A part of a tensor in a part of a leaf."""

    source: Part
    target: Part
    layout: Layout
    kind: str
    is_added: bool = False


@dataclass(frozen=True)
class Planned:
    """What goes where, and what nowhere; see `parity.placement.Plan`."""

    placed: tuple[Placed, ...]
    left_out: Mapping[str, str]
    absent: tuple[Part, ...]


def planned(
    tensors: Mapping[str, Spec],
    layers: Mapping[str, Layer],
    leaves: Mapping[str, Spec],
    mapping: Mapping[str, Any],
    tied: Mapping[str, str],
    convention: str,
) -> Planned:
    """Return where all tensors go; the arguments are those of `parity.placement.plan`.

    Raises:
      MappingError: if there is no plan, or no certain one.
    """
    asked = told(mapping, tensors, [path for path, leaf in leaves.items() if is_weight(leaf)])
    left_out = _left_out(tensors, asked)
    shapes = {
        name: tensors[name].shape for name in ordered(list(tensors), ".") if name not in left_out
    }
    paths = {path: leaves[path].shape for path in ordered(list(leaves), "/")}
    paths = {path: shape for path, shape in paths.items() if is_weight(leaves[path])}
    ours, theirs = torch_units(shapes, layers), port_units(paths)
    matches = list(said(asked.tensors, ours, theirs, shapes, paths))
    used = {target.leaf for targets in asked.tensors.values() for target in targets}
    rest = torch_units({n: s for n, s in shapes.items() if n not in asked.tensors}, layers)
    free = port_units({path: shape for path, shape in paths.items() if path not in used})
    pairings = list(_by_scope(asked, rest, free))
    matches += [match for pairing in pairings for match in pairing.matches]
    left_out |= _tied(tied, pairings, matches)
    _require_all(pairings, matches, left_out)
    for pairing in pairings:
        if pairing.doubtful:
            _refuse_order(*pairing.doubtful)
    placed = [p for match in _settled(matches, convention) for p in _placed(match)]
    places = {name: place for place, name in enumerate(tensors)}
    placed.sort(key=lambda p: places[p.source.name])
    absent = tuple(p.source for p in placed if not p.target.name)
    return Planned(tuple(p for p in placed if p.target.name), left_out, absent)


def _left_out(tensors: Mapping[str, Spec], asked: Told) -> dict[str, str]:
    whole = [name for name, spec in tensors.items() if not is_weight(spec)]
    if wrong := next((name for name in whole if name in asked.tensors), None):
        raise MappingError(
            f"`mapping` gives a place to `{wrong}`, which holds integers. Send it to None."
        )
    reasons = dict.fromkeys(whole, "holds integers")
    return reasons | dict.fromkeys(sorted(asked.left_out), "as `mapping` says")


def _by_scope(asked: Told, ours: Sequence[Unit], theirs: Sequence[Unit]) -> Iterator[Pairing]:
    """Yield a pairing for each pair of modules in a mapping, the inner first; and for the rest."""
    mine, yours = list(ours), list(theirs)
    for module in sorted(asked.modules, key=len, reverse=True):
        path = asked.modules[module]
        one = [unit for unit in mine if _is_below(unit, module, ".")]
        other = [unit for unit in yours if _is_below(unit, path, "/")]
        mine = [unit for unit in mine if unit not in one]
        yours = [unit for unit in yours if unit not in other]
        yield _best(one, other)
    yield _best(mine, yours)


def _is_below(unit: Unit, path: str, separator: str) -> bool:
    return all(
        part.name == path or part.name.startswith(f"{path}{separator}") for part in unit.all_parts()
    )


def _best(ours: Sequence[Unit], theirs: Sequence[Unit]) -> Pairing:
    """Pair the units as they are, else with lists of layers stacked as ``nn.scan`` does it."""
    best = paired(ours, theirs)
    lists = _lists(ours)
    for count in range(1, len(lists) + 1):
        for chosen in combinations(lists, count):
            if not best.torch_rest and not best.port_rest:
                return best
            units = list(ours)
            for prefix in chosen:
                units = stacked(units, prefix)
            best = min(best, paired(units, theirs), key=_left_over)
    return best


def _lists(units: Sequence[Unit]) -> list[str]:
    """Return the paths of lists of layers, at most four; not of lists in lists."""
    found: dict[str, set[str]] = {}
    for unit in units:
        head = re.match(r"((?:[^.\d][^.]*\.)*?)(\d+)(?=\.|$)", unit.path)
        if head:
            found.setdefault(head[1].rstrip("."), set()).add(head[2])
    return [path for path, numbers in found.items() if len(numbers) > 1][:4]


def _left_over(pairing: Pairing) -> int:
    rest = (*pairing.torch_rest, *pairing.port_rest)
    return sum(len(unit.all_parts()) for unit in rest)


def _tied(
    tied: Mapping[str, str], pairings: Sequence[Pairing], matches: Sequence[Match]
) -> dict[str, str]:
    """Return the names without a leaf whose tensor has one by another name, with the reason."""
    placed = {
        tied.get(part.name, part.name): part.name for m in matches for part in m.torch.all_parts()
    }
    alone = (
        part.name for pairing in pairings for u in pairing.torch_rest for part in u.all_parts()
    )
    found = {name: placed.get(tied.get(name, name)) for name in alone}
    return {name: f"tied to {other}" for name, other in found.items() if other}


def _require_all(
    pairings: Sequence[Pairing], matches: Sequence[Match], left_out: Mapping[str, str]
) -> None:
    ours = [part for pairing in pairings for u in pairing.torch_rest for part in u.all_parts()]
    theirs = [part for pairing in pairings for u in pairing.port_rest for part in u.all_parts()]
    for match in matches:
        mine, yours = match.torch.parts, match.port.parts
        ours += _only(match.torch, set(mine) - set(match.roles))
        theirs += _only(match.port, set(yours) - set(match.roles))
    ours = [part for part in ours if part.name not in left_out]
    if ours or theirs:
        refuse_unpaired(
            *({str(p): p.shape for p in dict.fromkeys(side)} for side in (ours, theirs))
        )


def _only(unit: Unit, roles: set[str]) -> list[Part]:
    """Return the parts of a unit in some roles, but those that another role has too."""
    parts = [
        replace(u, parts={r: p for r, p in u.parts.items() if r in roles}) for u in _each(unit)
    ]
    kept = {part for u in _each(unit) for r, ps in u.parts.items() if r not in roles for part in ps}
    return [part for u in parts for part in u.all_parts() if part not in kept]


def _each(unit: Unit) -> tuple[Unit, ...]:
    return unit.members or (unit,)


def _refuse_order(one: Match, other: Match) -> None:
    ours, theirs = (
        [getattr(match, side).all_parts()[0].name for match in (one, other)]
        for side in ("torch", "port")
    )
    raise MappingError(
        f"`{ours[0]}` and `{ours[1]}` fit `{theirs[0]}` and `{theirs[1]}` either way, and neither "
        "names nor numbers tell which is which. Say it: "
        f'mapping={{"{ours[0]}": "{theirs[0]}"}}, or the other one.'
    )


def _settled(matches: Sequence[Match], convention: str) -> list[Match]:
    """Return matches with one layout a role; where a shape allows two, the others decide."""
    votes = {
        key
        for match in matches
        if len(found := match.roles.get("weight", {})) == 1 and match.port.kind not in NAMED
        for key in found
    } - {ANY}
    decided = next(iter(votes)) if len(votes) == 1 else "" if votes else convention
    return [_decided(match, decided) for match in matches]


def _decided(match: Match, convention: str) -> Match:
    found = match.roles.get("weight", {})
    part = match.torch.all_parts()[0]
    is_row = sum(size > 1 for size in part.shape) < 2
    if len(found) > 1 and not is_row:
        if convention not in found:
            leaf = match.port.all_parts()[0]
            raise MappingError(
                f"`{leaf}` {shown(leaf.shape)} may hold `{part}` as it is or transposed: it is "
                "square, and neither its name nor another leaf tells. Say which: "
                f'mapping={{"{part}": {{"leaf": "{leaf}", "transposed": True}}}}, or False.'
            )
        found = {convention: found[convention]}
    return replace(match, roles=match.roles | ({"weight": found} if found else {}))


def _placed(match: Match) -> Iterator[Placed]:
    """Yield a placement for each part of a layer, and for each layer of a stack."""
    if match.torch.members:
        for number, member in enumerate(match.torch.members):
            yield from _placed(Match(member, row(match.port, number), match.roles))
        return
    kind = match.torch.kind.removeprefix("cell ")
    for role, layouts in match.roles.items():
        layout = next(iter(layouts.values()))
        ours, theirs = match.torch.parts[role], match.port.parts[role]
        summed = match.port.parts.get("bias_hh", ()) if role == "bias_ih" else ()
        has_both = "bias_hh" in match.roles
        for number, (source, target) in enumerate(zip(ours, theirs, strict=True)):
            is_added = has_both and bool(summed) and summed[number] == target
            yield Placed(source, target, layout, kind, is_added)
