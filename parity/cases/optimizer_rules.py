"""The steps of SGD and Adam in float64, right and with named mistakes.

A rule makes a new state from a state and a gradient. A mistake is the same rule with one thing
changed, so that what it would have computed can be compared with what a side did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

State = Mapping[str, np.ndarray]
Gradient = np.ndarray | Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Sgd:
    """SGD with momentum, as ``torch.optim.SGD`` and ``optax.sgd`` take a step.

    Attributes:
      rate: the learning rate.
      momentum: what is kept of the last step; the first one is the gradient alone.
      weight_decay: times the parameters, added to the gradient.
      decoupled: a mistake: the weight decay is added to the update, and has no momentum.
      damped: a mistake: the gradient enters times 1 - momentum.
      nesterov: a mistake unless it is asked for: the step looks one momentum ahead.
    """

    rate: float
    momentum: float = 0.9
    weight_decay: float = 0.0
    decoupled: bool = False
    damped: bool = False
    nesterov: bool = False

    def begin(self, parameters: Float[np.ndarray, "*shape"]) -> State:
        """Return the state before the first step."""
        wide = parameters.astype(np.float64)
        return {"parameters": wide, "momentum": np.zeros_like(wide)}

    def step(self, state: State, gradient: Float[np.ndarray, "*shape"]) -> State:
        """Return the state after one more step, in float64.

        Source: torch.optim.SGD, dampening 0 (Sutskever et al. 2013, the rate outside the momentum).
        """
        parameters = state["parameters"]
        decay = self.weight_decay * parameters
        wide = gradient.astype(np.float64) + (0.0 if self.decoupled else decay)
        entering = (1 - self.momentum if self.damped else 1.0) * wide
        momentum = self.momentum * state["momentum"] + entering
        update = wide + self.momentum * momentum if self.nesterov else momentum
        update = update + decay if self.decoupled else update
        return {"parameters": parameters - self.rate * update, "momentum": momentum}


@dataclass(frozen=True)
class Adam:
    """Adam and, with a weight decay, AdamW: as ``torch.optim`` and ``optax`` take a step.

    Attributes:
      rate: the learning rate.
      b1: what is kept of the mean of the gradients.
      b2: what is kept of the mean of their squares.
      eps: keeps the quotient finite.
      weight_decay: times the parameters.
      decay: where the weight decay acts: on the parameters before the update is subtracted; the
        mistakes are on those after it, and in the gradient.
      eps_place: outside the root, of the corrected mean; the mistakes are inside it, and outside
        the root of the mean that is not yet corrected.
      correction: how 1 - b ** count is computed; float32 is what optax does, "none" a mistake.
    """

    rate: float
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    decay: Literal["before", "after", "in the gradient"] = "before"
    eps_place: Literal["outside", "inside", "uncorrected"] = "outside"
    correction: Literal["float64", "float32", "none"] = "float64"

    def begin(self, parameters: Float[np.ndarray, "*shape"]) -> State:
        """Return the state before the first step."""
        wide = parameters.astype(np.float64)
        zeros = np.zeros_like(wide)
        return {"parameters": wide, "mu": zeros, "nu": zeros, "count": np.array(0, np.int32)}

    def step(self, state: State, gradient: Float[np.ndarray, "*shape"]) -> State:
        """Return the state after one more step, in float64.

        Source: Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019, algorithm 2, the decay
        times the rate.
        """
        parameters, count = state["parameters"], state["count"] + 1
        coupled = self.weight_decay if self.decay == "in the gradient" else 0.0
        wide = gradient.astype(np.float64) + coupled * parameters
        mu = self.b1 * state["mu"] + (1 - self.b1) * wide
        nu = self.b2 * state["nu"] + (1 - self.b2) * wide**2
        kept = 1 - self.rate * self.weight_decay
        update = self.rate * self.direction(mu, nu, int(count))
        if self.decay == "before":
            parameters = kept * parameters - update
        else:
            parameters = (parameters - update) * (kept if self.decay == "after" else 1.0)
        return {"parameters": parameters, "mu": mu, "nu": nu, "count": count.astype(np.int32)}

    def direction(
        self, mu: Float[np.ndarray, "*shape"], nu: Float[np.ndarray, "*shape"], count: int
    ) -> Float[np.ndarray, "*shape"]:
        """Return the update of unit rate after ``count`` steps, without the weight decay."""
        first, second = self.corrected(self.b1, count), self.corrected(self.b2, count)
        if self.eps_place == "inside":
            return mu / first / np.sqrt(nu / second + self.eps)
        eps = self.eps / second**0.5 if self.eps_place == "uncorrected" else self.eps
        return mu / first / (np.sqrt(nu / second) + eps)

    def corrected(self, kept: float, count: int) -> float:
        """Return 1 - kept ** count: what a mean that began at zero is divided by."""
        if self.correction == "none":
            return 1.0
        if self.correction == "float32":
            return float(np.float32(1) - np.float32(kept) ** np.float32(count))
        return 1 - kept**count


Rule = Sgd | Adam


def follow(
    rule: Rule,
    parameters: Float[np.ndarray, "*shape"],
    gradients: Iterable[Gradient],
) -> list[State]:
    """Return the state after each step.

    Args:
      rule: with its hyperparameters, as Python numbers.
      parameters: before the first step.
      gradients: one for each step, or what computes it from the parameters.

    Returns:
      "parameters", and "momentum", or "mu", "nu" and "count"; all float64 but the count. Off by a
      few ulp of float64.
    """
    states = [rule.begin(parameters)]
    for gradient in gradients:
        given = gradient(states[-1]["parameters"]) if callable(gradient) else gradient
        states.append(rule.step(states[-1], given))
    return states[1:]


def mistakes(rule: Rule) -> dict[str, Rule]:
    """Return the rule with each known mistake, by name."""
    decayed = {"no weight decay": replace(rule, weight_decay=0.0)} if rule.weight_decay else {}
    if isinstance(rule, Sgd):
        if decayed:
            decayed["weight decay outside the momentum"] = replace(rule, decoupled=True)
        return {
            "momentum damped by 1 - momentum": replace(rule, damped=True),
            "Nesterov's momentum": replace(rule, nesterov=True),
            **decayed,
        }
    if decayed:
        decayed["weight decay in the gradient"] = replace(rule, decay="in the gradient")
        decayed["weight decay after the update"] = replace(rule, decay="after")
    return {
        "eps inside the root": replace(rule, eps_place="inside"),
        "eps added before the bias correction": replace(rule, eps_place="uncorrected"),
        "no bias correction": replace(rule, correction="none"),
        "bias correction in float32": replace(rule, correction="float32"),
        **decayed,
    }
