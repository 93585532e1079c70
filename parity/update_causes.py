"""Which mistake explains running statistics that are off after a run in training mode."""

from __future__ import annotations

import numpy as np

from parity.cause import Cause

_MOMENTA = (0.1, 0.01, 0.001, 0.05, 0.2, 0.3, 0.5)
_CLOSE = 1e-3


def update_cause(
    name: str, before: np.ndarray, ours: np.ndarray, theirs: np.ndarray, momentum: float | None
) -> Cause | None:
    """Name what is wrong with a statistic after one run.

    Args:
      name: of the buffer.
      before: what it was.
      ours: what the port made of it.
      theirs: what the reference did.
      momentum: of the reference; None if it is not known, or counts all runs alike.
    """
    if np.array_equal(ours, before.astype(ours.dtype)):
        cause = "the port does not update it"
        fix = 'mutable=["batch_stats"], and put the result back'
        return Cause("statistics-fixed", name, cause, fix)
    moved, should = ours - before, theirs - before
    power = float(np.sum(should**2))
    share = float(np.sum(moved * should)) / power if power else 0.0
    if not share or np.abs(moved - share * should).max() > _CLOSE * np.abs(moved).max():
        return None
    if abs(share - 1) < _CLOSE:
        return None
    if momentum is None:
        cause = f"the port moves it by {share:.4g} times what torch does"
        return Cause("momentum", name, cause, "momentum in Flax is 1 - momentum in torch")
    cause = (
        f"the port keeps {1 - share * momentum:.4g} of it, torch {1 - momentum:.4g}: momentum is "
        "what is kept in Flax, and what is new in torch"
    )
    return Cause("momentum", name, cause, f"nn.BatchNorm(momentum={1 - momentum:.4g})")


def biased_variance(
    before: np.ndarray, ours: np.ndarray, theirs: np.ndarray, runs: int = 1
) -> bool:
    """Say whether a running variance is that of n where torch has n - 1, all else alike.

    That is so if for one momentum and one n ``ours - kept * before`` is (n - 1) / n times
    ``theirs - kept * before`` in all channels.

    Args:
      before: what it was.
      ours: what the port made of it.
      theirs: what the reference did.
      runs: how many there were: before the first all is kept.
    """
    for momentum in _MOMENTA:
        kept = (1 - momentum) ** runs
        mine, yours = ours - kept * before, theirs - kept * before
        if not (yours > 0).all():
            continue
        ratio = float(np.median(mine / yours))
        if not 0 < ratio < 1 or np.abs(mine - ratio * yours).max() > _CLOSE * yours.max():
            continue
        count = 1 / (1 - ratio)
        if abs(count - round(count)) < 0.02 * count and round(count) > 1:
            return True
    return False
