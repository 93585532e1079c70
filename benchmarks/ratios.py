"""Time several functions in turn: on a noisy machine only ratios of neighbouring runs hold."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax


def alternate(
    functions: Mapping[str, Callable[[], Any]], *, over: str, rounds: int = 21
) -> dict[str, tuple[float, float]]:
    """Return the best milliseconds of each function, and its median ratio to one of them.

    Args:
      functions: by name; their JAX results are waited for.
      over: the name that the others are divided by.
      rounds: how often each is run, after two runs that are not counted.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    for round_number in range(rounds + 2):
        for name, function in functions.items():
            start = time.perf_counter()
            jax.block_until_ready(function())
            if round_number >= 2:
                times[name].append((time.perf_counter() - start) * 1e3)
    return {
        name: (
            min(values),
            statistics.median(a / b for a, b in zip(values, times[over], strict=True)),
        )
        for name, values in times.items()
    }


def show(title: str, measured: Mapping[str, tuple[float, float]]) -> None:
    """Print a line a function."""
    print(title)
    for name, (milliseconds, ratio) in measured.items():
        print(f"  {name:44s} {milliseconds:9.3f} ms   ratio {ratio:.2f}")
