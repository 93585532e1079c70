"""JAX: every value that a port computes, without a change of its code.

The port is traced to a jaxpr, which is evaluated equation by equation inside one program that
returns all of them. Functions under jit and remat are followed, scans are unrolled; what has a
derivative of its own is one step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from parity.frameworks.jax_equations import evaluated, joined
from parity.frameworks.jax_side import to_numpy

_FRAMEWORKS = ("jax", "jaxlib", "flax", "equinox", "optax", "jaxtyping", "parity")


@dataclass(frozen=True, eq=False)
class Value:
    """One floating value that a port computed.

    Attributes:
      name: modules and primitive: "Dense_0/dot_general".
      line: of the port's own code, "model.py:14"; "" if it can't be told.
      value: of the dtype it had.
    """

    name: str
    line: str
    value: np.ndarray


@dataclass(frozen=True, eq=False)
class Trace:
    """What a port returned, and all that it computed, in order."""

    outputs: Any
    values: tuple[Value, ...]


def trace(
    function: Callable[..., Any], *arguments: Any, forced: Mapping[int, np.ndarray] | None = None
) -> Trace:
    """Run a function once, and return all that it computes.

    Args:
      function: what JAX can trace.
      arguments: trees of arrays.
      forced: values to put in the place of some, by their place among all.
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    seen: list[tuple[str, str]] = []

    def run(*flat: Any) -> tuple[list[Any], list[Any]]:
        seen.clear()
        values: list[Any] = []

        def see(eqn: Any, stack: str, results: Sequence[Any]) -> list[Any]:
            kept = []
            for result in results:
                if _is_real(result):
                    other = (forced or {}).get(len(values))
                    if other is not None:
                        result = jax.numpy.asarray(other.reshape(result.shape), result.dtype)
                    seen.append((_name(eqn, stack), _line(eqn)))
                    values.append(result)
                kept.append(result)
            return kept

        return evaluated(closed.jaxpr, closed.consts, flat, see, ""), values

    outputs, values = _compiled(run)(*jax.tree.leaves(arguments))
    told = zip(seen, values, strict=True)
    return Trace(
        jax.tree.unflatten(jax.tree.structure(shape), outputs),
        tuple(Value(name, line, to_numpy(value)) for (name, line), value in told),
    )


def gradients(
    loss: Callable[..., Any], *arguments: Any, places: Sequence[int]
) -> dict[int, np.ndarray]:
    """Return the gradients of a loss with respect to values on the way to it.

    Args:
      loss: what JAX can trace, to a scalar.
      arguments: trees of arrays.
      places: of the values among all, as `trace` counts them.
    """
    closed = jax.make_jaxpr(loss)(*arguments)
    flat = jax.tree.leaves(arguments)
    shapes: dict[int, Any] = {}

    def run(nudges: Mapping[int, Any]) -> Any:
        count = 0

        def see(eqn: Any, stack: str, results: Sequence[Any]) -> list[Any]:
            nonlocal count
            kept = []
            for result in results:
                if _is_real(result):
                    if count in places:
                        shapes[count] = jax.ShapeDtypeStruct(result.shape, result.dtype)
                    result = result + nudges[count] if count in nudges else result
                    count += 1
                kept.append(result)
            return kept

        return evaluated(closed.jaxpr, closed.consts, flat, see, "")[0]

    jax.eval_shape(run, {})
    zeros = {place: np.zeros(x.shape, x.dtype) for place, x in shapes.items()}
    found = _compiled(jax.grad(run))(zeros)
    return {place: to_numpy(gradient) for place, gradient in found.items()}


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile in half the time what runs once; other backends need not have the option."""
    on_cpu = jax.default_backend() == "cpu"
    return jax.jit(
        function, compiler_options={"xla_backend_optimization_level": 0} if on_cpu else None
    )


def undrawn(function: Callable[..., Any], draws: list[int]) -> Callable[..., Any]:
    """Return a function whose dropout keeps everything: each draw is of zeros.

    Args:
      function: what JAX can trace.
      draws: how many values each draw is for, filled when the result is traced.
    """

    def run(*places: Any, **named: Any) -> Any:
        traced = jax.make_jaxpr(lambda places, named: function(*places, **named), return_shape=True)
        closed, shape = traced(places, named)
        draws.clear()

        def see(eqn: Any, stack: str, results: Sequence[Any]) -> list[Any]:
            if eqn.primitive.name != "random_bits":
                return list(results)
            draws.extend(result.size for result in results)
            return [jax.numpy.zeros_like(result) for result in results]

        flat = jax.tree.leaves((places, named))
        outputs = evaluated(closed.jaxpr, closed.consts, flat, see, "")
        return jax.tree.unflatten(jax.tree.structure(shape), outputs)

    return run


def _is_real(value: Any) -> bool:
    return hasattr(value, "dtype") and bool(jax.numpy.issubdtype(value.dtype, jax.numpy.floating))


def _name(eqn: Any, stack: str) -> str:
    return "/".join(part for part in (joined(stack, eqn), eqn.primitive.name) if part)


def _line(eqn: Any) -> str:
    """Return the line of the port's own code, which is in no framework."""
    traceback = eqn.source_info.traceback
    theirs = tuple(_folders())
    for frame in traceback.frames if traceback is not None else ():
        if not frame.file_name.startswith(("<", *theirs)):
            return f"{Path(frame.file_name).name}:{frame.line_num}"
    return ""


def _folders() -> Iterator[str]:
    """Yield the folders of the frameworks that are loaded."""
    for name in _FRAMEWORKS:
        if file := getattr(sys.modules.get(name), "__file__", None):
            yield f"{Path(file).parent}/"
