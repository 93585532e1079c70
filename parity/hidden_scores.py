"""Scores that a mask hides: -1e4, -1e9, the least of a format or -inf all mean the same."""

import numpy as np

# Below this a score may be one that is hidden; then it is this.
_LOW = -1e3
# How much lower than all others, at least.
_GAP = 10


def hidden(values: np.ndarray) -> np.ndarray:
    """Say which values a mask hides: they are far below all others."""
    low = values < _LOW
    if not low.any() or low.all():
        return np.zeros_like(low)
    least = float(values[~low].min(initial=0.0))
    return low & (values[low].max() < _GAP * least)


def level(values: np.ndarray) -> np.ndarray:
    """Return values with those that a mask hides, however low they are, at one number.

    Otherwise the lowest would say how far off the others may be, and no two frameworks would hold
    the same scores.
    """
    return np.where(found, _LOW, values) if (found := hidden(values)).any() else values
