"""Optimizer steps of an encoder: the formula on the same gradients, and SGD end to end."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_input.config import EncoderConfig
from jax_input.stack import encoder
from parity.case import Arrays, Case, Tensor
from parity.cases.encoder_expected import slope_of_squares
from parity.cases.encoder_problem import Problem
from parity.cases.expected import rng, whole
from parity.cases.optimizer_errors import bounds
from parity.cases.optimizer_rules import Adam, Rule, Sgd, follow
from parity.cases.sides import COTANGENT, torch
from parity.cases.stepping import STEPS, Side, in_optax, on_optax, on_torch

# At 1e-4 optax's bias correction in float32 costs less than an ulp of a parameter.
_ADAMW = Adam(1e-4, weight_decay=0.1)
_SGD = Sgd(0.01, momentum=0.9)
# What is left of the gradient of the keys' bias, which is zero.
_NOTHING = 1e-12


def cases(problem: Problem) -> Iterator[Case]:
    """Yield the cases of a problem's training."""
    yield _identical(problem)
    yield _end_to_end(problem)


def _identical(problem: Problem) -> Case:
    return Case(
        f"encoder/adamw[weight decay 0.1, {problem.parameters}]",
        problem.dtype,
        lambda: _slopes(problem),
        _last(on_optax(partial(in_optax, _ADAMW))),
        _last(on_torch(_ADAMW)),
        lambda: _expected_identical(problem),
        default=False,
    )


def _expected_identical(problem: Problem) -> dict[str, Tensor]:
    given = _slopes(problem)
    return _expected(_ADAMW, given["parameters"], list(given["gradients"]), [0.0] * STEPS)


def _end_to_end(problem: Problem) -> Case:
    def expected() -> dict[str, Tensor]:
        given = problem.arrays()
        slope = partial(slope_of_squares, problem, given)
        return _expected(
            _SGD,
            given["parameters"],
            [lambda parameters: slope(parameters)[0]] * STEPS,
            [lambda parameters, off: slope(parameters, off)[1]] * STEPS,
        )

    return Case(
        f"encoder/sgd_end_to_end[momentum 0.9, {problem.parameters}]",
        problem.dtype,
        problem.arrays,
        _last(on_optax(partial(in_optax, _SGD), partial(_port_gradient, problem))),
        _last(on_torch(_SGD, partial(_reference_gradient, problem))),
        expected,
        default=False,
    )


def _slopes(problem: Problem) -> dict[str, np.ndarray]:
    """Return the parameters, and their exact gradients of three losses."""
    given, random = problem.arrays(), rng(41)
    slopes = []
    for _ in range(STEPS):
        cotangent = random.normal(size=given["x"].shape)
        slope, _ = slope_of_squares(problem, {**given, COTANGENT: cotangent}, given["parameters"])
        slopes.append(np.where(np.abs(slope) < _NOTHING, 0.0, slope))
    return {
        "parameters": given["parameters"],
        "gradients": np.array(slopes).astype(np.float32),
    }


def _port_gradient(problem: Problem, parameters: Any, x: Any, mask: Any, cotangent: Any) -> Any:
    config = EncoderConfig(**problem.options)

    def loss(parameters: jax.Array) -> jax.Array:
        y = encoder(x, problem.tree(parameters), config, mask=mask)
        return jnp.sum(y * cotangent + 0.5 * y**2)

    return jax.grad(loss)(parameters)


def _reference_gradient(
    problem: Problem, parameters: Any, x: Any, mask: Any, cotangent: Any
) -> Any:
    from torch_ref import config, stack

    own = parameters.detach().requires_grad_()
    options = config.EncoderConfig(**problem.options)
    y = stack.encoder(x, problem.tree(own), options, mask=mask)
    (slope,) = torch.autograd.grad((y * cotangent + 0.5 * y**2).sum(), own)
    return slope


def _last(side: Side) -> Side:
    """Return what tells, of the last step, the gradient, and state and parameters after it."""

    def run(arrays: Arrays) -> dict[str, np.ndarray]:
        kept = (f"parameters/{STEPS}", f"gradient/{STEPS}")
        results = side(arrays).items()
        return {name: a for name, a in results if name in kept or name.startswith("state/")}

    return run


def _expected(
    rule: Rule, parameters: np.ndarray, slopes: Sequence[Any], off: Sequence[Any]
) -> dict[str, Tensor]:
    """Expect the last step.

    Args:
      rule: that is followed.
      parameters: before the first step.
      slopes: the gradients, or what computes them.
      off: how far each is off, as `optimizer_errors.bounds` takes it.
    """
    states = [rule.begin(parameters), *follow(rule, parameters, slopes)]
    errors = bounds(rule, states, off)[-1]
    tensors = {
        f"state/{name}": whole(array) if name == "count" else _stepped(array, errors[name])
        for name, array in states[-1].items()
    }
    tensors[f"parameters/{STEPS}"] = tensors.pop("state/parameters")
    if callable(slopes[-1]):
        slope = slopes[-1](states[-2]["parameters"])
        tensors[f"gradient/{STEPS}"] = _stepped(slope, errors["gradient"])
    return tensors


def _stepped(exact: np.ndarray, ceiling: np.ndarray) -> Tensor:
    reason = "the roundings of each step, carried on"
    return Tensor(exact, ceiling, reason, same_bits=False, exact_kind="reference in float64")
