"""Take steps with optax or ``torch.optim``: the parameters after each, and the state in the end."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from parity.case import Arrays
from parity.cases.optimizer_rules import Rule, Sgd
from parity.cases.sides import torch
from parity.frameworks import jax_side

if TYPE_CHECKING:
    import optax

Side = Callable[[Arrays], dict[str, np.ndarray]]

STEPS = 3
# Common names of the state, and those in optax.
_IN_OPTAX = {"momentum": "trace", "mu": "mu", "nu": "nu", "count": "count"}


def in_optax(rule: Rule) -> "optax.GradientTransformation":
    """Return optax's optimizer of a rule."""
    import optax

    if isinstance(rule, Sgd):
        decay = optax.add_decayed_weights(rule.weight_decay)
        return optax.chain(decay, optax.sgd(rule.rate, rule.momentum, nesterov=rule.nesterov))
    if not rule.weight_decay:
        return optax.adam(rule.rate, rule.b1, rule.b2, rule.eps)
    return optax.adamw(rule.rate, rule.b1, rule.b2, rule.eps, weight_decay=rule.weight_decay)


def on_optax(
    make: Callable[[], "optax.GradientTransformation"],
    gradient: Callable[..., jax.Array] = lambda parameters, gradient: gradient,
    *,
    jit: bool = True,
) -> Side:
    """Return what takes steps with optax, by one program.

    Args:
      make: builds the optimizer. Nothing of optax is loaded before.
      gradient: of the parameters and, by keyword, what a step is given.
      jit: whether a step is compiled.
    """

    @cache
    def program() -> tuple[Callable[..., Any], Callable[..., Any]]:
        import optax

        optimizer = make()

        def step(parameters: jax.Array, state: Any, given: Mapping[str, jax.Array]) -> Any:
            slope = gradient(parameters, **given)
            updates, state = optimizer.update(slope, state, parameters)
            return optax.apply_updates(parameters, updates), state, slope

        return optimizer.init, jax.jit(step) if jit else step

    def run(arrays: Arrays) -> dict[str, np.ndarray]:
        begin, step = program()
        parameters = jax_side.from_numpy(arrays["parameters"])
        state = begin(parameters)
        results: dict[str, Any] = {}
        for number, given in _by_step(arrays):
            ready = {name: jax_side.from_numpy(array) for name, array in given.items()}
            parameters, state, slope = step(parameters, state, ready)
            results |= {f"parameters/{number}": parameters, f"gradient/{number}": slope}
        results |= _state(state)
        return _computed(arrays, {key: jax_side.to_numpy(value) for key, value in results.items()})

    return run


def _state(state: Any) -> dict[str, jax.Array]:
    """Return what an optax state has of ``_IN_OPTAX``."""
    from optax.tree_utils import tree_get

    found = {name: tree_get(state, theirs) for name, theirs in _IN_OPTAX.items()}
    return {f"state/{name}": value for name, value in found.items() if value is not None}


def on_torch(
    rule: Rule, gradient: Callable[..., "torch.Tensor"] = lambda parameters, gradient: gradient
) -> Side:
    """Return what takes steps with ``torch.optim``, as ``on_optax`` does with the other side.

    The functions that its classes call: to make one of those loads a compiler, three seconds.
    """

    def run(arrays: Arrays) -> dict[str, np.ndarray]:
        from parity.frameworks import torch_side

        parameters = torch_side.from_numpy(arrays["parameters"])
        state = _begin(rule, parameters)
        results = {}
        for number, given in _by_step(arrays):
            ready = {name: torch_side.from_numpy(array) for name, array in given.items()}
            slope = gradient(parameters, **ready)
            with torch.no_grad():
                _step(rule, parameters, slope, state)
            # A copy: the next step changes the tensor itself.
            results[f"parameters/{number}"] = torch_side.to_numpy(parameters)
            results[f"gradient/{number}"] = torch_side.to_numpy(slope)
        results |= {f"state/{name}": torch_side.to_numpy(held) for name, (held,) in state.items()}
        if "state/count" in results:  # in torch a float32
            results["state/count"] = results["state/count"].astype(np.int32)
        return _computed(arrays, results)

    return run


def _begin(rule: Rule, parameters: "torch.Tensor") -> dict[str, list[Any]]:
    if isinstance(rule, Sgd):
        return {"momentum": [None]}
    means = {name: [torch.zeros_like(parameters)] for name in ("mu", "nu")}
    return {**means, "count": [torch.tensor(0.0)]}


def _step(
    rule: Rule, parameters: "torch.Tensor", slope: "torch.Tensor", state: dict[str, list[Any]]
) -> None:
    from torch.optim import adam, sgd

    if isinstance(rule, Sgd):
        sgd.sgd(
            *([parameters], [slope], state["momentum"]),
            lr=rule.rate,
            momentum=rule.momentum,
            dampening=0.0,
            weight_decay=rule.weight_decay,
            nesterov=rule.nesterov,
            maximize=False,
        )
        return
    adam.adam(
        *([parameters], [slope], state["mu"], state["nu"], [], state["count"]),
        lr=rule.rate,
        beta1=rule.b1,
        beta2=rule.b2,
        eps=rule.eps,
        weight_decay=rule.weight_decay,
        decoupled_weight_decay=rule.decay == "before",
        amsgrad=False,
        maximize=False,
    )


def _by_step(arrays: Arrays) -> Iterator[tuple[int, Arrays]]:
    """Yield each step's number, and what it is given: its gradient, or what that is computed of."""
    rest = {name: array for name, array in arrays.items() if name != "parameters"}
    for number in range(1, STEPS + 1):
        one = {"gradient": rest["gradients"][number - 1]} if "gradients" in rest else rest
        yield number, one


def _computed(arrays: Arrays, results: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Leave out the gradients where they were given."""
    given = "gradients" in arrays
    return {name: a for name, a in results.items() if not (given and name.startswith("gradient/"))}
