"""PyTorch: a reference as it is called: a copy, its inputs, outputs and cotangents, its seed."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from parity.formats import round_to
from parity.frameworks.torch_side import from_numpy
from parity.trees import leaves


def copied(reference: Any, training: bool) -> Any:
    """Return a module's copy on the CPU, in a mode and without gradients; a function as it is."""
    if not isinstance(reference, nn.Module):
        return reference
    model = copy.deepcopy(reference).cpu().train(training)
    model.zero_grad()
    return model


@contextmanager
def seeded(seed: int) -> Iterator[Tensor]:
    """Draw from a seed inside, and leave the caller's generator where it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield torch.get_rng_state()


def called(model: Any, given: Mapping[str, Tensor]) -> Any:
    """Call a reference with its inputs by place ("0", "1", ...) and by name."""
    places = [given[name] for name in sorted(filter(str.isdigit, given), key=int)]
    return model(*places, **{name: value for name, value in given.items() if not name.isdigit()})


def outputs_of(result: Any) -> dict[str, Tensor]:
    """Return what a reference gave, by path.

    Raises:
      TypeError: if it gave anything but tensors and numbers, or nothing.
      ValueError: if two of them have one path.
    """
    named: dict[str, Tensor] = {}
    for path, leaf in leaves(result):
        name = path or "output"
        if not isinstance(leaf, Tensor | float | int):
            raise TypeError(
                "`reference` must return tensors of PyTorch, or dicts, lists and tuples of them; "
                f"got {type(leaf).__name__} as {name!r}."
            )
        if name in named:
            raise ValueError(
                f"`reference` returns two outputs as {name!r}. Rename one of the keys."
            )
        named[name] = torch.as_tensor(leaf)
    if not named:
        raise TypeError("`reference` must return tensors of PyTorch, got nothing.")
    return named


def cotangents_of(outputs: Mapping[str, Tensor], seed: int) -> dict[str, np.ndarray]:
    """Draw a cotangent, normal and in its dtype, for each output that has a gradient."""
    random = np.random.default_rng(seed)
    return {
        f"cotangents/{name}": round_to(
            random.normal(size=tuple(value.shape)), str(value.dtype).removeprefix("torch.")
        )
        for name, value in outputs.items()
        if value.is_floating_point() and value.requires_grad
    }


def pull_back(outputs: Mapping[str, Tensor], cotangents: Mapping[str, np.ndarray]) -> None:
    """Differentiate the sum of outputs times cotangents.

    Raises:
      ValueError: if no output has a gradient.
    """
    terms = [
        (value * from_numpy(cotangents[f"cotangents/{name}"]).to(value.dtype)).sum()
        for name, value in outputs.items()
        if f"cotangents/{name}" in cotangents
    ]
    if terms and not any(term.requires_grad for term in terms):
        raise ValueError(
            "`reference` has no gradient: nothing that it returns hangs on a parameter, or on an "
            "input that is floating. Check with grad=False."
        )
    if terms:
        torch.stack([term.to(terms[0].dtype) for term in terms]).sum().backward()
