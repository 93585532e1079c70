"""What an encoder returns beside its output, told by layer."""

from collections.abc import Callable, Mapping

import numpy as np

from parity.case import Arrays
from parity.cases.encoder_problem import Problem

Side = Callable[[Arrays], dict[str, np.ndarray]]


def told(problem: Problem, side: Side) -> Side:
    """Return what tells taps and gradients of a side by layer, as `Problem.told` does."""

    def run(arrays: Arrays) -> dict[str, np.ndarray]:
        results = side(arrays)
        slopes = results.pop("gradient/parameters", None)
        if problem.part == "encoder":
            results = _by_layer(problem, results)
        if slopes is None:
            return results
        named = {f"gradient/{name}": array for name, array in problem.told(slopes).items()}
        return results | named

    return run


def _by_layer(problem: Problem, results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    named = {}
    for name, array in results.items():
        if name in ("output", "final_norm") or name.startswith("gradient/"):
            named[name] = array
        else:
            named |= {f"layer.{index}/{name}": array[index] for index in range(problem.layers)}
    return named
