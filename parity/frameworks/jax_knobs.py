"""JAX: which single switch explains that a port differs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np

from parity.frameworks import jax_run
from parity.frameworks.jax_port import Port
from parity.frameworks.jax_run import Inputs

Arrays = dict[str, np.ndarray]


def tried(
    port: Port,
    values: Mapping[str, np.ndarray],
    inputs: Inputs,
    error: Callable[[Mapping[str, np.ndarray]], float],
) -> dict[str, float]:
    """Return how far a port is off with one switch changed, by switch; NaN if it can't be run so.

    Args:
      port: as it is.
      values: of its leaves.
      inputs: what it is called with.
      error: of outputs, the greatest over its limit.
    """
    switches: dict[str, Callable[[], Arrays]] = {
        "no jit": lambda: jax_run.run(port, values, inputs, jit=False).outputs,
        "no scan, remat or inner jit": lambda: jax_run.values_of(port, values, inputs)[0],
        "matmul precision highest": lambda: _under(
            jax.default_matmul_precision("highest"), port, values, inputs
        ),
        "x64": lambda: _under(jax.enable_x64(True), port, values, inputs),
        "one example at a time": lambda: _one_by_one(port, values, inputs),
    }
    found = {}
    for name, outputs in switches.items():
        try:
            found[name] = error(outputs())
        except (TypeError, ValueError, jax.errors.JAXTypeError):
            found[name] = math.nan
    return found


def _under(
    context: AbstractContextManager[Any],
    port: Port,
    values: Mapping[str, np.ndarray],
    inputs: Inputs,
) -> Arrays:
    with context:
        return jax_run.run(port, values, inputs).outputs


def _one_by_one(port: Port, values: Mapping[str, np.ndarray], inputs: Inputs) -> Arrays:
    """Run a port on each example alone, and put the outputs together."""
    sizes = {x.shape[0] if x.ndim else 0 for x in (*inputs.places, *inputs.named.values())}
    if len(sizes) != 1 or (size := sizes.pop()) < 2:
        raise ValueError("there is no axis of examples")
    runs = []
    for row in range(size):
        one = jax.tree.map(lambda x, row=row: x[row : row + 1], (inputs.places, dict(inputs.named)))
        runs.append(jax_run.run(port, values, Inputs(*one)).outputs)
    return {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
