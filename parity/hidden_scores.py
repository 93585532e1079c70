"""Scores that a mask hides: -1e4, -1e9, the least of a format or -inf all mean the same."""

import numpy as np

# What is hidden is this.
_LOW = -1e3
# Below this a score may be one that is hidden: no mask in use has a smaller number than 1e4, and
# activations of large models reach 1e3.
_LOWEST = -5e3
# How much lower than all others, at least.
_GAP = 10
# What a half format rounds such a number by, as a part of it.
_ROUNDED = 1e-2


# As often as the greatest number goes into the lowest, what the others scatter by may be too much.
@np.errstate(over="ignore")
def hidden(values: np.ndarray) -> np.ndarray:
    """Say which values a mask hides: far below all others, and all by one number, or by some."""
    low = values < _LOWEST
    if not low.any() or low.all():
        return np.zeros_like(low)
    others, found = values[~low], values[low & np.isfinite(values)]
    least, top = float(others.min(initial=0.0)), float(values[low].max())
    # Two masks that are added hide by twice as much; whatever is outside of a mask scatters.
    times = np.round(found / top)
    spread = float(others.max()) - float(others.min())
    is_one = np.abs(found - times * top) <= times * spread + _ROUNDED * np.abs(found)
    return low & (top < _GAP * least) & bool(is_one.all())


def level(values: np.ndarray) -> np.ndarray:
    """Return values with those that a mask hides, however low they are, at one number.

    Otherwise the lowest would say how far off the others may be, and no two frameworks would hold
    the same scores.
    """
    return np.where(found, _LOW, values) if (found := hidden(values)).any() else values
