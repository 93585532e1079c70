"""``parity.convert``: the weights of a PyTorch model in its port, and back, bit for bit."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from parity.placement import Layer, MappingError, Plan, plan
from parity.placement_mapping import read
from parity.trees import to_array

__all__ = ["MappingError", "convert"]


def convert(source: Any, like: Any, *, mapping: Mapping[str, Any] | str | None = None) -> Any:
    """Move weights between a PyTorch model and its port: every tensor once, every leaf once.

    Layers are paired by type and path: Linear, Embedding, convolutions, norms with their running
    statistics, MultiheadAttention, LSTM, GRU, RNN, tied weights, and lists of layers that the
    port has stacked. `weights_plan` returns the map, which prints as a line a tensor.

    Args:
      source: a module of PyTorch or its state_dict; or the parameters of the port: variables or
        parameters of linen, a State or Module of nnx, a module of Equinox, dicts and lists. A
        state_dict has no types: give the module if it has transposed convolutions.
      like: one of the other side, which tells names, shapes and dtypes; it stays as it is.
      mapping: where tensors go that can't be paired, a dict or a YAML file: from the name of a
        tensor or module of PyTorch to a leaf or module of the port, such as
        ``{"fc.weight": "head/kernel"}``. A list sends a tensor to several leaves,
        ``{"leaf": "w", "transposed": True}`` says how a matrix lies there, and None leaves
        a tensor out.

    Returns:
      The structure of ``like`` with the values of ``source``, in its dtypes, in memory of its
      own. For a module of PyTorch that is its state_dict on the CPU. What has no counterpart,
      such as integers, is as in ``like``.

    Raises:
      MappingError: if a tensor has no place, a leaf no tensor, two ways are as good, or
        ``mapping`` names what isn't there.
      TypeError: if not exactly one of both is of PyTorch, or ``mapping`` is no mapping.
    """
    found, is_torch = _planned(source, like, mapping)
    from parity.frameworks import jax_leaves, torch_layers

    if is_torch:
        leaves, rebuild = jax_leaves.flatten(like)
        placed = found.place(torch_layers.weights(source))
        return rebuild({path: _leaf(leaf, placed.get(path)) for path, leaf in leaves.items()})
    leaves, _ = jax_leaves.flatten(source)
    arrays = {path: to_array(leaf, f"`source` at `{path}`") for path, leaf in leaves.items()}
    return torch_layers.to_state(found.back(arrays), like)


def weights_plan(source: Any, like: Any, *, mapping: Mapping[str, Any] | str | None = None) -> Plan:
    """Return where `convert` puts every tensor; its arguments are those of `convert`."""
    return _planned(source, like, mapping)[0]


def _planned(source: Any, like: Any, mapping: Any) -> tuple[Plan, bool]:
    """Return the plan, and whether the source is of PyTorch."""
    is_torch = _is_torch(source)
    if is_torch == _is_torch(like):
        what = "both are" if is_torch else "neither is"
        raise TypeError(
            "one of `source` and `like` must be a module of PyTorch or its state_dict, and the "
            f"other the parameters of the port: {what} of PyTorch."
        )
    from parity.frameworks import jax_leaves, torch_layers

    model, port = (source, like) if is_torch else (like, source)
    layers: dict[str, Layer] = {} if isinstance(model, Mapping) else torch_layers.layers(model)
    leaves, _ = jax_leaves.flatten(port)
    found = plan(
        torch_layers.specs(model),
        layers,
        leaves,
        read(mapping),
        tied=torch_layers.tied(model),
        convention="torch" if _is_equinox(port) else "",
    )
    return found, is_torch


def _is_torch(tree: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if isinstance(tree, Mapping):
        return any(isinstance(value, torch.Tensor) for value in tree.values())
    return isinstance(tree, torch.nn.Module)


def _is_equinox(port: Any) -> bool:
    """Say whether this is a module of Equinox, whose matrices are [out, in] as in PyTorch."""
    return any(base.__module__.partition(".")[0] == "equinox" for base in type(port).__mro__)


def _leaf(leaf: Any, array: np.ndarray | None) -> Any:
    """Return an array in the framework of a leaf; the leaf's own values where there is none."""
    from parity.frameworks import jax_side

    if isinstance(leaf, np.ndarray):
        return leaf.copy() if array is None else array
    return leaf if array is None else jax_side.from_numpy(array)
