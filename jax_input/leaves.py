"""Parameters one by one, beside their gradients and updates, each in its layer."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from jax_input.requirements import is_concrete, require_floats

Tree = Any
Arrays = dict[str, Float[np.ndarray, "*shape"]]

BLOCKS = ("attention", "feed_forward")
PARTS = tuple(part for block in BLOCKS for part in (block, f"{block}_norm"))


@dataclass(frozen=True)
class Leaf:
    """One parameter of one layer, or of what is no encoder.

    Attributes:
      layer: such as "layers[2]"; None outside of the layers of an encoder.
      name: within its layer, such as "attention.query.kernel"; the whole path outside.
      parameter: its values.
      gradient: of the same shape.
      update: of the same shape, where there are updates.
      is_frozen: whether it is not to move.
    """

    layer: str | None
    name: str
    parameter: Float[np.ndarray, "*shape"]
    gradient: Float[np.ndarray, "*shape"]
    update: Float[np.ndarray, "*shape"] | None
    is_frozen: bool

    @property
    def place(self) -> str:
        """Its whole path."""
        return self.name if self.layer is None else f"{self.layer}.{self.name}"

    @property
    def stack(self) -> str | None:
        """The path of its encoder's layers."""
        return None if self.layer is None else self.layer.rpartition("[")[0]


def norm(arrays: Iterable[Float[np.ndarray, "..."]]) -> float:
    """Return the square root of the sum of all squares, in float64."""
    with np.errstate(over="ignore"):
        return math.sqrt(sum(float(np.sum(np.square(x.astype(np.float64)))) for x in arrays))


def rms(array: Float[np.ndarray, "..."]) -> float:
    """Return the root of the mean square, in float64."""
    return norm([array]) / math.sqrt(max(1, array.size))


def by_layer(leaves: Iterable[Leaf]) -> dict[str, list[Leaf]]:
    """Return the leaves of each layer of an encoder, in order."""
    layers: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        if leaf.layer is not None:
            layers.setdefault(leaf.layer, []).append(leaf)
    return layers


def read_leaves(
    params: Tree,
    gradients: Tree,
    updates: Tree | None,
    frozen: Tree | Callable[[str], bool] | None,
) -> list[Leaf]:
    """Return every parameter, those of stacked layers one by one, layers first and in order.

    Args:
      params: any tree of floats.
      gradients: with its paths and shapes.
      updates: with its paths and shapes, or None.
      frozen: a tree of booleans with its paths, a function of a path, or None.

    Raises:
      TypeError: if something is traced, holds no floats, or ``frozen`` no booleans.
      ValueError: if paths or shapes don't fit.
    """
    known = _arrays("params", params)
    trees = [known, _fitting("gradients", gradients, known)]
    trees += [] if updates is None else [_fitting("updates", updates, known)]
    kept = _frozen_paths(frozen, known)
    inside, outside = [], []
    stacks = _stacks(known)
    for path in known:
        stack = next((stack for stack in stacks if path.startswith(f"{stack}.")), None)
        values = [tree[path] for tree in trees] + [None] * (3 - len(trees))
        if stack is None:
            outside.append(_leaf(None, path, values, frozen, path in kept))
            continue
        for index in range(stacks[stack]):
            layer, name = f"{stack}[{index}]", path.removeprefix(f"{stack}.")
            of_layer = [None if x is None else x[index] for x in values]
            inside.append((stack, index, _leaf(layer, name, of_layer, frozen, path in kept)))
    inside.sort(key=lambda found: found[:2])
    return [leaf for _, _, leaf in inside] + outside


def read_array(name: str, values: Any) -> Float[np.ndarray, "*shape"]:
    """Return values on the host, or say why they can't be read.

    Raises:
      TypeError: if they are traced, spread over other hosts, or no floats.
    """
    if not is_concrete(values):
        is_traced = isinstance(values, jax.core.Tracer)
        why = "is traced, and has no values yet" if is_traced else "is spread over other hosts"
        raise TypeError(
            f"`{name}` {why}. Return it from jit, grad, vmap or scan as an output, or gather it, "
            "and call `gradient_report` on what came out."
        )
    return np.asarray(require_floats(name, values))


def _leaf(
    layer: str | None,
    name: str,
    values: list[Any],
    frozen: Tree | Callable[[str], bool] | None,
    is_kept: bool,
) -> Leaf:
    parameter, gradient, update = values
    leaf = Leaf(layer, name, parameter, gradient, update, is_kept)
    if not callable(frozen):
        return leaf
    said = frozen(leaf.place)
    if not isinstance(said, bool | np.bool_):
        raise TypeError(
            f"`frozen` must return True or False, got {type(said).__name__} for {leaf.place!r}."
        )
    return replace(leaf, is_frozen=bool(said))


def _paths(tree: Tree) -> Iterator[tuple[str, Any]]:
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        yield jax.tree_util.keystr(path, simple=True, separator="."), leaf


def _arrays(name: str, tree: Tree) -> Arrays:
    return {
        path: read_array(f"{name}: {path}" if path else name, leaf) for path, leaf in _paths(tree)
    }


def _fitting(name: str, tree: Tree, known: Arrays) -> Arrays:
    """Return arrays with the paths and shapes of the parameters."""
    arrays = _arrays(name, tree)
    if wrong := sorted(arrays.keys() ^ known.keys()):
        where = "`params` lack" if wrong[0] in arrays else f"`{name}` lack"
        raise ValueError(f"`{name}` must have the paths of `params`, but {where} {wrong[0]!r}.")
    for path, array in arrays.items():
        if array.shape != known[path].shape:
            raise ValueError(
                f"`{name}` must have the shapes of `params`, {list(known[path].shape)} at "
                f"{path!r}, got {list(array.shape)}."
            )
    return arrays


def _frozen_paths(frozen: Tree | Callable[[str], bool] | None, known: Arrays) -> set[str]:
    if frozen is None or callable(frozen):
        return set()
    flags = dict(_paths(frozen))
    if flags.keys() != known.keys() or not all(
        isinstance(x, bool | np.bool_) for x in flags.values()
    ):
        raise TypeError(
            "`frozen` must be a tree of True and False with the paths of `params`, or a function "
            f"of a path, got {type(frozen).__name__} with {len(flags)} leaves. "
            "Make one with jax.tree.map(lambda _: False, params)."
        )
    return {path for path, flag in flags.items() if flag}


def _stacks(known: Arrays) -> dict[str, int]:
    """Return the paths that hold the stacked layers of an encoder, and how many there are."""
    found: dict[str, dict[str, set[int]]] = {}
    for path, array in known.items():
        names = path.split(".")
        for at, (name, part) in enumerate(pairwise(names)):
            if name == "layers" and part in PARTS:
                sizes = found.setdefault(".".join(names[: at + 1]), {}).setdefault(part, set())
                sizes.add(array.shape[0] if array.ndim else 0)
    whole = {}
    for stack, parts in found.items():
        sizes = set().union(*parts.values())
        if len(parts) == len(PARTS) and len(sizes) == 1 and 0 not in sizes:
            whole[stack] = sizes.pop()
    return whole
