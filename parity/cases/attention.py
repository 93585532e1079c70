"""Attention of one head and several: outputs, weights, gradients, dropout of the weights.

In half formats JAX rounds what comes back to the weights, and the twin does not: it rounds a
gradient once, after a sum in float32. Where queries, keys and values are exact, that shows: so
there they are compared forward alone. Behind a projection both are as far off.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import jax
import numpy as np

import jax_input.attention
from parity.case import Arrays, Case, Tensor
from parity.cases import running_error as tape
from parity.cases.encoder_expected import Computation, expected, tensor
from parity.cases.encoder_problem import BATCH, HEADS, LENGTH, Problem, masks, whole_mask
from parity.cases.expected import FLOATS, holds, rng
from parity.cases.running_error import given
from parity.cases.sides import COTANGENT, MODES, on_jax, on_torch
from parity.cases.tapped import Side, told
from parity.formats import round_to

_RATE = 0.25
_HEAD_DIM = 8
_DRAWN = 4


def cases() -> Iterator[Case]:
    """Yield the cases of ``jax_input.attention``."""
    for mask in masks():
        yield _dot_product(mask, "float32", "jit", default=mask == "hidden row")
    for dtype in FLOATS[1:]:
        for mask in ("padding", "hidden row"):
            yield _dot_product(mask, dtype, "jit")
    yield _dot_product("hidden row", "float32", MODES[1])
    for dtype in FLOATS:
        for mask in ("padding", "hidden row"):
            yield _multi_head(Problem("attention", mask=mask, dtype=dtype))
    yield _dropout()


def _vectors(mask: np.ndarray | None, dtype: str) -> dict[str, np.ndarray]:
    """Return what one head takes; what no query may see, and queries that see nothing, are NaN."""
    random = rng(45)
    names = ("query", "key", "value", COTANGENT)
    shape = (BATCH, LENGTH, HEADS, _HEAD_DIM)
    arrays = {name: round_to(random.normal(size=shape), dtype) for name in names}
    if mask is None:
        return arrays
    looks, is_seen = _uses(mask)
    arrays["query"][~looks] = np.nan
    for name in ("key", "value"):
        arrays[name][~is_seen] = np.nan
    return {**arrays, "mask": mask}


def _given(mask: str, dtype: str) -> dict[str, np.ndarray]:
    arrays = _vectors(whole_mask(mask), dtype)
    if dtype != "float32":
        del arrays[COTANGENT]
    return arrays


def _uses(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which queries look, and which keys are seen, [batch, seq_len, num_heads]."""
    whole = np.broadcast_to(mask, (BATCH, HEADS, LENGTH, LENGTH))
    looks, is_seen = np.any(whole, axis=3), np.any(whole, axis=2)
    return np.swapaxes(looks, 1, 2), np.swapaxes(is_seen, 1, 2)


@cache
def _program(*, jit: bool) -> Side:
    """Return the port's attention; compiled once a dtype, since masks are what it is given."""

    def port(**arrays: Any) -> Any:
        output, weights = jax_input.attention.dot_product_attention(**arrays, return_weights=True)
        # Without weights they are computed again in the backward pass.
        return jax_input.attention.dot_product_attention(**arrays), {
            "weights": weights,
            "output_beside_weights": output,
        }

    return on_jax(port, jit=jit, has_taps=True)


def _dot_product(mask: str, dtype: str, mode: str, *, default: bool = False) -> Case:
    def reference(**arrays: Any) -> Any:
        from torch_ref.attention import dot_product_attention

        output, weights = dot_product_attention(**arrays, return_weights=True)
        return output, {"weights": weights, "output_beside_weights": output}

    return Case(
        f"attention/dot_product[{mask}, {dtype}, {mode}]",
        dtype,
        lambda: _given(mask, dtype),
        _program(jit=mode == "jit"),
        on_torch(reference, has_taps=True),
        lambda: _averaged(mask, dtype),
        default=default,
    )


def _averaged(mask: str, dtype: str) -> dict[str, Tensor]:
    arrays = _given(mask, dtype)
    names = ("query", "key", "value")
    nodes = [given(np.nan_to_num(arrays[name].astype(np.float64))) for name in names]
    computation = Computation(Problem("attention", dtype=dtype), arrays.get("mask"))
    output = computation.attend(nodes[0], nodes[1], nodes[2])
    tensors = {
        "output": tensor(output),
        "weights": tensor(computation.taps["weights"]),
        "output_beside_weights": tensor(output),
    }
    if COTANGENT not in arrays:
        return tensors
    slopes = tape.gradients(output, given(arrays[COTANGENT]), nodes)
    named = zip(names, slopes, strict=True)
    return tensors | {f"gradient/{name}": tensor(slope) for name, slope in named}


def _multi_head(problem: Problem) -> Case:
    def on(attend: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        def function(parameters: Any, x: Any, mask: Any) -> Any:
            tree = problem.tree(parameters)
            output, weights = attend()(x, tree, mask=mask, return_weights=True)
            return output, {"weights": weights}

        return function

    def reference() -> Callable[..., Any]:
        from torch_ref.attention import multi_head_attention

        return multi_head_attention

    return Case(
        f"attention/multi_head[{problem.parameters}]",
        problem.dtype,
        problem.arrays,
        told(problem, on_jax(on(lambda: jax_input.attention.multi_head_attention), has_taps=True)),
        told(problem, on_torch(on(reference), has_taps=True)),
        lambda: expected(problem, problem.arrays()),
        default=(problem.mask, problem.dtype) == ("padding", "bfloat16"),
    )


def _dropout() -> Case:
    """Let the port draw which weights it drops; values that are unit vectors show them."""
    arrays = _vectors(None, "float32")
    arrays.pop(COTANGENT)
    unit = np.eye(LENGTH, dtype=np.float32)[None, :, None]
    arrays["value"] = np.broadcast_to(unit, (BATCH, LENGTH, HEADS, LENGTH)).copy()

    def port(**arrays: Any) -> Any:
        output = jax_input.attention.dot_product_attention(
            # Of "rbg", one key for all heads would give each its own mask under `jax.vmap`.
            **arrays,
            dropout_rate=_RATE,
            dropout_key=jax.random.key(0, impl="threefry2x32"),
        )
        return output, {}

    def reference(**arrays: Any) -> Any:
        from torch_ref.attention import dot_product_attention

        kept = np.ones((BATCH, HEADS, LENGTH, LENGTH), bool)
        return dot_product_attention(
            **arrays, dropout_rate=_RATE, dropout_mask=_from_numpy(kept)
        ), {}

    return Case(
        f"attention/dropout[rate {_RATE}, float32, jit]",
        "float32",
        lambda: arrays,
        _drawing(on_jax(port, has_taps=True)),
        _named(on_torch(reference, has_taps=True)),
        lambda: {"dropout": _kept(arrays), "mask": holds(_DRAWN)},
        drops=("dropout",),
        default=False,
    )


def _from_numpy(array: np.ndarray) -> Any:
    from parity.frameworks import torch_side

    return torch_side.from_numpy(array)


def _kept(arrays: Arrays) -> Tensor:
    nodes = [given(arrays[name]) for name in ("query", "key", "value")]
    output = Computation(Problem("attention"), None).attend(nodes[0], nodes[1], nodes[2])
    return tensor(tape.scaled(output, 1 / (1 - _RATE)))


def _drawing(side: Callable[[Arrays], Arrays]) -> Callable[[Arrays], Arrays]:
    """Return what also says how a side drew: its share, and that no two axes have one mask."""

    def run(arrays: Arrays) -> Arrays:
        output = side(arrays)["output"]
        mask = output != 0
        sigma = (_RATE * (1 - _RATE) / mask.size) ** 0.5
        properties = [abs(mask.mean() - (1 - _RATE)) < 5 * sigma]
        for axis in range(3):  # examples, queries, heads
            properties.append(bool((np.take(mask, 0, axis) != np.take(mask, 1, axis)).any()))
        return {"dropout": output, "mask": np.array(properties)}

    return run


def _named(side: Callable[[Arrays], Arrays]) -> Callable[[Arrays], Arrays]:
    return lambda arrays: {"dropout": side(arrays)["output"], "mask": holds(_DRAWN).exact}
