"""Equinox: a module as a pure function of its arrays."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax

from parity.frameworks import jax_leaves
from parity.frameworks.jax_port import Port, attempt, modes, said, without_defaults


def equinox_port(
    module: Any,
    params: Any,
    places: tuple[Any, ...],
    named: Mapping[str, Any],
    *,
    training: bool,
) -> Port:
    """Return a module as a port, mapped over the leading axis if it takes single examples.

    Args:
      module: whose values count as an initialisation.
      params: a module or dict of the same structure, or None.
      places: inputs by position, which say whether it has to be mapped.
      named: inputs by name.
      training: whether dropout is on.

    Raises:
      ValueError: if `params` does not fit the module, or it can't take the inputs.
    """
    leaves, rebuild = jax_leaves.flatten(eqx.nn.inference_mode(module, value=not training))
    if params is not None:
        given = jax_leaves.flatten(params)[0]
        jax_leaves.require_same_paths(given, leaves, "params")
        leaves = {path: given[path] for path in leaves}
    parameters = inspect.signature(module.__call__).parameters
    found = modes(module.__call__, places, named, training=training)
    # None is Equinox's word for what the module itself says.
    switches = {name: on for name, on in found.items() if parameters[name].default is not None}
    passed: dict[str, Any] = without_defaults(module.__call__, switches)
    told = [f"eqx.nn.inference_mode(model, {not training})", *said(switches)]
    if "key" not in named and _draws(parameters.get("key"), training):
        passed["key"] = jax.random.key(0)
        told.append("dropout key 0")

    def direct(leaves: Mapping[str, Any], places: Any, named: Mapping[str, Any]) -> Any:
        return rebuild(leaves)(*places, **named, **passed)

    def mapped(leaves: Mapping[str, Any], places: Any, named: Mapping[str, Any]) -> Any:
        each = eqx.filter_vmap(lambda places, named: direct(leaves, places, named))
        return each(places, named)

    written, chosen = "model({})", direct
    if not _works(direct, leaves, places, named) and _works(mapped, leaves, places, named):
        written, chosen = "jax.vmap(model)({})", mapped
        told.append("called under jax.vmap over the leading axis")

    def call(leaves: Mapping[str, Any], *places: Any, **named: Any) -> tuple[Any, dict[str, Any]]:
        return attempt(written, lambda *p, **n: chosen(leaves, p, n), places, named), {}

    return Port("equinox", leaves, params is not None, call, tuple(told))


def _draws(key: inspect.Parameter | None, training: bool) -> bool:
    """Say whether a module is to be given a key: in training, or if it insists."""
    return key is not None and (training or key.default is key.empty)


def _works(call: Callable[..., Any], leaves: Any, places: Any, named: Any) -> bool:
    try:
        eqx.filter_eval_shape(call, leaves, places, named)
    except Exception:  # whatever the module raises; the call itself tells it
        return False
    return True
