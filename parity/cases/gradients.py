"""Gradients by a second witness, each side alone: what a Taylor expansion leaves over.

Of ``f(x) = sum(c * y + y**2 / 2)``, with ``y`` the output, ``f(x + h v) - f(x) - h <gradient, v>``
shrinks with the square of ``h`` if the gradient is that of the function, and with ``h`` alone if
it is not. ``f`` is summed in float64; what a side computes is its output and its gradient.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from parity.case import Arrays, Case
from parity.cases import embedding, inputs, linen, nnx, positions
from parity.cases.expected import holds, rng
from parity.cases.sides import COTANGENT

_STEPS = (2.0**-1, 2.0**-3, 2.0**-5, 2.0**-7)
# The remainder is n h**2 / 2 times the square of what v moves y by, and the n roundings of y, half
# an ulp each, each way at random, make sqrt(n) 2**-25 y**2 of f. Where y is nine times what v moves
# it by, and n is 216 (`positions/add`), that moves the last order by 0.004. A gradient that is off
# by a thousandth moves it by 0.1.
_SLOPE = 0.05
_DIRECTION = "direction/"

# Case, output, what is moved; rows of padding have no gradient, by design, and are not.
_WITNESSED = (
    (embedding, "embedding/padding[float32, scale 1.7, padding_idx 5, jit]", "padding", 5),
    (embedding, "embedding/out_of_range[clip, jit]", "rows", None),
    (positions, "positions/add[float32, explicit positions, jit]", "sum", None),
    (inputs, "inputs/dropout[rate 0.1, float32, jit]", "dropout", None),
    (inputs, "inputs/transformer_input[padding right, float32, jit]", "sum", 0),
    (linen, "linen/TransformerInput[padding left, float32, eager]", "sum", 0),
    (nnx, "nnx/TransformerInput[padding left, float32, eager]", "sum", 0),
)


def cases() -> Iterator[Case]:
    """Yield the cases of gradients."""
    for module, case_id, output, padding_idx in _WITNESSED:
        case = next(case for case in module.cases() if case.id == case_id)
        yield _witnessed(case, output, padding_idx)


def _witnessed(case: Case, output: str, padding_idx: int | None) -> Case:
    def given() -> Arrays:
        arrays = case.inputs()
        moved = {name: array for name, array in arrays.items() if _is_moved(name, array)}
        random = rng(9)
        directions = {
            f"{_DIRECTION}{name}": random.normal(size=array.shape).astype(np.float32)
            for name, array in moved.items()
        }
        if padding_idx is not None:
            directions[f"{_DIRECTION}embedding"][padding_idx] = 0
        return {**arrays, **directions}

    def on(side: Callable[[Arrays], Arrays]) -> Callable[[Arrays], Arrays]:
        return lambda arrays: {"second order": is_second_order(side, arrays, output)}

    name, _, parameters = case.id.partition("[")
    return replace(
        case,
        id=f"gradients/taylor[{name}, {parameters}",
        inputs=given,
        port=on(case.port),
        reference=on(case.reference),
        expected=lambda: {"second order": holds(len(_STEPS) - 1)},
        default=case.concept == "inputs" and padding_idx is not None,
        batch=(),
    )


def _is_moved(name: str, array: np.ndarray) -> bool:
    return name != COTANGENT and array.dtype == np.float32


def is_second_order(side: Callable[[Arrays], Arrays], arrays: Arrays, output: str) -> np.ndarray:
    """Say of each step but the first whether the remainder has shrunk as its square.

    Args:
      side: computes an output, and the gradients for a cotangent of it.
      arrays: what it is given, and a direction for each array that is moved.
      output: its name.
    """
    point = {name: array for name, array in arrays.items() if not name.startswith(_DIRECTION)}
    weights = point[COTANGENT].astype(np.float64)

    def value(y: np.ndarray) -> float:
        return float(np.sum(weights * y.astype(np.float64) + y.astype(np.float64) ** 2 / 2))

    here = side(point)[output]
    slope = (weights + here.astype(np.float64)).astype(np.float32)
    results = side({**point, COTANGENT: slope})
    given = {name: results[f"gradient/{name}"] for name in point if _is_moved(name, point[name])}
    directions = {n: _along(gradient, arrays[f"{_DIRECTION}{n}"]) for n, gradient in given.items()}
    remainders = []
    for step in _STEPS:
        there = {n: point[n] + np.float32(step) * v for n, v in directions.items()}
        first_order = sum(
            float(np.sum(gradient.astype(np.float64) * _displaced(there[n], point[n])))
            for n, gradient in given.items()
        )
        moved = value(side({**point, **there})[output])
        remainders.append(abs(moved - value(here) - first_order))
    with np.errstate(divide="ignore", invalid="ignore"):
        orders = np.log(np.divide(remainders[:-1], remainders[1:])) / np.log(_STEPS[0] / _STEPS[1])
    return np.abs(orders - 2) < _SLOPE


def _along(gradient: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Turn a direction along the gradient, where an error of it counts most.

    Where the gradient is zero, it may be wrongly so, and the direction stays.
    """
    return np.where(gradient == 0, direction, np.copysign(direction, gradient))


def _displaced(there: np.ndarray, here: np.ndarray) -> np.ndarray:
    return there.astype(np.float64) - here.astype(np.float64)
