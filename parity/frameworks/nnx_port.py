"""Flax nnx: a module as a pure function of its state."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from flax import nnx

from parity.frameworks import jax_leaves
from parity.frameworks.jax_port import Port, attempt, floating, modes, said, without_defaults


def nnx_port(
    module: nnx.Module,
    params: Any,
    places: tuple[Any, ...],
    named: Mapping[str, Any],
    *,
    training: bool,
) -> Port:
    """Return a module as a port; the caller's own is left as it is.

    Args:
      module: whose values count as an initialisation.
      params: a State, a dict or a module of the same structure, or None. Of state that is not
        trained, what is not given is that of the module.
      places: inputs by position.
      named: inputs by name.
      training: whether dropout is on and statistics change.

    Raises:
      ValueError: if `params` does not fit the module.
    """
    own, told = _in_mode(module, training)
    found, rebuild = jax_leaves.flatten(own)
    # The copy has its attributes sorted.
    flat = {path: found[path] for path in jax_leaves.flatten(module)[0]}
    parameters = jax_leaves.flatten(nnx.state(own, nnx.Param))[0]
    if params is not None:
        flat = _given(params, own, flat, parameters)
    leaves = floating(flat, parameters)
    kept = {path: leaf for path, leaf in flat.items() if path not in leaves}
    switches = modes(own.__call__, places, named, training=training)
    passed = without_defaults(own.__call__, switches)

    def call(leaves: Mapping[str, Any], *places: Any, **named: Any) -> tuple[Any, dict[str, Any]]:
        # A NumPy array would be changed in place.
        leaves = {path: jnp.asarray(leaf) for path, leaf in leaves.items()}
        model = rebuild({**kept, **leaves})
        outputs = attempt("model({})", lambda *p, **n: model(*p, **n, **passed), places, named)
        if not training:
            return outputs, {}
        after = jax_leaves.flatten(model)[0]
        state = [path for path in leaves if path not in parameters]
        return outputs, {path: after[path] for path in state if after[path] is not leaves[path]}

    return Port("nnx", leaves, params is not None, call, (*told, *said(switches)))


def _given(
    params: Any, own: nnx.Module, flat: Mapping[str, Any], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    # In a pure dict the random state can't be told from parameters.
    drawn = {
        "/".join(map(str, path)) for path, _ in nnx.to_flat_state(nnx.state(own, nnx.RngState))
    }
    rest = {path: leaf for path, leaf in flat.items() if path not in parameters}
    leaves = jax_leaves.flatten(params)[0]
    given = rest | {path: leaf for path, leaf in leaves.items() if path not in drawn}
    jax_leaves.require_same_paths(given, flat, "params")
    return {path: given[path] for path in flat}


def _in_mode(module: nnx.Module, training: bool) -> tuple[nnx.Module, tuple[str, ...]]:
    """Return a copy in one of the modes, and what was set in it."""
    own = nnx.clone(module)
    if training:
        own.train()
        told = ["model.train()", "random state of the model as it was, in every call"]
    else:
        own.eval()
        told = ["model.eval()"]
    # Attention raises where nobody said whether it decodes.
    undecided: list[Any] = [
        part for _, part in nnx.iter_modules(own) if getattr(part, "decode", 0) is None
    ]
    for part in undecided:
        part.decode = False
    return own, (*told, *(["decode=False"] if undecided else []))
