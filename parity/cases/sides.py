"""Run one function on either side: its output, and its gradients for a given cotangent."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import torch

from parity.frameworks import jax_side, torch_side

Arrays = Mapping[str, np.ndarray]
MODES = ("jit", "eager")
Result = TypeVar("Result")


def key(seed: int) -> jax.Array:
    """Return a key of the generator that compiles in a fifth of the default one's time."""
    return jax.random.key(seed, impl="rbg")


def once(compute: Callable[[], Result]) -> Callable[[], Result]:
    """Return a function that computes at its first call only.

    Later calls return the same result, or raise the same exception: by that the runner knows that
    a reference failed for want of what the port should have drawn.
    """
    done: Future[Result] = Future()

    def get() -> Result:
        if not done.done():
            try:
                done.set_result(compute())
            except Exception as error:
                done.set_exception(error)
        return done.result()

    return get


def on_jax(
    function: Callable[..., Any],
    arrays: Arrays,
    *,
    name: str = "output",
    cotangent: np.ndarray | None = None,
    others: Callable[..., Mapping[str, Any]] | None = None,
    jit: bool = True,
) -> dict[str, np.ndarray]:
    """Call a JAX function of keyword arrays.

    Args:
      function: takes ``arrays`` by keyword and returns one array.
      arrays: what it is given.
      name: what the output is called.
      cotangent: of the output; with it the gradient of every floating argument is returned as
        ``gradient/<argument>``.
      others: takes the same and returns further arrays by name, which are not differentiated. One
        program computes all of them, since compiling is what takes the time.
      jit: whether it is compiled, which also makes its arguments traced.

    Returns:
      The output, the others and the gradients, by name.
    """
    given = {key: jax_side.from_numpy(array) for key, array in arrays.items()}
    real = {key: value for key, value in given.items() if jnp.issubdtype(value.dtype, jnp.floating)}
    fixed = {key: value for key, value in given.items() if key not in real}

    def call(fixed: Any, real: Any, cotangent: Any) -> dict[str, Any]:
        further = {} if others is None else dict(others(**fixed, **real))
        if cotangent is None:
            return {name: function(**fixed, **real), **further}
        output, pull_back = jax.vjp(lambda variables: function(**fixed, **variables), real)
        (gradients,) = pull_back(cotangent)
        named = {f"gradient/{key}": gradient for key, gradient in gradients.items()}
        return {name: output, **further, **named}

    given_cotangent = None if cotangent is None else jax_side.from_numpy(cotangent)
    results = (jax.jit(call) if jit else call)(fixed, real, given_cotangent)
    return {key: jax_side.to_numpy(value) for key, value in results.items()}


def on_torch(
    function: Callable[..., Any],
    arrays: Arrays,
    *,
    name: str = "output",
    cotangent: np.ndarray | None = None,
    others: Callable[..., Mapping[str, Any]] | None = None,
) -> dict[str, np.ndarray]:
    """Call a PyTorch function of keyword tensors, as ``on_jax`` calls the other side."""
    given = {key: torch_side.from_numpy(array) for key, array in arrays.items()}
    real = {key: value for key, value in given.items() if value.is_floating_point()}
    with torch.no_grad():
        results = {} if others is None else dict(others(**given))
    if cotangent is not None:
        for value in real.values():
            value.requires_grad_()
    results[name] = function(**given)
    if cotangent is not None:
        # That a scalar's gradient is given saves PyTorch from loading SymPy, half a second.
        (results[name] * torch_side.from_numpy(cotangent)).sum().backward()
        for key, value in real.items():
            gradient = torch.zeros_like(value) if value.grad is None else value.grad
            results[f"gradient/{key}"] = gradient
    return {key: torch_side.to_numpy(value) for key, value in results.items()}


def torch_dtype(name: str) -> torch.dtype:
    """Return PyTorch's dtype of a name."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype
