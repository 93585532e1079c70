"""JAX: modules of linen, nnx and Equinox, and plain functions, all as one kind of port."""

import inspect
from collections.abc import Mapping
from typing import Any

from parity.frameworks import jax_leaves
from parity.frameworks.jax_port import Port, attempt, modes, said, without_defaults


def port_of(
    port: Any,
    params: Any,
    places: tuple[Any, ...],
    named: Mapping[str, Any],
    *,
    training: bool,
) -> Port:
    """Return anyone's port as a pure function of its leaves and inputs.

    Args:
      port: a module of linen, nnx or Equinox, or a function ``port(params, *inputs)``. It is left
        as it is. Frameworks are recognised only where they are loaded.
      params: its parameters, in any structure that the framework has; None for those of the
        module, or for a function without.
      places: the inputs by position.
      named: the inputs by name; a switch of the mode among them is left as it is.
      training: which mode the switches are set to that were not given.

    Raises:
      TypeError: if `port` is a class, or nothing that can be called.
      ValueError: if `params` does not fit, or the port can't take the inputs.
    """
    if inspect.isclass(port):
        name = port.__name__
        raise TypeError(f"`port` is the class {name}. Give an instance: {name}(...).")
    _require_callable(port)
    if jax_leaves.is_a(port, "flax.linen", "Module"):
        from parity.frameworks.linen_port import linen_port

        return linen_port(port, params, places, named, training=training)
    if jax_leaves.is_a(port, "flax.nnx", "Module"):
        from parity.frameworks.nnx_port import nnx_port

        return nnx_port(port, params, places, named, training=training)
    # A function that Equinox has wrapped is a module too, of no arrays.
    if jax_leaves.is_a(port, "equinox", "Module") and (
        params is None or jax_leaves.flatten(port)[0]
    ):
        from parity.frameworks.equinox_port import equinox_port

        return equinox_port(port, params, places, named, training=training)
    return _function_port(port, params, places, named, training)


def _require_callable(port: Any) -> None:
    if jax_leaves.is_a(port, "torch.nn", "Module"):
        raise TypeError(
            f"`port` must be written in JAX, got the PyTorch module {type(port).__name__}. "
            "It may be the `reference`."
        )
    if not callable(port):
        raise TypeError(
            "`port` must be a module of linen, nnx or Equinox that has a `__call__`, or a function "
            f"of JAX arrays; got {type(port).__name__}."
        )


def _function_port(
    port: Any,
    params: Any,
    places: tuple[Any, ...],
    named: Mapping[str, Any],
    training: bool,
) -> Port:
    leaves, rebuild = jax_leaves.flatten(params)
    first = () if params is None else (params,)
    switches = modes(port, (*first, *places), named, training=training)
    passed = without_defaults(port, switches)
    written = "port({})" if params is None else "port(params, {})"

    def call(leaves: Mapping[str, Any], *places: Any, **named: Any) -> tuple[Any, dict[str, Any]]:
        tree = rebuild(leaves)
        before = () if params is None else (tree,)
        return attempt(written, lambda *p, **n: port(*before, *p, **n, **passed), places, named), {}

    return Port("function", leaves, params is not None, call, said(switches))
