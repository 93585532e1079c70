"""What a caller says about where tensors go: read, checked against both sides, and refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parity.layouts import Shape
from parity.placement_names import distance, nearest


class MappingError(ValueError):
    """Tensors of PyTorch and leaves of a port can't be paired; the message lists both sides.

    Attributes:
      unplaced: names of PyTorch for which the port has no place.
      unfilled: paths of the port that nothing fills.
    """

    def __init__(
        self, message: str, unplaced: tuple[str, ...] = (), unfilled: tuple[str, ...] = ()
    ) -> None:
        """Keep what is left over on either side."""
        super().__init__(message)
        self.unplaced, self.unfilled = unplaced, unfilled


@dataclass(frozen=True)
class Target:
    """Where a tensor goes: a leaf, transposed or not; None where its name and shape tell."""

    leaf: str
    transposed: bool | None = None


@dataclass(frozen=True)
class Told:
    """A mapping that fits both sides.

    Attributes:
      tensors: the leaves of a tensor.
      modules: the path in the port of a module of PyTorch.
      left_out: tensors without a place, on purpose.
    """

    tensors: Mapping[str, tuple[Target, ...]] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()


def read(mapping: Any) -> Mapping[str, Any]:
    """Return a mapping that is given as itself, or as a YAML file.

    Raises:
      ImportError: if PyYAML is not installed.
      TypeError: if it is neither, or the file holds something else.
    """
    if isinstance(mapping, str | Path):
        try:
            import yaml
        except ImportError as error:
            raise ImportError(
                "`mapping` is a YAML file, which needs PyYAML. Install it (pip install pyyaml), "
                "or give a dict."
            ) from error
        mapping = yaml.safe_load(Path(mapping).read_text(encoding="utf-8")) or {}
    if not isinstance(mapping, Mapping | None):
        raise TypeError(
            f"`mapping` must be a dict or the path of a YAML file that holds one, "
            f"got {type(mapping).__name__}."
        )
    return mapping or {}


def told(mapping: Mapping[str, Any], tensors: Iterable[str], leaves: Iterable[str]) -> Told:
    """Check a mapping against the names of both sides.

    Args:
      mapping: from a tensor or module of PyTorch to a leaf or module of the port, or to several
        leaves in a list, to None, or to {"leaf": ..., "transposed": ...}.
      tensors: of PyTorch.
      leaves: of the port.

    Raises:
      MappingError: if a name is on neither side, or a leaf is given twice; with the nearest.
      TypeError: if a value is none of these.
    """
    names, paths = list(tensors), list(leaves)
    placed: dict[str, tuple[Target, ...]] = {}
    modules: dict[str, str] = {}
    left_out: set[str] = set()
    for key, value in mapping.items():
        inside = [name for name in names if name == key or name.startswith(f"{key}.")]
        if not inside:
            _refuse("names", key, _with_modules(names, "."), "tensor or module of PyTorch")
        if value is None:
            left_out |= set(inside)
        elif key in names:
            placed[key] = tuple(_target(key, one, paths) for one in _listed(value))
        elif isinstance(value, str):
            if not any(path == value or path.startswith(f"{value}/") for path in paths):
                _refuse(f"sends `{key}` to", value, _with_modules(paths, "/"), "leaf or module")
            modules[key] = value
        else:
            raise TypeError(
                f"`mapping` must send the module `{key}` to a path or None, got {value!r}. "
                "Say it for each of its tensors."
            )
    _require_once([target.leaf for targets in placed.values() for target in targets])
    return Told(placed, modules, frozenset(left_out - set(placed)))


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _target(key: str, value: Any, paths: list[str]) -> Target:
    if isinstance(value, str):
        value = {"leaf": value}
    if not isinstance(value, Mapping) or not {"leaf"} <= set(value) <= {"leaf", "transposed"}:
        raise TypeError(
            f"`mapping` must send `{key}` to a leaf, a list of leaves, None, or "
            f'{{"leaf": ..., "transposed": True or False}}; got {value!r}.'
        )
    if value["leaf"] not in paths:
        _refuse(f"sends `{key}` to", value["leaf"], paths, "leaf of the port")
    if not isinstance(value.get("transposed"), bool | None):
        raise TypeError(
            f"`mapping` must say True or False for `transposed` of `{key}`, "
            f"got {value['transposed']!r}."
        )
    return Target(value["leaf"], value.get("transposed"))


def _with_modules(names: list[str], separator: str) -> list[str]:
    above = [name.rpartition(separator)[0] for name in names]
    return [name for name in dict.fromkeys([*names, *above]) if name]


def _refuse(verb: str, name: str, known: list[str], what: str) -> None:
    near = nearest(str(name), known)
    way = f"The nearest is {_any_of(near)}." if near else f"There are {', '.join(known[:8])}."
    raise MappingError(f"`mapping` {verb} `{name}`, which is no {what} here. {way}")


def _any_of(names: list[str]) -> str:
    return " or ".join(f"`{name}`" for name in names)


def _require_once(leaves: list[str]) -> None:
    twice = next((leaf for leaf in leaves if leaves.count(leaf) > 1), None)
    if twice is not None:
        raise MappingError(f"`mapping` fills the leaf `{twice}` twice. Take one of them out.")


def refuse_unpaired(tensors: Mapping[str, Shape], leaves: Mapping[str, Shape]) -> None:
    """Raise for what is left over on either side, with the nearest of the other.

    Args:
      tensors: shapes of what PyTorch has and the port has no place for, by name.
      leaves: shapes of what is not filled, by path.

    Raises:
      MappingError: always.
    """
    lines = ["the tensors of PyTorch and the leaves of the port can't be paired."]
    lines += [f"  without a place ({len(tensors)} of PyTorch):"] if tensors else []
    lines += [f"    {n} {shown(s)}{_near(n, s, leaves)}" for n, s in tensors.items()]
    lines += [f"  not filled ({len(leaves)} of the port):"] if leaves else []
    lines += [f"    {n} {shown(s)}{_near(n, s, tensors)}" for n, s in leaves.items()]
    example = _example(tensors, leaves)
    lines.append(f"Say where they go: mapping={example}. None leaves a tensor out.")
    names = dict.fromkeys(name.partition("[")[0] for name in tensors)
    raise MappingError("\n".join(lines), tuple(names), tuple(leaves))


def _near(name: str, shape: Shape, others: Mapping[str, Shape]) -> str:
    """Return the nearest of the other side, those of the same size first."""
    size = sorted(shape)
    ranked = sorted(others, key=lambda o: (sorted(others[o]) != size, distance(name, o)))[:2]
    return f"   nearest: {', '.join(f'{o} {shown(others[o])}' for o in ranked)}" if ranked else ""


def _example(tensors: Mapping[str, Shape], leaves: Mapping[str, Shape]) -> str:
    name = next(iter(tensors), "name.of.a.tensor").partition("[")[0]
    leaf = next(iter(leaves), None)
    return f'{{"{name}": {f"{chr(34)}{leaf}{chr(34)}" if leaf else None}}}'


def shown(shape: Shape) -> str:
    """Return a shape as ``[16,32]``."""
    return f"[{','.join(map(str, shape))}]"
