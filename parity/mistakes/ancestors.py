"""PyTorch: what a call's arguments were computed from."""

from __future__ import annotations

from collections.abc import Iterator

from parity.frameworks.torch_calls import Call, Result

_FAR = 24  # about a rotation; attention has some thirty steps


def ancestors(call: Call, far: int = _FAR) -> Iterator[Result]:
    """Yield up to so many results that went into a call, the nearest first."""
    queue, seen = [*call.sources], set[str]()
    while queue and len(seen) < far:
        key = queue.pop(0)
        if key in seen or key not in call.results:
            continue
        seen.add(key)
        yield call.results[key]
        queue.extend(call.results[key].call.sources)
