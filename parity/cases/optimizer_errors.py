"""How far float32 may be off after some optimizer steps, from the roundings in each of them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from parity.cases.expected import WIDE
from parity.cases.optimizer_rules import Adam, Rule, Sgd, State

# Half an ulp, relative; the hundredth covers the products of two.
HALF = 1.01 * WIDE

Errors = dict[str, np.ndarray]


def bounds(rule: Rule, states: list[State], off: Sequence[Any], half: float = HALF) -> list[Errors]:
    """Return how far float32 may be off after each step.

    Args:
      rule: that is followed.
      states: before the first step, and after each.
      off: how far each gradient is off; or what says so, given the parameters and their error.
      half: the error of a rounding, relative; 0 carries on that of the gradients alone.
    """
    step = partial(_sgd_error, rule) if isinstance(rule, Sgd) else partial(_adam_error, rule)
    errors: Errors = {name: np.zeros(array.shape) for name, array in states[0].items()}
    carried = []
    for before, after, one in zip(states[:-1], states[1:], off, strict=True):
        given = one(before["parameters"], errors["parameters"]) if callable(one) else one
        errors = {"gradient": given, **step(before, after, errors, given, half)}
        carried.append(errors)
    return carried


def _sgd_error(
    rule: Sgd, before: State, after: State, errors: Errors, off: Any, half: float
) -> Errors:
    """Carry on an error: two roundings a constant times an array, one a sum."""
    old, buffer = np.abs(before["parameters"]), np.abs(after["momentum"])
    kept = rule.momentum * np.abs(before["momentum"])
    decay = rule.weight_decay * old
    # What enters the buffer is at most the buffer and what was kept of it.
    entering = off + rule.weight_decay * errors["parameters"] + half * (2 * decay + buffer + kept)
    momentum = rule.momentum * errors["momentum"] + entering + half * (2 * kept + buffer)
    moved = rule.rate * (momentum + 2 * half * buffer)
    parameters = errors["parameters"] + moved + half * np.abs(after["parameters"])
    return {"parameters": parameters, "momentum": momentum}


def _adam_error(
    rule: Adam, before: State, after: State, errors: Errors, off: Any, half: float
) -> Errors:
    """Carry on an error; the gradients are exact.

    A mean has two roundings for its factor, three for the square, one for the sum; torch's first
    is old + factor * (gradient - old): four of a sum of both. 1 - b ** count has as many as count
    says for b, two for a power that is good to an ulp, and one; that is much beside 1 - b. A
    quotient or a root counts four, two ulp: accelerators have no better ones. So the root of the
    corrected mean has nine, as torch takes it (two roots, of which that of a constant is rounded
    once, and a quotient); the sum with eps two more; the update eleven: two quotients, the rate,
    the product with it, and the sum with the decay.
    """
    assert not np.any(off), "with gradients of its own on each side, Adam is ill-posed"
    count = int(after["count"])
    first, second = 1 - rule.b1**count, 1 - rule.b2**count
    old, new = (np.abs(state["mu"]) for state in (before, after))
    mu = rule.b1 * errors["mu"] + 4 * half * (2 * rule.b1 * old + new)
    nu = rule.b2 * errors["nu"] + 4 * half * after["nu"]
    powers = [half * ((count + 2) * (1 - one) / one + 1) for one in (first, second)]
    root = np.sqrt(after["nu"] / second)
    own = np.divide(nu, 2 * after["nu"], out=np.zeros_like(nu), where=after["nu"] > 0)
    below = root + rule.eps
    quotient = root * (own + powers[1] / 2 + 9 * half) / below + 2 * half
    update = np.abs(after["mu"]) / first / below
    moved = rule.rate * (mu / first / below + update * (quotient + powers[0] + 11 * half))
    decay = rule.rate * rule.weight_decay
    # torch rounds 1 - rate * decay and its product; optax rounds small terms, five times.
    faded = half * np.abs(before["parameters"]) * (2 + 5 * decay) if decay else 0.0
    parameters = errors["parameters"] + moved + faded + half * np.abs(after["parameters"])
    return {"parameters": parameters, "mu": mu, "nu": nu}
