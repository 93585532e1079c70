"""Flax linen: a module as a pure function of its variables."""

from collections.abc import Callable, Mapping
from typing import Any

import flax
import jax
from flax import linen as nn

from parity.frameworks import jax_leaves
from parity.frameworks.jax_port import Port, attempt, floating, modes, said, without_defaults


def linen_port(
    module: nn.Module,
    params: Any,
    places: tuple[Any, ...],
    named: Mapping[str, Any],
    *,
    training: bool,
) -> Port:
    """Return a module as a port.

    Args:
      module: unbound.
      params: variables, the parameters alone or None. Collections that are not given, other than
        the parameters, take their values from an initialisation.
      places: inputs by position, which say how to initialise.
      named: inputs by name.
      training: whether dropout is on and statistics change.

    Raises:
      TypeError: if `params` is no dict.
      ValueError: if it does not fit the module, or the module can't take the inputs.
    """
    found = modes(module.__call__, places, named, training=training)
    # Where it has a field of that name, the module may refuse to be told twice.
    switches = {name: on for name, on in found.items() if vars(module).get(name) is None}
    passed: dict[str, Any] = without_defaults(module.__call__, switches)
    variables, order = _variables(module, params, places, named, passed)
    flat, rebuild = jax_leaves.flatten(variables)
    jax_leaves.require_same_paths(flat, order, "params")
    parameters = jax_leaves.flatten(variables.get("params", {}))[0]
    leaves = floating({path: flat[path] for path in order}, parameters)
    kept = {path: leaf for path, leaf in flat.items() if path not in leaves}
    state = [name for name in variables if name != "params"] if training else []
    rngs = _rngs(jax.random.key(0))

    def call(leaves: Mapping[str, Any], *places: Any, **named: Any) -> tuple[Any, dict[str, Any]]:
        given = rebuild({**kept, **leaves})

        def apply(keys: Mapping[str, Any], *places: Any, **named: Any) -> Any:
            options = {**named, **passed, "rngs": keys}
            try:
                return module.apply(given, *places, **options, mutable=state)
            except flax.errors.ModifyScopeVariableError:
                # It updates statistics though it is not trained: what it computes is seen so.
                every = [name for name in variables if name != "params"]
                return module.apply(given, *places, **options, mutable=every)[0], {}

        def drawn(*places: Any, **named: Any) -> Any:
            # A module may go by whether it has a key; one that draws all the same in eval mode is
            # to be seen, not to raise.
            try:
                return apply(rngs if training else {}, *places, **named)
            except flax.errors.InvalidRngError:
                return apply(rngs, *places, **named)

        outputs, updated = attempt("module.apply(variables, {})", drawn, places, named)
        after = jax_leaves.flatten({**given, **updated})[0]
        own = [path for path in leaves if path not in parameters]
        return outputs, {path: after[path] for path in own if after[path] is not leaves[path]}

    told = (*said(switches), "dropout key 0") if training else said(switches)
    return Port("linen", leaves, params is not None, call, told)


def _variables(
    module: nn.Module,
    params: Any,
    places: tuple[Any, ...],
    named: Mapping[str, Any],
    passed: Mapping[str, Any],
) -> tuple[dict[str, Any], list[str]]:
    """Return all collections, and the paths of their leaves in the order of creation."""
    order: list[str] = []

    def init(key: Any) -> dict[str, Any]:
        variables = module.init(_rngs(key), *places, **named, **passed)
        order[:] = jax_leaves.flatten(variables)[0]  # here: what JAX returns is sorted
        return dict(variables)

    key = jax.random.key(0)
    try:
        shaped = _closed(jax.eval_shape, init, key)
        abstract = attempt("module.init(key, {})", shaped, places, named)
    except ValueError:
        if params is None:
            raise
        # Another format than float32 it may only take where it is given its parameters.
        given = _collections(params, {"params": {}})
        return given, [*jax_leaves.flatten(given)[0]]
    given = _collections(params, abstract)
    missing = [name for name in abstract if name != "params" and name not in given]
    # In one program, from which XLA drops the parameters.
    made = jax.jit(lambda key: {n: init(key)[n] for n in missing})(key) if missing else {}
    return {**abstract, **made, **given}, order


def _closed(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    return lambda *places, **named: function(*arguments)


def _rngs(key: Any) -> dict[str, Any]:
    # A stream that is not there is drawn from "params".
    return {"params": key, "dropout": key}


def _collections(params: Any, abstract: Mapping[str, Any]) -> dict[str, Any]:
    if params is None:
        return {}
    if not isinstance(params, Mapping):
        raise TypeError(
            "`params` must be the variables of linen or the dict of its parameters, "
            f"got {type(params).__name__}."
        )
    whole = "params" in params or set(params) <= set(abstract)
    return dict(params) if whole else {"params": params}
