"""Run one function on either side: its output, and its gradients for a given cotangent."""

import functools
import importlib
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from parity.case import Arrays
from parity.frameworks import jax_side

if TYPE_CHECKING:
    import torch

    import torch_ref
    from torch_ref import published
else:

    class _AtFirstUse:
        """A module that is loaded when it is used: cases are replayed where PyTorch is absent."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(importlib.import_module(self._name), attribute)

    torch = _AtFirstUse("torch")
    torch_ref = _AtFirstUse("torch_ref")
    published = _AtFirstUse("torch_ref.published")

MODES = ("jit", "eager")
COTANGENT = "cotangent"

__all__ = [
    *("COTANGENT", "MODES", "built", "key", "on_jax", "on_torch"),
    *("published", "torch", "torch_dtype", "torch_ref"),
]


def key(seed: int) -> jax.Array:
    """Return a key of the generator that compiles in a fifth of the default one's time."""
    return jax.random.key(seed, impl="rbg")


def on_jax(
    function: Callable[..., Any],
    *,
    name: str = "output",
    others: Callable[..., Mapping[str, Any]] | None = None,
    has_taps: bool = False,
    jit: bool = True,
) -> Callable[[Arrays], dict[str, np.ndarray]]:
    """Return what calls a JAX function of keyword arrays.

    Args:
      function: takes arrays by keyword and returns one array.
      name: what the output is called.
      others: takes the same and returns further arrays by name, which are not differentiated. One
        program computes all of them, since compiling is what takes the time.
      has_taps: whether the function returns further arrays by name itself, beside its output.
      jit: whether it is compiled, which also makes its arguments traced.

    Returns:
      Of the arrays by name: the output, the others, and where "cotangent" is among the arrays, the
      gradient of every other floating one as ``gradient/<array>``.
    """

    def call(fixed: Any, real: Any, cotangent: Any) -> dict[str, Any]:
        def with_taps(variables: Any) -> tuple[Any, Mapping[str, Any]]:
            result = function(**fixed, **variables)
            return result if has_taps else (result, {})

        further = {} if others is None else dict(others(**fixed, **real))
        if cotangent is None:
            output, taps = with_taps(real)
            return {name: output, **taps, **further}
        output, pull_back, taps = jax.vjp(with_taps, real, has_aux=True)
        (gradients,) = pull_back(cotangent)
        named = {f"gradient/{key}": gradient for key, gradient in gradients.items()}
        return {name: output, **taps, **further, **named}

    program = jax.jit(call) if jit else call
    lock = Lock()  # cases that share a program are run at the same time, and would compile it twice

    def run(arrays: Arrays) -> dict[str, np.ndarray]:
        fixed = {key: jax_side.from_numpy(array) for key, array in arrays.items()}
        cotangent = fixed.pop(COTANGENT, None)
        floats = [key for key, value in fixed.items() if jnp.issubdtype(value.dtype, jnp.floating)]
        real = {key: fixed.pop(key) for key in floats}
        with lock:
            results = program(fixed, real, cotangent)
        return {key: jax_side.to_numpy(value) for key, value in results.items()}

    return run


def on_torch(
    function: Callable[..., Any],
    *,
    name: str = "output",
    others: Callable[..., Mapping[str, Any]] | None = None,
    has_taps: bool = False,
) -> Callable[[Arrays], dict[str, np.ndarray]]:
    """Return what calls a PyTorch function of keyword tensors, as ``on_jax`` does the other side's.

    Nothing of PyTorch is loaded before that is called.
    """

    def run(arrays: Arrays) -> dict[str, np.ndarray]:
        from parity.frameworks import torch_side

        given = {key: torch_side.from_numpy(array) for key, array in arrays.items()}
        cotangent = given.pop(COTANGENT, None)
        real = {key: value for key, value in given.items() if value.is_floating_point()}
        with torch.no_grad():
            results = {} if others is None else dict(others(**given))
        if cotangent is not None:
            for value in real.values():
                value.requires_grad_()
        output = function(**given)
        if has_taps:
            output, taps = output
            results |= taps
        results[name] = output
        if cotangent is not None:
            # That a scalar's gradient is given saves PyTorch from loading SymPy, half a second.
            (output * cotangent).sum().backward()
            for key, value in real.items():
                gradient = torch.zeros_like(value) if value.grad is None else value.grad
                results[f"gradient/{key}"] = gradient
        return {key: torch_side.to_numpy(value) for key, value in results.items()}

    return run


def built(build: Callable[[], Callable[[Arrays], Arrays]]) -> Callable[[Arrays], Arrays]:
    """Return a side that is made when it is first called, so that one program serves all calls."""
    made = functools.cache(build)
    return lambda arrays: made()(arrays)


def torch_dtype(name: str) -> "torch.dtype":
    """Return PyTorch's dtype of a name."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype
