"""JAX: one view of anyone's port, and what all kinds of ports have in common."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

# By the names that Flax, Equinox and most models give them.
TRUE_IN_TRAINING = ("train", "training", "is_training")
FALSE_IN_TRAINING = ("deterministic", "use_running_average", "inference")


@dataclass(frozen=True, eq=False)
class Port:
    """A port of any framework, as a pure function of its leaves and inputs.

    Attributes:
      kind: "linen", "nnx", "equinox" or "function".
      leaves: parameters and other floating state by path, in order of creation where that is
        known. Parameters that linen only initialised abstractly are ShapeDtypeStructs.
      given: whether the caller gave the values of the leaves; else they are an initialisation.
      call: ``call(leaves, *places, **named)`` returns the outputs, and the leaves that training
        changed; it can be jitted and differentiated.
      told: what was set for the caller.
    """

    kind: str
    leaves: dict[str, Any]
    given: bool
    call: Callable[..., tuple[Any, dict[str, Any]]]
    told: tuple[str, ...]


def modes(
    function: Callable[..., Any],
    places: tuple[Any, ...],
    named: Mapping[str, Any],
    *,
    training: bool,
) -> dict[str, bool]:
    """Return the switches between training and inference that the caller left open.

    Args:
      function: whose signature has them; without a signature there are none.
      places: what it is given by position.
      named: what it is given by name.
      training: which mode.
    """
    try:
        signature = inspect.signature(function)
        taken = signature.bind_partial(*places, **named).arguments
    except (TypeError, ValueError):  # the call itself says what is wrong, if anything
        return {}
    values = dict.fromkeys(TRUE_IN_TRAINING, training)
    values |= dict.fromkeys(FALSE_IN_TRAINING, not training)
    return {
        name: values[name]
        for name, parameter in signature.parameters.items()
        if name in values and name not in taken and parameter.kind != parameter.POSITIONAL_ONLY
    }


def without_defaults(function: Callable[..., Any], switches: Mapping[str, bool]) -> dict[str, bool]:
    """Return the switches that are not at their defaults: `jax.jit` would trace one it is given.

    Args:
      function: whose switches they are.
      switches: see `modes`.
    """
    parameters = inspect.signature(function).parameters if switches else {}
    return {n: value for n, value in switches.items() if parameters[n].default is not value}


def said(switches: Mapping[str, bool]) -> tuple[str, ...]:
    """Say which switches were set: ``deterministic=True``."""
    return tuple(f"{name}={value}" for name, value in switches.items())


def floating(leaves: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters, and of the other state what is floating: counters stay.

    Args:
      leaves: all, by path.
      parameters: those among them that are trained.
    """
    return {
        path: leaf
        for path, leaf in leaves.items()
        if path in parameters or jnp.issubdtype(leaf.dtype, jnp.floating)
    }


def attempt(
    what: str, call: Callable[..., Any], places: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    """Call, and if that raises say which call it was.

    Args:
      what: how a message writes the call: ``module.apply(variables, {})``.
      call: is called with the inputs.
      places: inputs by position.
      named: inputs by name.

    Raises:
      ValueError: from what the call raised.
    """
    try:
        return call(*places, **named)
    except Exception as error:
        shown = [_shown(value) for value in places]
        shown += [f"{name}={_shown(value)}" for name, value in named.items()]
        first = next(iter(str(error).strip().splitlines()), "").rstrip(".")
        raise ValueError(
            f"`{what.format(', '.join(shown))}` raised {type(error).__name__}: {first}. "
            "Check that `inputs` have the order, shapes and dtypes that `port` takes."
        ) from error


def _shown(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, bool | int | float | str | None):
        return repr(value)
    shapes = ", ".join(_shown(leaf) for leaf in jax.tree.leaves(value) if leaf is not value)
    return f"{type(value).__name__}({shapes})"
