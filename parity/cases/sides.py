"""Run one function on either side: its output, and its gradients for a given cotangent."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from parity.frameworks import jax_side, torch_side

Arrays = Mapping[str, np.ndarray]
MODES = ("jit", "eager")


def on_jax(
    function: Callable[..., Any],
    arrays: Arrays,
    *,
    name: str = "output",
    cotangents: Arrays | None = None,
    jit: bool = True,
) -> dict[str, np.ndarray]:
    """Call a JAX function of keyword arrays.

    Args:
      function: takes ``arrays`` by keyword and returns one array.
      arrays: what it is given.
      name: what the output is called.
      cotangents: one entry, named as the output; with it the gradient of every floating argument
        is returned as ``gradient/<argument>``.
      jit: whether it is compiled, which also makes its arguments traced.

    Returns:
      The output and the gradients, by name.
    """
    given = {key: jax_side.from_numpy(array) for key, array in arrays.items()}
    real = {key: value for key, value in given.items() if jnp.issubdtype(value.dtype, jnp.floating)}
    fixed = {key: value for key, value in given.items() if key not in real}
    if cotangents is None:
        call = jax.jit(function) if jit else function
        return {name: jax_side.to_numpy(call(**given))}

    def with_gradients(fixed: Any, real: Any, cotangent: Any) -> Any:
        output, pull_back = jax.vjp(lambda variables: function(**fixed, **variables), real)
        return output, pull_back(cotangent)[0]

    run = jax.jit(with_gradients) if jit else with_gradients
    output, gradients = run(fixed, real, jax_side.from_numpy(cotangents[name]))
    named = {f"gradient/{key}": jax_side.to_numpy(value) for key, value in gradients.items()}
    return {name: jax_side.to_numpy(output), **named}


def on_torch(
    function: Callable[..., Any],
    arrays: Arrays,
    *,
    name: str = "output",
    cotangents: Arrays | None = None,
) -> dict[str, np.ndarray]:
    """Call a PyTorch function of keyword tensors, as ``on_jax`` calls the other side."""
    given = {key: torch_side.from_numpy(array) for key, array in arrays.items()}
    real = {key: value for key, value in given.items() if value.is_floating_point()}
    if cotangents is None:
        return {name: torch_side.to_numpy(function(**given))}
    for value in real.values():
        value.requires_grad_()
    output = function(**given)
    output.backward(torch_side.from_numpy(cotangents[name]))
    named = {
        f"gradient/{key}": torch_side.to_numpy(
            torch.zeros_like(value) if value.grad is None else value.grad
        )
        for key, value in real.items()
    }
    return {name: torch_side.to_numpy(output), **named}


def torch_dtype(name: str) -> torch.dtype:
    """Return PyTorch's dtype of a name."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype
