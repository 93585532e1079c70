"""JAX: the parameters of any framework as one flat dict by path, and back into their tree."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Visit = Callable[[str, Any], Any]


def flatten(tree: Any) -> tuple[dict[str, Any], Callable[[Mapping[str, Any]], Any]]:
    """Return the arrays of a tree by path, ``Dense_0/kernel``, and what puts others in their place.

    The order is that of creation where the tree still has it: dicts that JAX has sorted are put
    in natural order, ``Dense_2`` before ``Dense_10``. Linen's collections are left out of the
    paths, unless two of them have the same one: then the later is ``batch_stats/...``.

    Args:
      tree: variables or parameters of linen, a State or Module of nnx, a module of Equinox, or any
        other pytree. Only arrays of numbers and truth values are leaves (abstract ones too);
        PRNG keys, the random state of nnx and all else stay as they are. Boxes are unboxed.

    Returns:
      The leaves, and a function that takes such a dict and returns the same structure with its
      values; it raises ValueError unless the paths are the same.

    Raises:
      ValueError: if two leaves have one path.
    """
    if not _is_variables(tree):
        return _flatten(tree)
    # A stable sort: the parameters first, whatever JAX did to the order.
    parts = {name: _flatten(tree[name]) for name in sorted(tree, key=lambda name: name != "params")}
    found: dict[str, Any] = {}
    names: dict[str, dict[str, str]] = {}
    for collection, (leaves, _) in parts.items():
        names[collection] = {p: p if p not in found else f"{collection}/{p}" for p in leaves}
        found |= {names[collection][path]: leaf for path, leaf in leaves.items()}

    def rebuild(leaves: Mapping[str, Any]) -> Any:
        require_same_paths(leaves, found, "leaves")
        built = {
            name: part({path: leaves[full] for path, full in names[name].items()})
            for name, (_, part) in parts.items()
        }
        return _like(tree, {name: built[name] for name in tree})

    return found, rebuild


def require_same_paths(given: Iterable[str], expected: Iterable[str], name: str) -> None:
    """Require that two sets of paths are the same.

    Args:
      given: what there is.
      expected: what there should be.
      name: what a message calls what is given.

    Raises:
      ValueError: otherwise; it lists the first that are missing and unexpected.
    """
    given, expected = dict.fromkeys(given), dict.fromkeys(expected)
    missing = [path for path in expected if path not in given]
    unexpected = [path for path in given if path not in expected]
    said = [_listed("lacks", missing), _listed("has the unexpected", unexpected)]
    if missing or unexpected:
        raise ValueError(f"`{name}` {' and '.join(filter(None, said))}.")


def _listed(verb: str, paths: list[str]) -> str:
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return f"{verb} {', '.join(f'`{path}`' for path in paths[:3])}{more}" if paths else ""


def _flatten(tree: Any) -> tuple[dict[str, Any], Callable[[Mapping[str, Any]], Any]]:
    found: dict[str, Any] = {}

    def keep(path: str, leaf: Any) -> Any:
        if path in found:
            raise ValueError(f"`params` has two leaves at `{path}`. Rename one of the keys.")
        found[path] = leaf
        return leaf

    _mapped(tree, "", keep)

    def rebuild(leaves: Mapping[str, Any]) -> Any:
        require_same_paths(leaves, found, "leaves")
        return _mapped(tree, "", lambda path, _: leaves[path])

    return found, rebuild


def _mapped(tree: Any, path: str, visit: Visit) -> Any:
    """Return a copy of a tree with what ``visit`` returns for each leaf, in order."""
    if _is_leaf(tree):
        return visit(path, tree)
    if is_a(tree, "flax.nnx", "Pytree"):
        return _mapped_module(tree, path, visit)
    if is_a(tree, "flax.nnx", "RngState"):
        return tree
    if is_a(tree, "flax.nnx", "Variable"):
        return tree.copy(_mapped(tree.get_value(), path, visit))
    if is_a(tree, "flax.core.meta", "AxisMetadata"):
        return tree.replace_boxed(_mapped(tree.unbox(), path, visit))
    if isinstance(tree, Mapping):
        built = {key: _mapped(tree[key], _join(path, str(key)), visit) for key in _ordered(tree)}
        return _like(tree, {key: built[key] for key in tree})
    # One level of any other pytree: what is below has an order and a box of its own.
    children, treedef = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: x is not tree)
    if len(children) == 1 and children[0][1] is tree:
        return tree
    keys = (jax.tree_util.keystr(key, simple=True, separator="/") for key, _ in children)
    branches = [
        _mapped(child, _join(path, key), visit)
        for key, (_, child) in zip(keys, children, strict=True)
    ]
    return jax.tree_util.tree_unflatten(treedef, branches)


def _mapped_module(module: Any, path: str, visit: Visit) -> Any:
    nnx = sys.modules["flax.nnx"]
    graphdef, state = nnx.split(module)
    created = _as_created(module, state)
    # A copy: the random state is no leaf, and stays that of the caller's module otherwise.
    return nnx.merge(graphdef, _mapped(created, path, visit), copy=True)


def _as_created(node: Any, state: Any) -> Any:
    """Return a state in the order in which its module's attributes were set: nnx sorts them."""
    if not is_a(state, "flax.nnx", "State"):
        return state
    children = vars(node) if hasattr(node, "__dict__") else dict(_items(node))
    ranks = {str(name): rank for rank, name in enumerate(children)}
    keys = sorted(state, key=lambda key: ranks.get(str(key), len(ranks)))
    named = {str(name): child for name, child in children.items()}
    return type(state)({key: _as_created(named.get(str(key)), state[key]) for key in keys})


def _items(node: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(node, Mapping):
        return node.items()
    return enumerate(node) if isinstance(node, list | tuple) else ()


def _is_leaf(tree: Any) -> bool:
    if not isinstance(tree, jax.Array | np.ndarray | jax.ShapeDtypeStruct):
        return False
    return jnp.issubdtype(tree.dtype, np.number) or tree.dtype == np.bool_


def _is_variables(tree: Any) -> bool:
    """Say whether this is a dict of linen's collections, not of layers."""
    if not isinstance(tree, Mapping) or is_a(tree, "flax.nnx", "State", "Pytree"):
        return False
    return "params" in tree and all(isinstance(branch, Mapping) for branch in tree.values())


def is_a(tree: Any, module: str, *names: str) -> bool:
    """Recognise a class of a framework that is loaded, and load none."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(tree, tuple(getattr(loaded, name) for name in names))


def _ordered(tree: Mapping[Any, Any]) -> list[Any]:
    """Return the keys as they were set; natural order if they are sorted, as JAX sorts them."""
    keys = list(tree)
    as_text = [str(key) for key in keys]
    if as_text != sorted(as_text):
        return keys
    return sorted(keys, key=lambda key: [_part(part) for part in re.split(r"(\d+)", str(key))])


def _part(text: str) -> tuple[bool, int, str]:
    return (False, int(text), "") if text.isdecimal() else (True, 0, text)


def _like(tree: Mapping[Any, Any], branches: dict[Any, Any]) -> Any:
    """Return a mapping of the same kind; a copy keeps what a subclass of dict has besides."""
    if isinstance(tree, dict):
        built = copy.copy(tree)
        built.update(branches)
        return built
    kind: Callable[..., Any] = type(tree)
    return kind(branches)


def _join(path: str, key: str) -> str:
    return f"{path}/{key}" if path and key else path or key
