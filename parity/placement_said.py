"""Matches that a mapping asks for, tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod

from parity.layouts import ANY, IN_OUT, TORCH, Layout, Part, Shape, options
from parity.placement_mapping import MappingError, Target, shown
from parity.placement_pairs import Match
from parity.placement_units import Unit, one_each


def said(
    targets: Mapping[str, tuple[Target, ...]],
    ours: Iterable[Unit],
    theirs: Iterable[Unit],
    tensors: Mapping[str, Shape],
    leaves: Mapping[str, Shape],
) -> Iterator[Match]:
    """Yield matches with the layouts that a mapping leaves them.

    Args:
      targets: by tensor.
      ours: all layers of PyTorch.
      theirs: all units of the port.
      tensors: shapes by name.
      leaves: shapes by path.

    Raises:
      MappingError: if a tensor doesn't fit the leaf that it is sent to.
    """
    kinds, ports = _kinds(ours), _kinds(theirs)
    for name, places in targets.items():
        tensor = Part(name, tensors[name])
        for place in places:
            leaf = Part(place.leaf, leaves[place.leaf])
            port = ports[place.leaf].rpartition(" ")[2]
            kind = kinds[name]
            if kind.startswith("cell") or (kind, port) == ("Embedding", "kernel"):
                kind = "Linear"  # the gates are rows; a table may be the last layer's too
            layouts = _layouts(kind, tensor.shape, port, leaf.shape, place.transposed)
            if not layouts:
                raise MappingError(
                    f"`mapping` sends `{name}` {shown(tensor.shape)} to `{place.leaf}` "
                    f"{shown(leaf.shape)}, which doesn't fit. Send it to another, or say "
                    f'{{"leaf": "{place.leaf}", "transposed": True}} if it is the transpose.'
                )
            yield Match(
                one_each(name, kind, {"weight": tensor}),
                one_each(place.leaf, port, {"weight": leaf}),
                {"weight": layouts},
            )


def _kinds(units: Iterable[Unit]) -> dict[str, str]:
    return {part.name: unit.kind for unit in units for part in unit.all_parts()}


def _layouts(
    kind: str, tensor: Shape, port: str, leaf: Shape, transposed: bool | None
) -> dict[str, Layout]:
    if prod(tensor) != prod(leaf):
        return {}
    if transposed is not None:
        told = options(kind, tensor, "weight", leaf).get(IN_OUT if transposed else TORCH)
        reverse = Layout("transposed", tuple(range(len(tensor)))[::-1])
        return {ANY: told or (reverse if transposed else Layout())}
    found = options(kind, tensor, port, leaf) if len(tensor) > 1 else {}
    return found or ({ANY: Layout()} if len(tensor) < 2 or tensor == leaf else {})
