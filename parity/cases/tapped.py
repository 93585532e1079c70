"""Run a function that returns its steps beside its output, on either side, with its gradients."""

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from parity.case import Arrays
from parity.cases.encoder_problem import Problem
from parity.cases.sides import COTANGENT, torch
from parity.frameworks import jax_side

Function = Callable[..., tuple[Any, Mapping[str, Any]]]
Side = Callable[[Arrays], dict[str, np.ndarray]]


def on_jax(function: Function, *, jit: bool = True) -> Side:
    """Return what calls a JAX function of keyword arrays.

    Args:
      function: takes arrays by keyword, and returns an output and further arrays by name.
      jit: whether it is compiled.

    Returns:
      Of the arrays by name: "output", the others, and where "cotangent" is among the arrays, the
      gradient of every other floating one as ``gradient/<array>``.
    """

    def call(fixed: Any, real: Any, cotangent: Any) -> dict[str, Any]:
        if cotangent is None:
            output, taps = function(**fixed, **real)
            return {"output": output, **taps}
        output, pull_back, taps = jax.vjp(
            lambda variables: function(**fixed, **variables), real, has_aux=True
        )
        (slopes,) = pull_back(cotangent)
        named = {f"gradient/{name}": slope for name, slope in slopes.items()}
        return {"output": output, **taps, **named}

    program = jax.jit(call) if jit else call
    lock = Lock()  # cases that share a program are run at the same time, and would compile it twice

    def run(arrays: Arrays) -> dict[str, np.ndarray]:
        fixed = {key: jax_side.from_numpy(array) for key, array in arrays.items()}
        cotangent = fixed.pop(COTANGENT, None)
        floats = [key for key, value in fixed.items() if jnp.issubdtype(value.dtype, jnp.floating)]
        real = {key: fixed.pop(key) for key in floats}
        with lock:
            results = program(fixed, real, cotangent)
        return {key: jax_side.to_numpy(value) for key, value in results.items()}

    return run


def on_torch(function: Function) -> Side:
    """Return what calls a PyTorch function, as ``on_jax`` does the other side's."""

    def run(arrays: Arrays) -> dict[str, np.ndarray]:
        from parity.frameworks import torch_side

        fixed = {key: torch_side.from_numpy(array) for key, array in arrays.items()}
        cotangent = fixed.pop(COTANGENT, None)
        real = {key: value for key, value in fixed.items() if value.is_floating_point()}
        for value in real.values():
            value.requires_grad_(cotangent is not None)
        output, taps = function(**fixed)
        results = {"output": output, **taps}
        if cotangent is not None:
            slopes = torch.autograd.grad(output, list(real.values()), cotangent)
            results |= {f"gradient/{key}": slope for key, slope in zip(real, slopes, strict=True)}
        return {key: torch_side.to_numpy(value) for key, value in results.items()}

    return run


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
