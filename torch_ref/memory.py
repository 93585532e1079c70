"""Tensors in pinned (page-locked) host memory, from where an accelerator fetches them faster."""

import warnings
from copy import copy
from typing import Any, TypeVar

import torch
from torch import Tensor

Tree = TypeVar("Tree")


def pin_memory(tree: Tree) -> Tree:
    """Put every tensor of a tree in pinned host memory, where PyTorch can.

    Pinning needs an accelerator, since its driver does it. A tensor on the accelerator is copied to
    the host, one that is pinned already stays as it is. Bring one back by ``.to(device,
    non_blocking=True)``.

    Args:
      tree: a tensor, or dicts, lists and tuples of tensors, nested at will.

    Returns:
      The tree with each tensor in pinned host memory, its values, shape and dtype kept. Tensors
      that can't be pinned come back as they are, with one warning (UserWarning) that says why.

    Raises:
      TypeError: if a leaf is no tensor.
      RuntimeError: of PyTorch, if pinning fails, as for want of memory.

    Source: ``torch.Tensor.pin_memory``. Port: ``jax_input.memory.pin_memory``.
    """
    refused: list[str] = []
    pinned = _pinned(tree, "", refused)
    if refused:
        warnings.warn(
            f"Of the tensors, {len(refused)} were not pinned: {refused[0]} They stay where they "
            "were, which is as right, only slower to transfer.",
            stacklevel=2,
        )
    return pinned


def _pinned(tree: Any, place: str, refused: list[str]) -> Any:
    """Return the tree with pinned tensors; note of each that could not be pinned why."""
    if isinstance(tree, dict):
        copied = copy(tree)  # of its own kind, which need not be made of pairs
        for key, leaf in tree.items():
            copied[key] = _pinned(leaf, f"{place}[{key!r}]", refused)
        return copied
    if isinstance(tree, list | tuple):
        leaves = [_pinned(leaf, f"{place}[{i}]", refused) for i, leaf in enumerate(tree)]
        # A named tuple takes its fields one by one.
        return type(tree)(*leaves) if hasattr(tree, "_fields") else type(tree)(leaves)
    if not isinstance(tree, Tensor):
        raise TypeError(
            f"`tree`{place} must be a torch.Tensor, got {type(tree).__name__}. "
            "Pass the tensors alone, or convert it by torch.as_tensor."
        )
    if (reason := _why_not(tree)) is not None:
        refused.append(reason)
        return tree
    return tree if tree.is_pinned() else tree.cpu().pin_memory()


def _why_not(tensor: Tensor) -> str | None:
    """Return why a tensor can't be pinned; what goes wrong while it is pinned is raised."""
    if not torch.accelerator.is_available():
        return "PyTorch sees no accelerator, whose driver would do it."
    return "one on the device meta has no values." if tensor.is_meta else None
