"""Which mistake explains a gradient that is off where the outputs agree."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from parity.cause import Cause

# What a factor may leave over, of the error that it explains.
_LEFT_OVER = 0.01
# A factor this near to one is none.
_ALIKE = 1e-3


def gradient_causes(
    ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], off: Mapping[str, float]
) -> list[Cause]:
    """Name what is wrong with gradients.

    Args:
      ours: of the port, by weight.
      theirs: of the reference.
      off: the limit of each that is off.
    """
    causes = [_named(name, ours[name], theirs[name], limit) for name, limit in off.items()]
    return [cause for cause in causes if cause is not None]


def _named(name: str, ours: np.ndarray, theirs: np.ndarray, limit: float) -> Cause | None:
    if not ours.any() and theirs.any():
        cause = "no gradient reaches it in the port"
        fix = "leave out jax.lax.stop_gradient, and use the parameter itself"
        return Cause("stop-gradient", name, cause, fix)
    if theirs.ndim == 2:
        rows = np.flatnonzero(~theirs.any(-1) & (np.abs(ours) > limit).any(-1))
        if len(rows) == 1:
            cause = f"row {rows[0]} has a gradient in the port; torch has a padding row there"
            fix = f"padding_idx={rows[0]}: no gradient goes into that row"
            return Cause("padding-row", name, cause, fix)
        rows = np.flatnonzero((np.abs(ours - theirs) > limit).any(-1))
        if len(rows) == 1 and not ours[rows[0]].any():
            cause = f"row {rows[0]} has no gradient in the port, as a padding row; torch has one"
            return Cause("padding-row", name, cause, "leave out padding_idx")
    power = float(np.sum(theirs**2))
    factor = float(np.sum(ours * theirs)) / power if power else 0.0
    left = float(np.abs(ours - factor * theirs).max(initial=0.0))
    if (
        factor
        and abs(factor - 1) > _ALIKE
        and left <= max(limit, _LEFT_OVER * float(np.abs(ours - theirs).max()))
    ):
        cause = f"the gradient is {factor:.4g} times that of torch"
        return Cause("gradient-scale", name, cause, "sum over the batch, or mean, as torch does")
    return None
