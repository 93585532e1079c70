"""Nested states, and the names by which two of them agree."""

from collections.abc import Iterator, Mapping, Set
from typing import Any

Path = tuple[str, ...]
State = Mapping[Any, Any]

_COLLECTIONS = ("params", "constants")
_TABLE_NAMES = ("position_table", "pe")


def by_name(tree: State, name: str) -> dict[Path, Any]:
    """Return the leaves of a state under the names that both sides know them by.

    A name is the path without "params" or "constants" at its start, dots counting as steps, and a
    position table is called ``position_table`` at its end.

    Args:
      tree: nested mappings.
      name: what the message calls it.

    Raises:
      ValueError: if two leaves have one name.
    """
    found: dict[Path, Any] = {}
    for path, names, value in _leaves(tree):
        if names in found:
            raise ValueError(
                f"`{name}` holds `{'.'.join(names)}` twice, the second time at {list(path)}. "
                "Leave one of them out."
            )
        found[names] = value
    return found


def like(tree: State, restored: Mapping[Path, Any]) -> dict[Any, Any]:
    """Return nested dicts like ``tree`` with the restored leaves."""
    result: dict[Any, Any] = {}
    for path, names, _ in _leaves(tree):
        inner = result
        for step in path[:-1]:
            inner = inner.setdefault(step, {})
        inner[path[-1]] = restored[names]
    return result


def require_same_weights(given: Set[Path], wanted: Set[Path]) -> None:
    """Refuse weights that only one side has; tables need not be on both.

    Raises:
      ValueError: naming all of them.
    """
    sides = {"missing": wanted - given, "left over": given - wanted}
    lists = [
        f"{word}: {', '.join(names)}"
        for word, paths in sides.items()
        if (names := sorted(".".join(path) for path in paths if path[-1] != "position_table"))
    ]
    if lists:
        raise ValueError(
            f"`stored` and `target` do not name the same weights; {'; '.join(lists)}. Rename or "
            "remove entries of `stored` until the names agree."
        )


def _leaves(tree: State, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Path, Any]]:
    """Yield each leaf with its path, and with its name."""
    if not isinstance(tree, Mapping):
        raise TypeError(f"A state must be nested mappings of arrays, got {type(tree).__name__}.")
    for key, value in tree.items():
        here = (*path, key)
        if isinstance(value, Mapping):
            yield from _leaves(value, here)
            continue
        names = [name for step in here for name in str(step).split(".")]
        if names[0] in _COLLECTIONS and len(names) > 1:
            names = names[1:]
        if names[-1] in _TABLE_NAMES:
            names[-1] = "position_table"
        yield here, tuple(names), value
