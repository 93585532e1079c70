"""PyTorch: an activation of another form or kind, left out, or applied twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from parity.frameworks.torch_calls import Call
from parity.mistakes.guess import Guess, given_to

KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "tanh gelu": partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "elu": functional.elu,
    "selu": functional.selu,
    "celu": functional.celu,
    "leaky_relu": functional.leaky_relu,
    "softplus": functional.softplus,
    "softsign": functional.softsign,
    "mish": functional.mish,
    "relu6": functional.relu6,
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "hardtanh": functional.hardtanh,
    "logsigmoid": functional.logsigmoid,
}
_SLOPES = (0.01, 0.1, 0.2, 0.25, 0.3)
_GELU = {"none": "exact", "tanh": "tanh"}
# What else PyTorch calls them, as functions or methods.
_NAMES = {"log_sigmoid": "logsigmoid", "hard_tanh": "hardtanh", "swish": "silu"}


def activation_mistakes(call: Call) -> Iterator[Guess]:
    """Yield mistakes of an activation."""
    own = _NAMES.get(call.name, call.name)
    if own not in KINDS and own != "prelu":
        return
    x, fix = given_to(call, "input")["input"], f"nn.{own}(x)"
    if own == "gelu":
        yield _gelu(call, x)
    if own in ("leaky_relu", "prelu"):
        yield from _slopes(own, x)
    for kind, function in KINDS.items():
        if kind not in (own, f"tanh {own}"):
            cause = f"the activation is {kind} in the port, {own} in torch"
            yield Guess("wrong-activation", cause, fix, partial(function, x))
    cause = f"the activation is x * sigmoid(1.702 x) in the port, {own} in torch"
    yield Guess("gelu-kind", cause, fix, partial(_quick_gelu, x))
    yield Guess("activation-missing", f"the port leaves out {own}", fix, x.clone)
    cause = f"the port applies {own} twice"
    yield Guess("activation-twice", cause, f"apply {own} once", partial(_twice, call))


def _gelu(call: Call, x: Tensor) -> Guess:
    own = call.named.get("approximate", "none")
    other = "tanh" if own == "none" else "none"
    cause = f"gelu is {_GELU[other]} in the port, {_GELU[own]} in torch"
    fix = f"nn.gelu(x, approximate={own == 'tanh'})"
    return Guess("gelu-kind", cause, fix, partial(functional.gelu, x, approximate=other))


def _slopes(own: str, x: Tensor) -> Iterator[Guess]:
    for slope in _SLOPES:
        cause = f"{own} has a slope of {slope} in the port, another in torch"
        fix = "nn.leaky_relu(x, negative_slope=...) as in torch"
        if own == "prelu":
            fix = "a parameter for the slope: nn.PReLU"
        yield Guess("activation-slope", cause, fix, partial(functional.leaky_relu, x, slope))


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def _twice(call: Call) -> Tensor:
    again: Tensor = call(call())
    return again
