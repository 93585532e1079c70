"""The encoder step by step, with its gradients; PyTorch's own with the same weights; its training.

In half formats the kink of relu would let a rounding decide a whole gradient, so that no limit is
worth its name there: gradients are compared with gelu, relu forward alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, get_args

from jax_input.config import EncoderConfig, Norm
from jax_input.stack import encoder
from parity.case import Arrays, Case, Tensor
from parity.cases import encoder_steps_taken
from parity.cases.encoder_expected import expected
from parity.cases.encoder_problem import Problem, masks
from parity.cases.expected import FLOATS
from parity.cases.sides import on_jax, on_torch
from parity.cases.tapped import Side, told
from parity.cases.torch_encoder import torch_encoder

_USUAL = Problem()


def cases() -> Iterator[Case]:
    """Yield the cases of ``jax_input.stack``."""
    for problem in _problems():
        yield _twin(problem)
        # PyTorch's own gives NaN where a query sees no key.
        if problem.mask in ("padding", "causal"):
            yield _own(problem)
    yield from encoder_steps_taken.cases(_USUAL)


def _problems() -> Iterator[Problem]:
    for norm in get_args(Norm):
        for activation in ("relu", "gelu"):
            yield Problem(norm=norm, activation=activation)
    yield Problem(dtype="bfloat16")
    for norm, dtype in zip(get_args(Norm), FLOATS[:0:-1], strict=True):
        for mask in (_USUAL.mask, "hidden row"):
            yield Problem(norm=norm, activation="gelu", mask=mask, dtype=dtype)
    for mask in masks():
        if mask not in (_USUAL.mask, "no mask"):
            yield Problem(mask=mask)


def _given(problem: Problem) -> Arrays:
    is_blind = problem.activation == "relu" and problem.dtype != "float32"
    return problem.arrays(differentiated=not is_blind)


def _twin(problem: Problem) -> Case:
    return Case(
        f"encoder/encoder[{problem.parameters}]",
        problem.dtype,
        lambda: _given(problem),
        _port(problem),
        told(problem, on_torch(_reference(problem), has_taps=True)),
        lambda: expected(problem, _given(problem)),
        default=problem == _USUAL,
    )


def _own(problem: Problem) -> Case:
    """Compare with ``torch.nn.TransformerEncoder``, which stores more in half formats."""

    def without_taps(side: Side) -> Side:
        return lambda arrays: _ends(side(arrays))

    def ends() -> dict[str, Tensor]:
        return _ends(expected(problem, _given(problem), coarse=True))

    return Case(
        f"encoder/torch_nn[{problem.parameters}]",
        problem.dtype,
        lambda: _given(problem),
        without_taps(_port(problem)),
        told(problem, on_torch(torch_encoder(problem), has_taps=True)),
        ends,
        default=problem == _USUAL,
    )


def _ends(tensors: Any) -> dict[str, Any]:
    """Leave the steps out."""
    return {
        name: one
        for name, one in tensors.items()
        if name == "output" or name.startswith("gradient/")
    }


def _port(problem: Problem) -> Side:
    return told(problem, _program(replace(problem, mask=_USUAL.mask, dtype=_USUAL.dtype)))


@cache
def _program(problem: Problem) -> Side:
    """Return the port's encoder; compiled once a dtype, since masks are what it is given."""
    config = EncoderConfig(**problem.options)

    def function(parameters: Any, x: Any, mask: Any = None) -> Any:
        return encoder(
            x,
            problem.tree(parameters),
            config,
            mask=mask,
            return_taps=True,
            return_weights=True,
        )

    return on_jax(function, has_taps=True)


def _reference(problem: Problem) -> Callable[..., Any]:
    def function(parameters: Any, x: Any, mask: Any = None) -> Any:
        from torch_ref import config, stack

        return stack.encoder(
            x,
            problem.tree(parameters),
            config.EncoderConfig(**problem.options),
            mask=mask,
            return_taps=True,
            return_weights=True,
        )

    return function
