"""JAX: a port with what it is called with, and held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.check_report import Compared
from parity.evidence import Evidence
from parity.formats import is_floating, widen
from parity.frameworks import jax_run
from parity.frameworks.jax_port import Port
from parity.frameworks.jax_run import Inputs, PortRun
from parity.pairing import Paired, paired

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Held:
    """A port, what it is called with, and what it is held against.

    Attributes:
      port: under test.
      shapes: leaves as the port wants them, by path; what it was given may have others.
      inputs: what it is called with.
      evidence: of its reference.
      layouts: orders of axes in which its inputs differ from the reference's.
      tolerance: the caller's, in place of the limits.
      grad: whether gradients are compared.
    """

    port: Port
    shapes: Mapping[str, Any]
    inputs: Inputs
    evidence: Evidence
    layouts: tuple[tuple[int, ...], ...]
    tolerance: tuple[float, float] | None
    grad: bool

    def run(self, values: Mapping[str, np.ndarray], **options: Any) -> PortRun:
        """Run the port on values of its leaves."""
        weights = self.cotangents if self.grad else None
        return jax_run.run(self.port, values, self.inputs, weights, **options)

    def cotangents(self, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the cotangents of the reference, in the order of axes of the port."""
        found = {}
        for pair in self.pairs(outputs)[0]:
            weight = self.evidence.cotangents.get(pair.reference)
            if weight is not None and pair.axes is not None:
                found[pair.port] = (
                    weight.transpose(np.argsort(pair.axes)) if weight.ndim else weight
                )
        return found

    def pairs(self, outputs: Mapping[str, np.ndarray]) -> tuple[list[Paired], tuple[str, ...]]:
        """Pair the outputs with those of the reference."""
        return paired(outputs, self.evidence.outputs, self.layouts)

    def turned(self, outputs: Mapping[str, np.ndarray]) -> Arrays:
        """Return the outputs that have a partner, by its name and with its order of axes."""
        return {
            pair.reference: widen(outputs[pair.port].transpose(pair.axes))
            for pair in self.pairs(outputs)[0]
            if pair.axes is not None and is_floating(outputs[pair.port].dtype)
        }

    def rows(self, outputs: Mapping[str, np.ndarray]) -> tuple[Compared, ...]:
        """Compare the outputs."""
        return tuple(self._row(pair, outputs[pair.port]) for pair in self.pairs(outputs)[0])

    def zeros(self) -> tuple[str, ...]:
        """Say which outputs are zero in the reference: much that is wrong gives zeros too."""
        outputs = self.evidence.outputs.items()
        return tuple(f"{name} is zero everywhere" for name, x in outputs if x.size and not x.any())

    def ends(self, outputs: Mapping[str, np.ndarray]) -> dict[str, bool]:
        """Say of the steps that are outputs whether the port returns them."""
        rows = {row.name: row.passed for row in self.rows(outputs)}
        ends = self.evidence.ends
        return {ends[name]: passed for name, passed in rows.items() if ends.get(name)}

    def used(self, outputs: Mapping[str, np.ndarray]) -> float:
        """Return the greatest error over its limit."""
        return max((row.used for row in self.rows(outputs)), default=0.0)

    def _row(self, pair: Paired, ours: np.ndarray) -> Compared:
        name, theirs = pair.reference, self.evidence.outputs[pair.reference]
        words = ""
        dtype = self.evidence.dtypes[name]
        if not theirs.size:
            words = "is empty: nothing is compared"
        elif pair.axes is None:
            words = f"shape {list(ours.shape)}, torch has {list(theirs.shape)}"
        elif ours.dtype.name != dtype and not _both_whole(ours.dtype, np.dtype(theirs.dtype)):
            words = f"dtype {ours.dtype.name}, torch has {dtype}"
        if words:
            return Compared(name, float("inf"), 0.0, 0.0, words)
        return self.compared(f"outputs/{name}", name, ours.transpose(pair.axes), theirs)

    def compared(self, key: str, name: str, ours: np.ndarray, theirs: np.ndarray) -> Compared:
        """Compare two arrays of one shape under the limit of a key."""
        if not is_floating(ours.dtype):
            wrong = int(np.sum(ours != theirs))
            words = f"{wrong} of {theirs.size} integers differ" if wrong else ""
            return Compared(name, float(wrong > 0), 0.0, 0.0, words)
        mine = widen(ours)
        with np.errstate(invalid="ignore"):
            apart = np.where(mine == theirs, 0.0, np.abs(mine - theirs))
        both = int((np.isnan(mine) & np.isnan(theirs)).sum())
        one = int(np.isnan(apart).sum()) - both
        words = f"{one} of {apart.size} values are NaN on one side" if one else ""
        if both and not one:
            words = f"{both} of {apart.size} values are NaN on both sides: they say nothing"
        error, limit = float(np.nanmax(apart, initial=0.0)), self.evidence.limits.get(key, 0.0)
        if self.tolerance is not None:
            atol, rtol = self.tolerance
            limit = atol + rtol * float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0))
        return Compared(name, error, limit, self.evidence.errors.get(key, 0.0), words)


def _both_whole(ours: np.dtype, theirs: np.dtype) -> bool:
    return ours.kind in "iub" and theirs.kind in "iub"
