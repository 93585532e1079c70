"""Trees of arrays, tensors and numbers, leaf by leaf with a path, as NumPy arrays."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from parity.formats import is_floating, is_whole


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each leaf with its path: ``layers[0]/kernel``.

    Args:
      tree: dicts (any mapping), lists, tuples and named tuples of leaves. A list or tuple of
        plain numbers is one leaf; None is none, as in JAX.
      path: of the tree itself.
    """
    if isinstance(tree, Mapping):
        for key, branch in tree.items():
            yield from leaves(branch, f"{path}/{key}" if path else str(key))
    elif isinstance(tree, tuple) and (names := getattr(tree, "_fields", ())):
        yield from leaves(dict(zip(names, tree, strict=True)), path)
    elif isinstance(tree, list | tuple) and not _are_numbers(tree):
        for index, branch in enumerate(tree):
            yield from leaves(branch, f"{path}[{index}]")
    elif tree is not None:
        yield path, tree


def _are_numbers(values: list[Any] | tuple[Any, ...]) -> bool:
    return all(type(value) in (bool, int, float) for value in values)


def flatten(tree: Any, name: str) -> dict[str, np.ndarray]:
    """Return all leaves as NumPy arrays, by path.

    Args:
      tree: see `leaves`.
      name: what a message calls it.

    Raises:
      TypeError: if a leaf is no array of floats, integers or truth values.
      ValueError: if two leaves have one path.
    """
    arrays: dict[str, np.ndarray] = {}
    for path, leaf in leaves(tree):
        if path in arrays:
            raise ValueError(f"`{name}` has two leaves at `{path}`. Rename one of the keys.")
        arrays[path] = to_array(leaf, f"`{name}` at `{path}`" if path else f"`{name}`")
    return arrays


def to_array(leaf: Any, name: str) -> np.ndarray:
    """Return a tensor, an array or a number as a NumPy array, in its own dtype.

    Frameworks are recognised only where they are loaded, and never loaded here.
    """
    array = np.asarray(_unwrap(leaf))
    if is_floating(array.dtype) or is_whole(array.dtype):
        return array
    what = type(leaf).__name__ if array.dtype.kind in "OUS" else array.dtype.name
    raise TypeError(
        f"{name} is {what}. Give arrays of floats, integers or bools, or trees of them."
    )


def _unwrap(leaf: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(leaf, torch.Tensor):
        from parity.frameworks import torch_side

        return torch_side.to_numpy(leaf)
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(leaf, jax.Array):
        from parity.frameworks import jax_side

        return jax_side.to_numpy(leaf)
    return leaf
