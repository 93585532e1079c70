"""JAX: a jaxpr evaluated equation by equation, with a look at what each of them gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.extend import core

# Longer scans are one equation: their program would be too long.
_UNROLLED = 256

See = Callable[[Any, str, Sequence[Any]], list[Any]]


def evaluated(
    jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any], see: See, stack: str
) -> list[Any]:
    """Evaluate a jaxpr. Functions under jit and remat are followed, scans are unrolled.

    Args:
      jaxpr: of a function.
      consts: what it has closed over.
      arguments: what it is given.
      see: is given each equation, the names of modules around it and its results, and returns
        what becomes of them; of a scan also what a step is given.
      stack: the names around all of it.

    Returns:
      The outputs of the jaxpr.
    """
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    known |= dict(zip(jaxpr.invars, arguments, strict=True))

    def read(var: Any) -> Any:
        return known[var] if _is_var(var) else var.val

    for eqn in jaxpr.eqns:
        given = [read(var) for var in eqn.invars]
        inner = _inner(eqn)
        if eqn.primitive.name == "scan" and eqn.params["length"] <= _UNROLLED:
            results = _unrolled(eqn, given, see, stack)
        elif inner is not None:
            results = evaluated(inner.jaxpr, inner.consts, given, see, joined(stack, eqn))
        else:
            results = see(eqn, stack, _bound(jaxpr, eqn, given))
        known |= dict(zip(eqn.outvars, results, strict=True))
    return [read(var) for var in jaxpr.outvars]


def _bound(jaxpr: Any, eqn: Any, given: list[Any]) -> list[Any]:
    """Evaluate one equation, as a jaxpr of its own: how primitives are called is JAX's affair."""
    places = {var: value for var, value in zip(eqn.invars, given, strict=True) if _is_var(var)}
    parts = {"invars": [*places], "outvars": eqn.outvars, "eqns": [eqn], "effects": eqn.effects}
    alone = jaxpr.replace(constvars=[], **parts)
    return core.jaxpr_as_fun(core.ClosedJaxpr(alone, ()))(*places.values())


def _is_var(atom: Any) -> bool:
    return not isinstance(atom, core.Literal)


def _inner(eqn: Any) -> Any:
    """Return the jaxpr that an equation is a call of, if it is one."""
    # Those with a derivative of their own would lose it.
    if eqn.primitive.name in ("scan", "while", "cond") or "custom_" in eqn.primitive.name:
        return None
    inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
    if inner is None or not hasattr(inner, "eqns" if not hasattr(inner, "jaxpr") else "consts"):
        return None
    closed = _closed(inner)
    return closed if len(closed.jaxpr.invars) == len(eqn.invars) else None


def _closed(jaxpr: Any) -> Any:
    return jaxpr if hasattr(jaxpr, "consts") else core.ClosedJaxpr(jaxpr, ())


def _unrolled(eqn: Any, given: list[Any], see: See, stack: str) -> list[Any]:
    params, body = eqn.params, _closed(eqn.params["jaxpr"])
    consts, carry, stacked = _parts(params, given)
    steps, inside = range(params["length"]), joined(stack, eqn)
    rows: dict[int, list[Any]] = {}
    for step in reversed(steps) if params["reverse"] else steps:
        at = see(eqn, stack, [x[step] for x in stacked])
        results = evaluated(body.jaxpr, body.consts, [*consts, *carry, *at], see, inside)
        carry, rows[step] = results[: len(carry)], results[len(carry) :]
    count = len(eqn.outvars) - len(carry)
    return [*carry, *(jax.numpy.stack([rows[step][k] for step in steps]) for k in range(count))]


def _parts(params: Mapping[str, Any], given: list[Any]) -> list[list[Any]]:
    """Return what a scan is given as constants, as carry, and stacked along its steps."""
    if "ft_in" in params:  # since JAX 0.12
        return [list(part) for part in params["ft_in"].update(given).unpack()]
    first, second = params["num_consts"], params["num_consts"] + params["num_carry"]
    return [given[:first], given[first:second], given[second:]]


def joined(stack: str, eqn: Any) -> str:
    """Return the names of modules around an equation: "Block_0/Dense_1"."""
    return "/".join(part for part in (stack, str(eqn.source_info.name_stack)) if part)
