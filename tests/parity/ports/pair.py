"""What a pair is: a model in PyTorch, its port, and the mistakes that its port may have."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import numpy as np
import torch
from flax import nnx

OUTPUT, GRADIENT, STATE, TRAINING = "output", "gradient", "state", "training"


@dataclass(frozen=True)
class Mistake:
    """One typical mistake of a port.

    Attributes:
      code: the cause that has to be named.
      where: the path in the reference of the module that is ported wrongly, or of the parameter
        or buffer that holds wrong values; "" is the model's own ``forward``.
      seen: the first module of the reference, in the order of its calls, whose output differs and
        that the port surely has too, "" for the model's output; None where it is ``where``
        itself. What aligns more than that may stop earlier, at ``where`` or between the two.
      also: codes that are right as well: they give the same numbers, or say it more closely.
      in_weights: the code of the port is right, and ``Pair.params`` gives the wrong weights.
      shows_in: what differs: the output, only the gradients, only the running statistics after a
        call in training mode, or only which values dropout drops in training mode.
      mutable: the port writes running statistics though it is called for its output alone.
      raises: the port can't be called with such weights at all.
    """

    code: str
    where: str
    seen: str | None = None
    also: tuple[str, ...] = ()
    in_weights: bool = False
    shows_in: Literal["output", "gradient", "state", "training"] = OUTPUT
    mutable: bool = False
    raises: bool = False


def same_inputs(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Give a port what the reference gets."""
    return inputs


@dataclass(frozen=True)
class Pair:
    """A reference and its port.

    Attributes:
      id: the model, then the framework of its port.
      reference: from a seed and the name of a dtype, the model in eval mode; no weight, bias or
        running statistic is at the value that it is initialised with.
      inputs: from a seed and the name of a dtype, its arguments by name, on the host.
      port: from the name of a mistake, or None for the right port, a linen or nnx or equinox
        module, or a function of the weights and the inputs.
      params: from a mistake or None and the reference, the weights as the port takes them: a
        linen module's variables, a nested dict of what an nnx module or a function has.
      mistakes: by name.
      port_inputs: turns the reference's arguments into the port's.
    """

    id: str
    reference: Callable[[int, str], torch.nn.Module]
    inputs: Callable[[int, str], dict[str, np.ndarray]]
    port: Callable[[str | None], Any]
    params: Callable[[str | None, torch.nn.Module], Any]
    mistakes: Mapping[str, Mistake] = field(default_factory=dict)
    port_inputs: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]] = same_inputs

    def __str__(self) -> str:
        return self.id


@torch.no_grad()
def randomized(module: torch.nn.Module, seed: int) -> torch.nn.Module:
    """Draw every weight and running statistic anew, none at 0 or 1, and leave training mode."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        last = name.rsplit(".")[-1]
        if last in {"running_mean", "running_var"} or isinstance(tensor, torch.nn.Parameter):
            tensor.copy_(_drawn(last, torch.randn(tensor.shape, generator=generator)))
    return module.eval()


def _drawn(name: str, noise: torch.Tensor) -> torch.Tensor:
    if name == "running_var":
        return 0.5 + noise.abs()
    if noise.ndim > 1:
        return noise / noise[0].numel() ** 0.5
    return 1 + 0.3 * noise if name == "weight" else 0.3 * noise


def to_dtype(module: torch.nn.Module, dtype: str) -> torch.nn.Module:
    return module.to(getattr(torch, dtype))


def normal(seed: int, dtype: str, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(jax.numpy.dtype(dtype))


def filled(module: nnx.Module, arrays: Mapping[str, Any]) -> nnx.Module:
    """Put a nested dict of arrays into an nnx module, in their own dtypes."""
    for name, value in arrays.items():
        own = module[int(name)] if name.isdigit() else getattr(module, name)
        if isinstance(value, Mapping):
            filled(own, value)
        else:
            assert own.shape == value.shape, (name, own.shape, value.shape)
            own.set_value(jax.numpy.asarray(value))
    return module
