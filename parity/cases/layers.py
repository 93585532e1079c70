"""Norm, feed-forward network and one layer: outputs, every step, gradients, places of dropout."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, get_args

import numpy as np

import jax_input.ffn
import jax_input.layers
import jax_input.normalization
from jax_input.config import Activation, EncoderConfig, Norm, NormForm
from parity.case import Case, Tensor
from parity.cases import running_error as tape
from parity.cases.encoder_expected import Computation, begun, expected, tensor
from parity.cases.encoder_problem import D_MODEL, LENGTH, Problem, masks
from parity.cases.expected import FLOATS, rng
from parity.cases.running_error import given
from parity.cases.sides import COTANGENT, key, on_jax, on_torch, torch
from parity.cases.tapped import Side, told
from parity.formats import round_to


def cases() -> Iterator[Case]:
    """Yield the cases of ``jax_input.layers``."""
    for form in get_args(NormForm):
        for dtype in FLOATS:
            yield _layer_norm(form, dtype)
    for activation in get_args(Activation):
        for dtype in FLOATS if activation == "gelu" else FLOATS[:1]:
            yield _feed_forward(Problem("feed_forward", activation=activation, dtype=dtype))
    for problem in _layers():
        yield _encoder_layer(problem)
    yield _dropout(Problem("layer"))


def _layers() -> Iterator[Problem]:
    for norm in get_args(Norm):
        yield Problem("layer", norm=norm)
        for dtype in FLOATS:
            yield Problem("layer", norm=norm, activation="gelu", dtype=dtype)
    for mask in masks():
        if mask != "padding":
            yield Problem("layer", "pre", "gelu", mask)


def _layer_norm(form: NormForm, dtype: str) -> Case:
    """Take vectors of all sizes, so that eps tells, and off zero, so that the mean does."""
    random = rng(43)
    sizes = 10.0 ** np.linspace(-3, 0, LENGTH)[:, None]
    shape = (2, LENGTH, D_MODEL)
    wide = {
        "x": sizes * (1 + random.normal(size=shape)),
        "scale": 1 + 0.2 * random.normal(size=D_MODEL),
        "bias": random.normal(size=D_MODEL),
        COTANGENT: sizes * random.normal(size=shape),
    }
    arrays = {name: round_to(array, dtype) for name, array in wide.items()}

    def port(x: Any, scale: Any, bias: Any) -> Any:
        params = {"scale": scale, "bias": bias}
        return jax_input.normalization.layer_norm(x, params, form=form)

    def reference(x: Any, scale: Any, bias: Any) -> Any:
        from torch_ref.normalization import layer_norm

        params = {"scale": scale, "bias": bias}
        return layer_norm(x, params, form=form)

    def exact() -> dict[str, Tensor]:
        nodes = {name: given(arrays[name]) for name in ("x", "scale", "bias")}
        output = Computation(Problem(dtype=dtype), None).norm(nodes["x"], nodes, "", form)
        slopes = tape.gradients(output, given(arrays[COTANGENT]), [*nodes.values()])
        named = zip(nodes, slopes, strict=True)
        tensors = {f"gradient/{name}": tensor(tape.narrowed(s, dtype)) for name, s in named}
        return {"output": tensor(output), **tensors}

    return Case(
        f"layers/layer_norm[{form}, {dtype}, jit]",
        dtype,
        lambda: arrays,
        on_jax(port),
        on_torch(reference),
        exact,
        default=(form, dtype) == ("standard", "float32"),
    )


def _feed_forward(problem: Problem) -> Case:
    def port(parameters: Any, x: Any) -> Any:
        tree = problem.tree(parameters)
        return jax_input.ffn.feed_forward(
            x,
            tree,
            activation=problem.activation,
        )

    def reference(parameters: Any, x: Any) -> Any:
        from torch_ref.ffn import feed_forward

        tree = problem.tree(parameters)
        return feed_forward(x, tree, activation=problem.activation)

    def without_taps() -> dict[str, Tensor]:
        tensors = expected(problem, problem.arrays())
        return {name: one for name, one in tensors.items() if name != "feed_forward_hidden"}

    return Case(
        f"layers/feed_forward[{problem.parameters}, jit]",
        problem.dtype,
        problem.arrays,
        told(problem, on_jax(port)),
        told(problem, on_torch(reference)),
        without_taps,
        default=(problem.activation, problem.dtype) == ("gelu", "float32"),
    )


def _encoder_layer(problem: Problem) -> Case:
    return Case(
        f"layers/encoder_layer[{problem.parameters}]",
        problem.dtype,
        problem.arrays,
        told(problem, _program(replace(problem, mask="padding", dtype="float32"))),
        told(problem, on_torch(_reference(problem), has_taps=True)),
        lambda: expected(problem, problem.arrays()),
        default=False,
    )


@cache
def _program(problem: Problem) -> Side:
    """Return the port's layer; compiled once a dtype, since masks are what it is given."""
    return on_jax(_port(problem), has_taps=True)


def _port(problem: Problem, **options: Any) -> Any:
    config = EncoderConfig(**{**problem.options, **options})

    def function(parameters: Any, x: Any, mask: Any = None) -> Any:
        return jax_input.layers.encoder_layer(
            x,
            problem.tree(parameters),
            config,
            mask=mask,
            dropout_key=key(0) if config.dropout_rate else None,
            return_taps=True,
            return_weights=True,
        )

    return function


def _reference(problem: Problem, **options: Any) -> Any:
    def function(parameters: Any, x: Any, mask: Any = None) -> Any:
        from torch_ref import config, dropout_masks, layers

        chosen = config.EncoderConfig(**{**problem.options, **options})
        shapes = dropout_masks.mask_shapes(chosen, *x.shape[:2])
        none = {name: torch.zeros(shape, dtype=torch.bool) for name, shape in shapes.items()}
        return layers.encoder_layer(
            x,
            problem.tree(parameters),
            chosen,
            mask=mask,
            dropout_masks=none if chosen.dropout_rate else None,
            return_taps=True,
            return_weights=True,
        )

    return function


def _dropout(problem: Problem) -> Case:
    """Drop everything: what is left shows each of the four places where entries are dropped."""
    arrays = problem.arrays(differentiated=False)

    def exact() -> dict[str, Tensor]:
        computation = Computation(problem, arrays["mask"], drops=True)
        output = computation.output(given(arrays["x"]), begun(problem, arrays["parameters"]))
        named = {name: tensor(tap) for name, tap in computation.taps.items()}
        for name in ("attention", "feed_forward"):
            named[name] = replace(named[name], uniform="only the bias is left")
        return {**named, "output": tensor(output)}

    return Case(
        f"layers/dropout[rate 1, {problem.parameters}, jit]",
        problem.dtype,
        lambda: arrays,
        on_jax(_port(problem, dropout_rate=1.0), has_taps=True),
        on_torch(_reference(problem, dropout_rate=1.0), has_taps=True),
        exact,
        default=False,
    )
