"""Which mistake turned a weight of the reference into what the port was given."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from parity.cause import Cause
from parity.formats import FORMATS, is_floating, widen
from parity.placement import Placement, Plan
from parity.stacked_weights import stacked_cause
from parity.weight_guesses import close, rounded, weight_guesses

_PROJECTION = re.compile(r"(?i)(^|[_.\d])(w?[qkv]|query|key|value)([_.\d]|proj|lin|$)")
# What a factor may leave over, of the greatest entry.
_LEFT_OVER = 1e-6


def weight_causes(
    plan: Plan, given: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]
) -> list[Cause]:
    """Name what is wrong with leaves that a port was given.

    Args:
      plan: where the reference's tensors go.
      given: leaves of the port, by path.
      right: the same as `parity.convert` makes them.

    Returns:
      One cause for each leaf that differs.
    """
    causes: list[Cause] = []
    stored = plan.back(right)
    for path, leaf in right.items():
        ours = given[path]
        if ours.shape == leaf.shape and _agree(ours, leaf):
            continue
        parts = [p for p in plan.placements if p.target.name == path]
        if not parts:
            continue
        if (stacked := stacked_cause(ours, leaf, parts)) is not None:
            causes.append(stacked)
            continue
        placement = parts[0]
        whole = stored.get(placement.source.name)
        code, cause = _reshaped(ours, leaf, _stored(whole, placement, ours.size)) or _named(
            ours, leaf, placement, plan, right
        )
        source = placement.source.name if len(parts) > 1 else placement.source
        fix = f"{path} = {source} {placement.how}"
        causes.append(Cause(code, placement.source.name, f"{path} {cause}", fix))
    return causes


def _agree(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Say whether two leaves are one, rounded once to the coarser format where theirs differ."""
    if ours.dtype == theirs.dtype or not (is_floating(ours.dtype) and is_floating(theirs.dtype)):
        return ours.tobytes() == theirs.tobytes()
    coarser = min(ours.dtype, theirs.dtype, key=lambda dtype: FORMATS[dtype.name].digits)
    return bool(np.array_equal(rounded(ours, coarser), rounded(theirs, coarser)))


def _named(
    ours: np.ndarray,
    right: np.ndarray,
    placement: Placement,
    plan: Plan,
    others: Mapping[str, np.ndarray],
) -> tuple[str, str]:
    """Return the code of a mistake, and what the leaf is instead of what it should be."""
    if ours.shape != right.shape:
        return "weight-shape", f"has shape {list(ours.shape)}, it should be {list(right.shape)}"
    mine, yours = widen(ours), widen(right)
    if (fresh := _fresh(mine, placement.source.name)) is not None:
        return fresh
    for code, cause, guess in weight_guesses(yours, placement.layout):
        if guess.shape == mine.shape and close(mine, guess, ours.dtype):
            # Three blocks are the gates of a GRU as well.
            is_gate = code == "qkv-permuted" and "(GRU" in placement.how
            return "gate-order" if is_gate else code, cause
    for other, value in others.items():
        is_other = other != placement.target.name and value.shape == ours.shape
        if is_other and close(mine, widen(value), ours.dtype):
            theirs = next(p for p in plan.placements if p.target.name == other)
            code = _swapped(placement.source.name, theirs.source.name)
            return code, f"holds {theirs.source}, which belongs into {other}"
    if any(p.is_added and p.target == placement.target for p in plan.placements):
        return "bias-missing", "is not the sum of both biases that torch has"
    zeros = (mine == 0) & (yours != 0)
    if zeros.any() and close(mine[~zeros], yours[~zeros], ours.dtype):
        cause = f"has zeros at {zeros.sum()} of its {zeros.size} entries"
        return _of_zeros(placement.source.name), cause
    return _scaled(mine, yours)


def _fresh(mine: np.ndarray, name: str) -> tuple[str, str] | None:
    """Name a leaf that still holds what it is initialised with."""
    last = name.rpartition(".")[2]
    if not mine.any():
        return _of_zeros(name), "is all zeros"
    if (mine == 1).all():
        code = "running-statistics" if "running" in last else "scale-missing"
        return code, "is all ones"
    return None


def _of_zeros(name: str) -> str:
    """Return the code of a tensor, or a part of it, that is zero and should not be."""
    last = name.rpartition(".")[2]
    code = "bias-missing" if "bias" in last else "weight-missing"
    return "running-statistics" if "running" in last else code


def _scaled(mine: np.ndarray, yours: np.ndarray) -> tuple[str, str]:
    """Name a factor, or else say how far off a leaf is."""
    power = float(np.sum(yours**2))
    factor = float(np.sum(mine * yours)) / power if power else 0.0
    left = np.abs(mine - factor * yours).max(initial=0.0)
    if yours.size > 1 and left <= _LEFT_OVER * np.abs(mine).max(initial=0.0):
        return "weight-scale", f"is {factor:.6g} times what it should be"
    for axis in range(yours.ndim if yours.ndim > 1 else 0):
        if yours.size == yours.shape[axis]:
            continue  # with a factor for each entry, any leaf is the right one scaled
        rest = tuple(k for k in range(yours.ndim) if k != axis)
        with np.errstate(invalid="ignore", divide="ignore"):
            factors = (mine * yours).sum(rest, keepdims=True) / (yours**2).sum(rest, keepdims=True)
        if np.abs(mine - factors * yours).max() <= _LEFT_OVER * np.abs(mine).max():
            cause = f"is scaled along axis {axis}, each entry by a factor of its own"
            return "weight-scale", cause
    return "weight-differs", f"differs by {np.abs(mine - yours).max(initial=0.0):.1e}"


def _stored(whole: np.ndarray | None, placement: Placement, size: int) -> np.ndarray | None:
    """Return what PyTorch stores of a leaf: a tensor, or a part of one that is packed."""
    return whole if whole is None or whole.size == size else placement.source.of(whole)


def _reshaped(
    ours: np.ndarray, right: np.ndarray, stored: np.ndarray | None
) -> tuple[str, str] | None:
    """Name a leaf that has its elements in the order in which PyTorch stores them."""
    if stored is None or ours.size != stored.size:
        return None
    mine, theirs = widen(ours), widen(stored.reshape(ours.shape))
    is_right = ours.shape == right.shape and close(mine, widen(right), ours.dtype)
    if is_right or not close(mine, theirs, ours.dtype):
        return None
    is_square = stored.ndim == 2 and stored.shape[0] == stored.shape[1]
    code = "untransposed-square" if is_square else "untransposed"
    return code, "has the elements in PyTorch's order: it was not transposed"


def _swapped(ours: str, theirs: str) -> str:
    """Return the code of a tensor in the place of another: projections, statistics or layers."""
    if ours == theirs:  # parts of one packed tensor
        return "qkv-permuted" if "in_proj" in ours or "qkv" in ours else "gate-order"
    modules = [name.rpartition(".")[0] for name in (ours, theirs)]
    if modules[0] == modules[1] and "running" in ours:
        return "running-statistics"
    parents = [module.rpartition(".") for module in modules]
    are_projections = all(_PROJECTION.search(parent[2]) for parent in parents)
    return (
        "qkv-permuted" if parents[0][0] == parents[1][0] and are_projections else "layers-swapped"
    )
