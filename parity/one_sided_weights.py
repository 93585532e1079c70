"""Where the weights go in a check, in which a port may lack a bias, or have one too many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.cause import Cause
from parity.evidence import Evidence
from parity.formats import is_floating
from parity.placement import MappingError, Plan, plan
from parity.placement_mapping import read


@dataclass(frozen=True, eq=False)
class Placed:
    """Where the weights go.

    Attributes:
      plan: None if there is none.
      fills: leaves that only the port has, with what changes nothing in them.
      causes: what one side alone has.
      told: why there is no plan.
    """

    plan: Plan | None
    fills: Mapping[str, np.ndarray]
    causes: tuple[Cause, ...] = ()
    told: tuple[str, ...] = ()

    def leaves(self, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the leaves of the port that hold these weights."""
        return {} if self.plan is None else {**self.plan.place(weights), **self.fills}


def placed(
    evidence: Evidence, leaves: Mapping[str, Any], mapping: Any, *, given: bool, convention: str
) -> Placed:
    """Find the places of all weights, and of what is left over on one side only.

    Args:
      evidence: of the reference.
      leaves: of the port, by path.
      mapping: the caller's.
      given: whether the port has values of its own; it can be checked without a plan then.
      convention: see `parity.placement.plan`.

    Raises:
      MappingError: if both sides have something left over, or what is can't be left out.
    """
    if not leaves:
        names = [name for name, array in evidence.weights.items() if is_floating(array.dtype)]
        return Placed(None, {}, (), (f"{len(names)} weights: the port has none",) * bool(names))

    def planned(leaves: Mapping[str, Any], asked: Mapping[str, Any]) -> Plan:
        return plan(
            evidence.weights,
            evidence.layers,
            leaves,
            asked,
            tied=evidence.tied,
            convention=convention,
        )

    asked = read(mapping) or {}
    try:
        return Placed(planned(leaves, asked), {})
    except MappingError as error:
        fills = {path: _neutral(path, leaves[path]) for path in error.unfilled}
        is_one_sided = bool(error.unplaced) != bool(error.unfilled)
        if not is_one_sided or any(fill is None for fill in fills.values()):
            if given and mapping is None:
                return Placed(None, {}, (), ("weights are not compared: give mapping=",))
            raise
        rest = {path: leaf for path, leaf in leaves.items() if path not in fills}
        found = planned(rest, {**asked, **dict.fromkeys(error.unplaced)})
        made = [name for name in error.unplaced if _may_be_computed(name, evidence)]
        rest_of = [name for name in error.unplaced if name not in made]
        causes = [_missing(name) for name in rest_of] + [_extra(path) for path in fills]
        known = {path: fill for path, fill in fills.items() if fill is not None}
        told = tuple(f"{name}: a buffer, which the port has no place for" for name in made)
        return Placed(found, known, tuple(causes), told)


def _may_be_computed(name: str, evidence: Evidence) -> bool:
    """Say whether a port may compute a tensor: a table of positions, but no running statistics."""
    return name in evidence.buffers and not name.rpartition(".")[2].startswith("running_")


def _neutral(path: str, leaf: Any) -> np.ndarray | None:
    """Return what a bias or a scale changes nothing with."""
    name = path.rpartition("/")[2]
    if name not in ("bias", "b", "scale", "beta", "gamma"):
        return None
    return np.full(leaf.shape, float(name in ("scale", "gamma")), leaf.dtype)


def _missing(name: str) -> Cause:
    is_bias = "bias" in name.rpartition(".")[2]
    cause = "the port has no place for it" + (": it leaves out the bias" if is_bias else "")
    fix = "use_bias=True" if is_bias else f'mapping={{"{name}": ...}}, or None if that is meant'
    return Cause("bias-missing" if is_bias else "weight-unplaced", name, cause, fix)


def _extra(path: str) -> Cause:
    cause = f"the port has {path}, torch has nothing for it"
    return Cause("bias-extra", path, cause, "use_bias=False, or use_scale=False")
