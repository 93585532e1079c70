"""PyTorch: a linear layer whose kernel is turned, whose bias is missing, or which is another."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from parity.frameworks.torch_calls import Call
from parity.mistakes.guess import Guess, given_to

_LAYERS = (
    *("linear", "q_projection", "k_projection", "v_projection", "out_projection"),
    *("input_projection", "hidden_projection", "addmm"),
)
_PRODUCTS = ("matmul", "bmm", "mm", "scores", "attended")
# Of a model with more layers of one shape than this, not each is tried in the place of another.
_MOST_OTHERS = 8
_HIGHEST = 'jax.default_matmul_precision("highest")'


def linear_mistakes(call: Call) -> Iterator[Guess]:
    """Yield mistakes of a linear layer, or of a matrix product."""
    if call.name in _LAYERS:
        yield from _layer(call)
    if call.name in _PRODUCTS and len(call.places) > 1:
        yield from _product(*call.places[:2])


def _given(call: Call) -> dict[str, Any]:
    given = given_to(call, "input", "weight", "bias")
    if call.name == "addmm":
        bias, x, weight = call.places[:3]
        return {"input": x, "weight": weight.mT, "bias": bias}
    return given


def _layer(call: Call) -> Iterator[Guess]:
    given = _given(call)
    x, weight, bias = given["input"], given["weight"], given.get("bias")
    if weight.shape[0] == weight.shape[1]:
        cause = "a square kernel is used as PyTorch stores it, untransposed"
        answer = partial(functional.linear, x, weight.mT, bias)
        yield Guess("untransposed-square", cause, "kernel = weight.T", answer)
        cause = "the port leaves out a linear layer"
        yield Guess("layer-missing", cause, "apply the layer", x.clone)
    if bias is not None:
        cause = "the port leaves out the bias"
        answer = partial(functional.linear, x, weight)
        yield Guess("bias-missing", cause, "use_bias=True", answer)
        cause = "the port adds the bias twice"
        answer = partial(functional.linear, x, weight, 2 * bias)
        yield Guess("bias-twice", cause, "add the bias once", answer)
        cause = "the port subtracts the bias"
        yield Guess("sign", cause, "add the bias", partial(functional.linear, x, weight, -bias))
    yield from _others(call, x, weight, bias)
    cause = "the operands of a matrix product are rounded to bfloat16 in the port"
    answer = partial(_rounded, x, weight, bias)
    yield Guess("matmul-precision", cause, _HIGHEST, answer, rounds=True)


def _others(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None) -> Iterator[Guess]:
    """Yield the other layers of the same shape, in the place of this one."""
    others = {
        name.removesuffix(".weight"): value
        for name, value in call.weights.items()
        if name.endswith(".weight") and value.shape == weight.shape and value is not weight
    }
    if call.name != "linear" or len(others) > _MOST_OTHERS:
        return
    for path, other in others.items():
        its = call.weights.get(f"{path}.bias")
        if (its is None) == (bias is None):
            cause = f"the port applies {path} where torch applies {call.module or 'another'}"
            answer = partial(functional.linear, x, other, its)
            yield Guess("layers-swapped", cause, f"apply {call.module or 'that one'}", answer)


def _rounded(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    narrow = functional.linear(_narrow(x), _narrow(weight))
    return narrow if bias is None else narrow + bias


def _narrow(x: Tensor) -> Tensor:
    return x.bfloat16().to(x.dtype)


def _product(a: Tensor, b: Tensor) -> Iterator[Guess]:
    cause = "the operands of a matrix product are rounded to bfloat16 in the port"
    answer = partial(_narrow_product, a, b)
    yield Guess("matmul-precision", cause, _HIGHEST, answer, rounds=True)
    if b.dim() >= 2 and b.shape[-1] == b.shape[-2]:
        cause = "the second operand of a matrix product is transposed in the port"
        answer = partial(torch.matmul, a, b.mT)
        yield Guess("untransposed-square", cause, "x @ w, not x @ w.T", answer)
    if a.dim() >= 2 and a.shape[-1] == a.shape[-2]:
        cause = "the first operand of a matrix product is transposed in the port"
        yield Guess("untransposed-square", cause, "x @ w, not x.T @ w", partial(_first, a, b))


def _narrow_product(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(_narrow(a), _narrow(b))


def _first(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a.mT, b)
