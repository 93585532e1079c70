"""PyTorch: one run of a reference, with everything that a port can be held against."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from parity.formats import round_to
from parity.frameworks.torch_side import from_numpy, to_numpy
from parity.trees import leaves

_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)

Arrays = dict[str, np.ndarray]
Inputs = tuple[tuple[Any, ...], Mapping[str, Any]]


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
      Arrays by name, as `parity.model_recording.record` lists them.
    """
    given = {name: from_numpy(array) for name, array in inputs.items()}
    model = _copy(reference, training)
    found = {f"inputs/{name}": array for name, array in inputs.items()}
    if isinstance(model, nn.Module):
        found |= {f"weights/{name}": to_numpy(value) for name, value in model.state_dict().items()}
    masks: dict[str, Tensor] = {}
    first = _differentiated(model, given, {}, seed=seed, drawn=masks)
    wide = _differentiated(
        model.double() if isinstance(model, nn.Module) else model,
        {name: _widened(value) for name, value in given.items()},
        first,
        seed=seed,
        replayed=masks,
    )
    found |= {f"masks/{name}": to_numpy(mask) for name, mask in masks.items()}
    found |= first
    kinds = ("outputs/", "taps/", "gradients/")
    found |= {f"float64/{name}": array for name, array in wide.items() if name.startswith(kinds)}
    return found


def steps(
    reference: Any,
    inputs: Mapping[str, np.ndarray],
    cotangents: Mapping[str, np.ndarray],
    optimizer: Callable[[Any], torch.optim.Optimizer],
    count: int,
    *,
    training: bool,
    seed: int,
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield gradients, parameters and the optimizer's state of each step, by name.

    The loss is the sum of the outputs times their cotangents.
    """
    model = _copy(reference, training)
    made = optimizer(model.parameters())
    for step in range(1, count + 1):
        made.zero_grad()
        with _seeded(seed):
            given = {name: from_numpy(array) for name, array in inputs.items()}
            outputs = _outputs(_called(model, given))
        _pull_back(outputs, cotangents)
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                yield f"steps/{step}/gradients/{name}", to_numpy(parameter.grad)
        made.step()
        for name, parameter in model.named_parameters():
            yield f"steps/{step}/parameters/{name}", to_numpy(parameter)
            for key, value in made.state[parameter].items():
                if value is not None:
                    yield f"steps/{step}/state/{name}/{key}", to_numpy(torch.as_tensor(value))


def _copy(reference: Any, training: bool) -> Any:
    if not isinstance(reference, nn.Module):
        return reference
    return copy.deepcopy(reference).cpu().train(training)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Draw from a seed inside, and leave the caller's generator where it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _widened(value: Tensor) -> Tensor:
    return value.double() if value.is_floating_point() else value


def _differentiated(
    model: Any,
    given: Mapping[str, Tensor],
    cotangents: Mapping[str, np.ndarray],
    *,
    seed: int,
    drawn: dict[str, Tensor] | None = None,
    replayed: Mapping[str, Tensor] | None = None,
) -> Arrays:
    """Return outputs, taps, cotangents and gradients of one run."""
    real = {name: value.detach().clone() for name, value in given.items()}
    for value in real.values():
        value.requires_grad_(value.is_floating_point())
    if isinstance(model, nn.Module):
        model.zero_grad()
    with _tapped(model, drawn, replayed) as taps, _seeded(seed):
        outputs = _outputs(_called(model, real))
    named = {f"outputs/{name}": to_numpy(value) for name, value in outputs.items()}
    named |= {f"taps/{name}": array for name, array in taps.items()}
    pulled = cotangents or _cotangents(outputs, seed)
    named |= {name: array for name, array in pulled.items() if name.startswith("cotangents/")}
    _pull_back(outputs, named)
    sources = {f"inputs/{name}": value for name, value in real.items()}
    if isinstance(model, nn.Module):
        sources |= dict(model.named_parameters())
    return named | {
        f"gradients/{name}": to_numpy(value.grad)
        for name, value in sources.items()
        if value.grad is not None
    }


def _called(model: Any, given: Mapping[str, Tensor]) -> Any:
    places = [given[name] for name in sorted(filter(str.isdigit, given), key=int)]
    return model(*places, **{name: value for name, value in given.items() if not name.isdigit()})


def _outputs(result: Any) -> dict[str, Tensor]:
    named = {path or "output": leaf for path, leaf in leaves(result) if isinstance(leaf, Tensor)}
    if not named:
        raise TypeError(
            "`reference` must return tensors of PyTorch, or a tree of them; "
            f"got {type(result).__name__}. What a port computes is compared, not recorded."
        )
    return named


def _cotangents(outputs: Mapping[str, Tensor], seed: int) -> Arrays:
    random = np.random.default_rng(seed)
    return {
        f"cotangents/{name}": round_to(
            random.normal(size=tuple(value.shape)), str(value.dtype).removeprefix("torch.")
        )
        for name, value in outputs.items()
        if value.is_floating_point() and value.requires_grad
    }


def _pull_back(outputs: Mapping[str, Tensor], cotangents: Mapping[str, np.ndarray]) -> None:
    terms = [
        (value * from_numpy(cotangents[f"cotangents/{name}"]).to(value.dtype)).sum()
        for name, value in outputs.items()
        if f"cotangents/{name}" in cotangents
    ]
    if terms:
        torch.stack([term.to(terms[0].dtype) for term in terms]).sum().backward()


@contextmanager
def _tapped(
    model: Any, drawn: dict[str, Tensor] | None, replayed: Mapping[str, Tensor] | None
) -> Iterator[Arrays]:
    """Collect what every submodule returns; a later call of one gets "#2" and so on."""
    taps: Arrays = {}
    calls: dict[str, int] = {}

    def hook_of(path: str) -> Callable[..., Any]:
        def hook(module: nn.Module, arguments: Any, result: Any) -> Any:
            calls[path] = calls.get(path, 0) + 1
            name = path if calls[path] == 1 else f"{path}#{calls[path]}"
            if isinstance(module, _DROPOUT) and module.training and module.p > 0:
                result = _dropout(name, module, arguments[0], result, drawn, replayed)
            for inner, leaf in leaves(result):
                if isinstance(leaf, Tensor):
                    taps[f"{name}/{inner}" if inner else name] = to_numpy(leaf)
            return result

        return hook

    with ExitStack() as stack:
        for path, module in model.named_modules() if isinstance(model, nn.Module) else ():
            if path:
                stack.callback(module.register_forward_hook(hook_of(path)).remove)
        yield taps


def _dropout(
    name: str,
    module: Any,
    given: Tensor,
    result: Tensor,
    drawn: dict[str, Tensor] | None,
    replayed: Mapping[str, Tensor] | None,
) -> Tensor:
    """Keep the mask that was drawn, or drop again what another run has dropped."""
    if replayed is not None:
        return torch.where(replayed[name], given / (1 - module.p), torch.zeros_like(given))
    if drawn is not None:
        # Where a zero came in, it can't be told, and makes no difference.
        drawn[name] = result != 0
    return result
