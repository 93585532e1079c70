"""JAX: one run of a port: outputs, gradients, what training changed, and all that it computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from parity.frameworks import jax_trace
from parity.frameworks.jax_port import Port
from parity.frameworks.jax_side import from_numpy, to_numpy
from parity.frameworks.jax_trace import Value
from parity.trees import leaves

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class PortRun:
    """What a port gave.

    Attributes:
      outputs: by path.
      gradients: by leaf, and ``inputs/...``; {} if none were asked for.
      changed: leaves that training changed.
    """

    outputs: Arrays
    gradients: Arrays
    changed: Arrays


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a port is called with, by place and by name."""

    places: tuple[Any, ...]
    named: Mapping[str, Any]


def inputs_of(arrays: Mapping[str, np.ndarray]) -> Inputs:
    """Return arrays by name or place on the device; integers in 32 bits where x64 is off.

    Raises:
      ValueError: if an integer does not fit 32 bits.
    """
    given = {name: from_numpy(_fitting(name, array)) for name, array in arrays.items()}
    places = tuple(given[name] for name in sorted(filter(str.isdigit, given), key=int))
    return Inputs(places, {n: x for n, x in given.items() if not n.isdigit()})


def _fitting(name: str, array: np.ndarray) -> np.ndarray:
    kept = jax.dtypes.canonicalize_dtype(array.dtype)
    if kept == array.dtype or array.dtype.kind not in "iu":
        return array
    if not np.array_equal(array.astype(kept), array):
        raise ValueError(
            f"`inputs` {name} has integers beyond {kept.name}, to which JAX cuts them. Give "
            "smaller ones, or call this under `with jax.enable_x64(True)`."
        )
    return array.astype(kept)


def x64(is_wide: bool) -> AbstractContextManager[Any]:
    """Let JAX have float64 inside, where the reference has."""
    return jax.enable_x64(True) if is_wide else nullcontext()


def run(
    port: Port,
    values: Mapping[str, np.ndarray],
    inputs: Inputs,
    cotangents: Callable[[Mapping[str, Any]], Mapping[str, np.ndarray]] | None = None,
    *,
    jit: bool = True,
) -> PortRun:
    """Run a port once, forward and backward in one program.

    Args:
      port: see `parity.frameworks.jax_ports.port_of`.
      values: of its leaves.
      inputs: what it is called with.
      cotangents: makes those of the outputs, by path, from their shapes; None for no gradients.
      jit: whether it is compiled.
    """
    given = {path: from_numpy(array) for path, array in values.items()}
    every = _all(inputs)
    sources = {n: x for n, x in given.items() if _is_real(x)}
    sources |= {f"inputs/{n}": x for n, x in every.items() if _is_real(x)}

    def forward(sources: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        leaves_now = {path: sources.get(path, value) for path, value in given.items()}
        places = [sources.get(f"inputs/{k}", x) for k, x in enumerate(inputs.places)]
        named = {n: sources.get(f"inputs/{n}", x) for n, x in inputs.named.items()}
        outputs, changed = port.call(leaves_now, *places, **named)
        return {n: jnp.asarray(x) for n, x in leaves_of(outputs)}, changed

    weights = cotangents(jax.eval_shape(forward, sources)[0]) if cotangents is not None else {}

    def backward(sources: dict[str, Any]) -> Any:
        def loss(sources: dict[str, Any]) -> Any:
            outputs, changed = forward(sources)
            terms = [
                (outputs[n] * jnp.asarray(w, outputs[n].dtype)).sum() for n, w in weights.items()
            ]
            return sum(term.astype(terms[0].dtype) for term in terms), (outputs, changed)

        return jax.grad(loss, has_aux=True)(sources)

    if weights and sources:
        found, (outputs, changed) = (jax.jit(backward) if jit else backward)(sources)
    else:
        found, (outputs, changed) = {}, (jax.jit(forward) if jit else forward)(sources)
    return PortRun(_told(outputs), _told(found), _told(changed))


def _told(values: Mapping[str, Any]) -> Arrays:
    return {name: to_numpy(value) for name, value in values.items()}


def undrawn(port: Port, values: Mapping[str, np.ndarray], inputs: Inputs) -> tuple[Port, list[int]]:
    """Return a port whose dropout keeps everything, and for how many values each draw is."""
    draws: list[int] = []
    quiet = replace(port, call=jax_trace.undrawn(port.call, draws))
    jax.eval_shape(_forward(quiet), *_arguments(values, inputs))
    return quiet, draws


def values_of(
    port: Port,
    values: Mapping[str, np.ndarray],
    inputs: Inputs,
    forced: Mapping[int, np.ndarray] | None = None,
) -> tuple[Arrays, tuple[Value, ...]]:
    """Return the outputs of a port, step by step, and all that it computed.

    Args:
      port: see `run`.
      values: of its leaves.
      inputs: what it is called with.
      forced: see `parity.frameworks.jax_trace.trace`.
    """
    found = jax_trace.trace(_forward(port), *_arguments(values, inputs), forced=forced)
    return _told({n: jnp.asarray(x) for n, x in leaves_of(found.outputs)}), found.values


def gradients_at(
    port: Port,
    values: Mapping[str, np.ndarray],
    inputs: Inputs,
    cotangents: Mapping[str, np.ndarray],
    places: Sequence[int],
) -> dict[int, np.ndarray]:
    """Return the gradients with respect to some of the values that a port computes, by place."""
    forward = _forward(port)

    def loss(*arguments: Any) -> Any:
        outputs = dict(leaves_of(forward(*arguments)))
        terms = [
            (outputs[n] * jnp.asarray(w, outputs[n].dtype)).sum() for n, w in cotangents.items()
        ]
        return sum(term.astype(terms[0].dtype) for term in terms)

    return jax_trace.gradients(loss, *_arguments(values, inputs), places=places)


def _forward(port: Port) -> Callable[..., Any]:
    return lambda leaves, places, named: port.call(leaves, *places, **named)[0]


def _arguments(values: Mapping[str, np.ndarray], inputs: Inputs) -> tuple[Any, ...]:
    given = {path: from_numpy(array) for path, array in values.items()}
    return given, inputs.places, dict(inputs.named)


def leaves_of(outputs: Any) -> list[tuple[str, Any]]:
    """Return the outputs by path; a single one is "output"."""
    return [(path or "output", leaf) for path, leaf in leaves(outputs)]


def _all(inputs: Inputs) -> dict[str, Any]:
    return {str(k): x for k, x in enumerate(inputs.places)} | dict(inputs.named)


def _is_real(value: Any) -> bool:
    return bool(jnp.issubdtype(value.dtype, jnp.floating))
