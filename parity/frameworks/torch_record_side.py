"""PyTorch: one run of a reference, with everything that a port can be held against."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from parity.frameworks.torch_reference import (
    called,
    copied,
    cotangents_of,
    outputs_of,
    pull_back,
    seeded,
)
from parity.frameworks.torch_side import from_numpy, to_numpy, to_real_numpy
from parity.frameworks.torch_taps import DROPOUT, tapped

Arrays = dict[str, np.ndarray]


@torch.inference_mode(mode=False)
@torch.enable_grad()
def run(
    reference: Callable[..., Any], inputs: Mapping[str, np.ndarray], *, training: bool, seed: int
) -> Arrays:
    """Run a reference once in its own precision, and once in float64.

    Args:
      reference: a module or a function of tensors. It is copied, and left as it is.
      inputs: by keyword, or by place: "0", "1", ...
      training: the mode of a module.
      seed: of what the reference draws, and of the cotangents.

    Returns:
      Arrays by name, as `parity.model_recording.record` lists them. There is nothing in float64
      where the reference draws at random by other means than modules of dropout.
    """
    given = {name: from_numpy(array) for name, array in inputs.items()}
    found = {f"inputs/{name}": array for name, array in inputs.items()}
    model = copied(reference, training)
    if isinstance(model, nn.Module):
        state = {n: value for n, value in model.state_dict().items() if isinstance(value, Tensor)}
        found |= {f"weights/{name}": to_real_numpy(value) for name, value in state.items()}
    masks: dict[str, Tensor] = {}
    with seeded(seed):
        first = _differentiated(model, given, masks, lambda outputs: cotangents_of(outputs, seed))
    found |= {f"masks/{name}": to_numpy(mask) for name, mask in masks.items()} | first
    # A copy of its own: the first one may have changed its buffers.
    wide = _in_float64(copied(reference, training))
    finer = {
        n: value.double() if value.is_floating_point() else value for n, value in given.items()
    }
    with seeded(seed) as undrawn:
        try:
            second = _differentiated(wide, finer, masks, lambda _: first)
        except Exception as error:
            raise ValueError(
                f"`reference` raises in float64: {error}. A function must compute in the dtype "
                "that it is given; a module is passed as itself, and widened."
            ) from error
        repeated = torch.equal(undrawn, torch.get_rng_state())
    kinds = ("outputs/", "taps/", "gradients/") if repeated else ()
    return found | {f"float64/{n}": array for n, array in second.items() if n.startswith(kinds)}


@torch.inference_mode(mode=False)
@torch.enable_grad()
def steps(
    reference: Any,
    inputs: Mapping[str, np.ndarray],
    cotangents: Mapping[str, np.ndarray],
    optimizer: Callable[[Any], torch.optim.Optimizer],
    count: int,
    *,
    training: bool,
    seed: int,
) -> Arrays:
    """Return gradients, parameters and the optimizer's state after each step, by name.

    The loss is the sum of the outputs times their cotangents.
    """
    model = copied(reference, training)
    made = optimizer(model.parameters())
    _require_optimizer(made, model)
    found: Arrays = {}
    with seeded(seed):
        for step in range(1, count + 1):
            made.zero_grad()
            given = {name: from_numpy(array) for name, array in inputs.items()}
            pull_back(outputs_of(called(model, given)), cotangents)
            gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
            if not gradients:
                raise ValueError("`optimizer` would take no step: no output has a gradient.")
            told = {f"gradients/{n}": to_real_numpy(gradient) for n, gradient in gradients.items()}
            made.step()
            told |= {f"parameters/{n}": to_real_numpy(p) for n, p in model.named_parameters()}
            for name, parameter in model.named_parameters():
                state = made.state[parameter].items()
                held = {key: value for key, value in state if value is not None}
                told |= {
                    f"state/{name}/{k}": to_real_numpy(torch.as_tensor(v)) for k, v in held.items()
                }
            found |= {f"steps/{step}/{name}": array for name, array in told.items()}
    return found


def _require_optimizer(made: Any, model: nn.Module) -> None:
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(
            "`optimizer` must make an optimizer of torch.optim from the parameters it is given, "
            f"got {type(made).__name__}."
        )
    own = {id(parameter) for parameter in model.parameters()}
    if any(
        id(parameter) not in own for group in made.param_groups for parameter in group["params"]
    ):
        raise ValueError(
            "`optimizer` must be made from the parameters that it is given: the model is copied, "
            "and others would not move."
        )


def _in_float64(model: Any) -> Any:
    """Widen a module, whose dropout draws no more: what it dropped is dropped again."""
    if not isinstance(model, nn.Module):
        return model
    for module in model.modules():
        if isinstance(module, DROPOUT):
            module.eval()
    return model.double()


def _differentiated(
    model: Any,
    given: Mapping[str, Tensor],
    masks: dict[str, Tensor],
    cotangents: Callable[[Mapping[str, Tensor]], Mapping[str, np.ndarray]],
) -> Arrays:
    """Return outputs, taps, cotangents and gradients of one run, by name."""
    real = {name: value.detach().clone() for name, value in given.items()}
    for value in real.values():
        value.requires_grad_(value.is_floating_point())
    with tapped(model, masks) as taps:
        # Copies: what is differentiated may not be changed in place.
        outputs = outputs_of(called(model, {name: value.clone() for name, value in real.items()}))
    named = {f"outputs/{name}": to_real_numpy(value) for name, value in outputs.items()}
    named |= {f"taps/{name}": array for name, array in taps.items()}
    pulled = {n: array for n, array in cotangents(outputs).items() if n.startswith("cotangents/")}
    pull_back(outputs, pulled)
    sources = {f"inputs/{name}": value for name, value in real.items()}
    if isinstance(model, nn.Module):
        sources |= dict(model.named_parameters())
    gradients = {name: value.grad for name, value in sources.items() if value.grad is not None}
    told = {f"gradients/{name}": to_real_numpy(gradient) for name, gradient in gradients.items()}
    return named | pulled | told
