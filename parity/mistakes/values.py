"""PyTorch: mistakes that any computation can have: a term lost, a sign, a step too many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from parity.frameworks.torch_calls import Call
from parity.mistakes.activations import KINDS
from parity.mistakes.guess import Guess, given_to
from parity.mistakes.norms import NORMS

_SUMS = ("add", "radd", "iadd", "sub", "isub", "rsub")
_PRODUCTS = ("mul", "rmul", "imul", "div", "truediv", "rtruediv", "idiv", "itruediv")
_ENDS = (
    *("linear", "add", "iadd", "radd", "out_projection", "addmm", "matmul", "conv1d", "conv2d"),
    *("conv3d", "conv_transpose1d", "conv_transpose2d", "mean", "sub", *NORMS),
)
_EXTRA: dict[str, Callable[[Tensor], Tensor]] = {
    **{kind: KINDS[kind] for kind in ("relu", "sigmoid", "tanh", "gelu", "silu", "softplus")},
    "softmax": partial(functional.softmax, dim=-1),
    "log_softmax": partial(functional.log_softmax, dim=-1),
}


def value_mistakes(call: Call) -> Iterator[Guess]:
    """Yield mistakes that any computation can have."""
    if call.name in (*_SUMS, *_PRODUCTS):
        yield from _operands(call)
    if call.name in ("sin", "cos"):
        other = {"sin": torch.cos, "cos": torch.sin}[call.name]
        cause = f"the port takes the {other.__name__}, torch the {call.name}"
        answer = partial(other, call.places[0])
        yield Guess("sine-cosine-swapped", cause, f"jnp.{call.name}", answer)
    if call.name.endswith("dropout"):
        yield from _dropout(call)
    if call.name in ("clamp", "clip"):
        cause = f"the port leaves out {call.name}"
        yield Guess("clip-missing", cause, "jnp.clip", call.places[0].clone)
    if call.name == "pow" and not isinstance(call.places[1], Tensor):
        yield from _power(call)
    if call.name == "normalize":
        yield from _normalize(call)
    for kind, function in _EXTRA.items():
        cause = f"the port applies {kind} after {call.name}, torch does not"
        yield Guess(
            "activation-extra",
            cause,
            f"leave out {kind}",
            partial(_then, function, call),
            needs_held=call.name not in _ENDS,
        )


def _operands(call: Call) -> Iterator[Guess]:
    """Yield a sum or product with an operand left out, or of the other sign or kind."""
    x, y = (*call.places, None)[:2]
    shape = call().shape
    what = "sum" if call.name in _SUMS else "product"
    is_residual = what == "sum" and all(isinstance(z, Tensor) and z.shape == shape for z in (x, y))
    code, fix = ("residual-missing", "x + f(x)") if is_residual else ("term-missing", "add it")
    fix = fix if what == "sum" else "multiply by it, or divide"
    for kept, left_out in ((x, "second"), (y, "first")):
        if isinstance(kept, Tensor) and kept.shape == shape:
            cause = f"the port leaves out the {left_out} term of a {what}"
            yield Guess(code, cause, fix, kept.clone)
    if is_residual:
        for kept, word in ((x, "first"), (y, "second")):
            cause = f"the port takes twice the {word} term of a sum, and leaves out the other"
            yield Guess("term-missing", cause, "add both", partial(torch.mul, kept, 2))
    if call.name.endswith("div") and y is not None:
        for shift, word in ((1, "+"), (-1, "-")):
            cause = f"the port divides by n {word} 1, torch by n"
            yield Guess("shift", cause, "divide by n", partial(_divided, x, y, shift))
    if what == "sum":
        is_sum = call.name.endswith("add")
        words = ("subtracts", "adds") if is_sum else ("adds", "subtracts")
        cause = f"the port {words[0]} where torch {words[1]}"
        answer = partial(torch.sub if is_sum else torch.add, *_tensors(x, y))
        yield Guess("sign", cause, "x + y" if is_sum else "x - y", answer)
    if what == "sum" and not call.name.endswith("add"):
        yield Guess("sign", "the port subtracts the other way", "x - y", partial(_minus, call))
    if what == "product" and isinstance(x, Tensor) and isinstance(y, Tensor):
        if call.name.endswith("mul"):
            cause = "the port adds where torch multiplies"
            yield Guess("sum-for-product", cause, "x * y", partial(torch.add, x, y))
        inverse = torch.div if call.name.endswith("mul") else torch.mul
        words = ("divides", "multiplies") if inverse is torch.div else ("multiplies", "divides")
        cause = f"the port {words[0]} where torch {words[1]}"
        yield Guess("sum-for-product", cause, "as in torch", partial(inverse, x, y))


def _divided(x: Any, y: Any, shift: int) -> Any:
    return x / (y + shift)


def _tensors(*values: object) -> tuple[Tensor, ...]:
    return tuple(torch.as_tensor(value) for value in values)


def _minus(call: Call) -> Tensor:
    result: Tensor = -call()
    return result


def _then(function: Callable[[Tensor], Tensor], call: Call) -> Tensor:
    return function(call())


def _dropout(call: Call) -> Iterator[Guess]:
    """Yield the factors that dropout has in training, where it is off."""
    given = given_to(call, "input", "p", "training")
    x, rate = given["input"], given.get("p", 0.5)
    if given.get("training", True) or not 0 < rate < 1:
        return
    fix = "nn.Dropout scales in training only"
    cause = f"the port multiplies by 1 - {rate:g} where dropout is off"
    yield Guess("dropout-scale", cause, fix, partial(torch.mul, x, 1 - rate))
    cause = f"the port divides by 1 - {rate:g} where dropout is off"
    yield Guess("dropout-scale", cause, fix, partial(torch.div, x, 1 - rate))


def _power(call: Call) -> Iterator[Guess]:
    x, own = call.places[:2]
    for other in (0.5, 1, 2, 3, -1, -0.5):
        if other != own:
            cause = f"the port takes the power {other:g}, torch {own:g}"
            yield Guess("power", cause, f"x ** {own:g}", partial(torch.pow, x, other))


def _normalize(call: Call) -> Iterator[Guess]:
    given = given_to(call, "input", "p", "dim", "eps")
    x, power, own = given["input"], given.get("p", 2.0), given.get("dim", 1)
    for axis in range(x.dim()):
        if axis != own % x.dim():
            cause = f"the port normalises axis {axis}, torch axis {own % x.dim()}"
            answer = partial(functional.normalize, x, power, axis)
            yield Guess("norm-axis", cause, f"the norm over axis {own}", answer)
    for other in (1.0, 2.0):
        if other != power:
            cause = f"the port divides by the norm of order {other:g}, torch {power:g}"
            answer = partial(functional.normalize, x, other, own)
            yield Guess("norm-kind", cause, f"jnp.linalg.norm(x, {power:g}, {own})", answer)
