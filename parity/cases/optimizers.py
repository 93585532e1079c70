"""Steps of SGD, Adam and AdamW: optax against ``torch.optim``, on the same gradients.

Adam divides a gradient by its own size, so the rounding error of a small one moves a parameter by
a good part of the rate. End to end, with a gradient of its own on each side, only SGD is compared.
There the drift is split: "drift/gradient" is how far the exact rule moves the parameters with a
side's gradients, "drift/formula" how far the side would have moved them with exact ones.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_input
from parity import exact
from parity.case import Arrays, Case, Tensor
from parity.cases.expected import rng, whole
from parity.cases.optimizer_errors import HALF, Errors, bounds
from parity.cases.optimizer_rules import Adam, Rule, Sgd, State, follow, mistakes
from parity.cases.sides import COTANGENT, MODES, torch, torch_ref
from parity.cases.stepping import STEPS, Side, in_optax, on_optax, on_torch

_PADDING = 0


def cases() -> Iterator[Case]:
    """Yield the cases of optimizer steps."""
    for mode in MODES:
        decayed = "weight decay 0.1"
        sgd = Sgd(0.01, momentum=0.9, weight_decay=0.1)
        yield _identical("sgd", f"momentum 0.9, {decayed}, float32, {mode}", sgd)
        yield _identical("adam", f"float32, {mode}", Adam(0.01))
        yield _identical("adamw", f"{decayed}, float32, {mode}", Adam(0.01, weight_decay=0.1))
        yield _end_to_end(f"momentum 0.9, float32, {mode}", Sgd(0.01, momentum=0.9))


def problem() -> dict[str, np.ndarray]:
    """Return float32 parameters ``[7, 12]``, and gradients of all sizes, so that eps tells.

    The parameters are so large that an ulp of theirs is more than what optax's bias correction in
    float32 costs: see docs/differences.md. The first row gets no gradient, as a padding row.
    """
    random = rng(30)
    parameters = 2 * random.normal(size=(7, 12))
    sizes = 10.0 ** random.uniform(-9, 0, size=(7, 12))
    gradients = sizes * random.normal(size=(STEPS, 7, 12))
    gradients[:, _PADDING] = 0
    wide = {"parameters": parameters, "gradients": gradients}
    return {name: array.astype(np.float32) for name, array in wide.items()}


def _identical(name: str, parameters: str, rule: Rule) -> Case:
    jit = parameters.endswith("jit")
    return Case(
        f"optimizers/{name}[{parameters}]",
        "float32",
        problem,
        on_optax(partial(in_optax, rule), jit=jit),
        on_torch(rule),
        partial(_expected, rule),
        default=jit and name != "adam",  # AdamW takes the same step, and one more
    )


def _expected(rule: Rule) -> dict[str, Tensor]:
    parameters, gradients = problem().values()
    paths = _paths(rule, parameters, list(gradients))
    errors = bounds(rule, [rule.begin(parameters), *paths[""]], [0.0] * STEPS)
    return _tensors(paths, errors)


def _paths(rule: Rule, parameters: np.ndarray, gradients: Sequence[Any]) -> dict[str, list[State]]:
    """Return the states of the rule as "", and those of its mistakes by their names."""
    rules = {"": rule, **mistakes(rule)}
    return {name: follow(one, parameters, gradients) for name, one in rules.items()}


def _tensors(paths: dict[str, list[State]], errors: list[Errors]) -> dict[str, Tensor]:
    """Expect the parameters after each step, and the state after the last one."""

    def tensor(name: str, step: int) -> Tensor:
        values = {mistake: path[step][name] for mistake, path in paths.items()}
        right = values.pop("")
        return whole(right) if name == "count" else _stepped(right, errors[step][name], values)

    tensors = {f"parameters/{step + 1}": tensor("parameters", step) for step in range(STEPS)}
    state = [name for name in paths[""][-1] if name != "parameters"]
    return tensors | {f"state/{name}": tensor(name, STEPS - 1) for name in state}


def _stepped(right: np.ndarray, ceiling: np.ndarray, wrong: dict[str, np.ndarray]) -> Tensor:
    return Tensor(
        right,
        ceiling,
        "the roundings of each step, carried on",
        same_bits=False,
        exact_kind="reference in float64",
        mistakes=wrong,
    )


def inputs() -> dict[str, np.ndarray]:
    """Return what the input part is given: an embedding ``[7, 12]``, of which row 6 is not used."""
    random = rng(31)
    return {
        "parameters": random.normal(size=(7, 12)).astype(np.float32),
        "token_ids": np.array([[1, 2, 2, 0, 5], [3, 1, 2, 0, 4]], np.int32),
        "table": exact.sinusoid(np.arange(5), 12).astype(np.float32),
        COTANGENT: random.normal(size=(2, 5, 12)).astype(np.float32),
    }


def _end_to_end(parameters: str, rule: Sgd) -> Case:
    jit = parameters.endswith("jit")
    return Case(
        f"optimizers/sgd_end_to_end[{parameters}]",
        "float32",
        inputs,
        drifting(rule, on_optax(partial(in_optax, rule), port_gradient, jit=jit)),
        drifting(rule, on_torch(rule, reference_gradient)),
        partial(_expected_end_to_end, rule),
        default=False,
    )


def port_gradient(parameters: Any, token_ids: Any, table: Any, cotangent: Any) -> jax.Array:
    """Return the gradient of a loss that grows with the square of the input part's output."""

    def loss(embedding: jax.Array) -> jax.Array:
        output = jax_input.transformer_input(token_ids, embedding, table, padding_idx=_PADDING)
        return jnp.sum(output * cotangent + 0.5 * output**2)

    return jax.grad(loss)(parameters)


def reference_gradient(parameters: Any, token_ids: Any, table: Any, cotangent: Any) -> Any:
    """Return the same with PyTorch."""
    embedding = parameters.detach().requires_grad_()
    output = torch_ref.transformer_input(token_ids, embedding, table, padding_idx=_PADDING)
    (gradient,) = torch.autograd.grad((output * cotangent + 0.5 * output**2).sum(), embedding)
    return gradient


def _exact_gradient(given: Arrays, parameters: np.ndarray) -> np.ndarray:
    """Return the same in float64."""
    ids, factor = given["token_ids"], parameters.shape[1] ** 0.5
    output = factor * parameters.astype(np.float64)[ids] + given["table"]
    return _by_token(ids, factor * (output + given[COTANGENT]), parameters)


def _gradient_error(given: Arrays, parameters: np.ndarray, off: np.ndarray) -> np.ndarray:
    """Return how far float32 may be off, with parameters that are ``off`` by so much."""
    ids, factor = given["token_ids"], parameters.shape[1] ** 0.5
    scaled = factor * parameters[ids]
    output = scaled + given["table"]
    wide = factor * off[ids] + HALF * (2 * np.abs(scaled) + np.abs(output))
    # A sum with the cotangent, a factor and a product; then as many sums as there are tokens.
    terms = factor * (wide + (3 + ids.size) * HALF * np.abs(output + given[COTANGENT]))
    return _by_token(ids, terms, parameters)


def _by_token(ids: np.ndarray, terms: np.ndarray, parameters: np.ndarray) -> np.ndarray:
    total = np.zeros(parameters.shape)
    np.add.at(total, ids, np.where((ids == _PADDING)[..., None], 0.0, terms))
    return total


def _slopes(given: Arrays, path: list[State]) -> list[np.ndarray]:
    """Return the exact gradients at what each step began with."""
    begun = [given["parameters"], *(state["parameters"] for state in path[:-1])]
    return [_exact_gradient(given, parameters) for parameters in begun]


def drifting(rule: Sgd, side: Side) -> Side:
    """Return what also splits how far a side has drifted from the exact path."""

    def run(arrays: Arrays) -> dict[str, np.ndarray]:
        results = side(arrays)
        start = arrays["parameters"]
        path = follow(rule, start, [partial(_exact_gradient, arrays)] * STEPS)
        own = [results[f"gradient/{number}"] for number in range(1, STEPS + 1)]
        right = follow(rule, start, own)[-1]["parameters"]
        wrong = results[f"parameters/{STEPS}"] - right
        moved = path[-1]["parameters"] - start
        parts = {"drift/gradient": right - start, "drift/formula": moved + wrong}
        return results | {name: part.astype(np.float32) for name, part in parts.items()}

    return run


def _expected_end_to_end(rule: Sgd) -> dict[str, Tensor]:
    given = inputs()
    start = given["parameters"]
    paths = _paths(rule, start, [partial(_exact_gradient, given)] * STEPS)
    slopes = {name: _slopes(given, path) for name, path in paths.items()}
    states = [rule.begin(start), *paths[""]]
    errors = bounds(rule, states, [partial(_gradient_error, given)] * STEPS)
    gradients = {
        f"gradient/{step + 1}": _stepped(slope, errors[step]["gradient"], {})
        for step, slope in enumerate(slopes[""])
    }
    moved = states[-1]["parameters"] - start
    told = HALF * np.abs(moved)
    alone = bounds(rule, states, [one["gradient"] for one in errors], half=0.0)
    exactly = bounds(rule, states, [0.0] * STEPS)
    # A mistake's path less what the rule makes of the gradients that it met.
    wrong = {
        name: moved + path[-1]["parameters"] - follow(rule, start, slopes[name])[-1]["parameters"]
        for name, path in paths.items()
        if name
    }
    return {
        **gradients,
        **_tensors(paths, errors),
        "drift/gradient": _stepped(moved, alone[-1]["parameters"] + told, {}),
        "drift/formula": _stepped(moved, exactly[-1]["parameters"] + told, wrong),
    }
