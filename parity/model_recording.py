"""``parity.record``: what anyone's PyTorch reference computes, in one file that travels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from parity import environment, recording
from parity.formats import fits_float32, is_floating, widen
from parity.needs import missing
from parity.trees import to_array

KIND = "model"
# Bytes of a sample of a tap: 16 elements of each side, and their places.
_LEAST_SAMPLE = 16 * (8 + 8 + 8)


def record(
    reference: Callable[..., Any],
    inputs: Any,
    path: str | Path,
    *,
    training: bool = False,
    optimizer: Callable[[Any], Any] | None = None,
    steps: int = 1,
    seed: int = 0,
    max_bytes: int | None = None,
) -> str:
    """Run a PyTorch reference, and write what a port of it can be held against.

    `parity.recording.read` gives it back where there is no PyTorch, by name: ``inputs/``;
    ``weights/`` (parameters and buffers); ``outputs/``; ``taps/`` (what each submodule returns);
    ``cotangents/`` (normal, one for each output that has a gradient); ``gradients/`` (of the sum of
    outputs times cotangents, by parameter, and ``inputs/`` of the floating inputs); ``masks/``
    (True where a module of dropout kept); ``float64/`` (outputs, taps and gradients of the same in
    float64); ``steps/1/`` and so on: gradients, parameters and state of an optimizer.

    Args:
      reference: a module, which is copied to the CPU and stays as it is; or a function of tensors,
        which is called as it is, in the dtype of its inputs and with those in float64.
      inputs: an array or tensor, a tuple of them, or a dict by keyword.
      path: of the file; one that is there is replaced once the new one is whole.
      training: whether a module runs in training mode. In float64 `nn.Dropout`, and its forms for
        channels, drop the same. Where anything else draws, nothing is recorded in float64, and
        "float64" of the manifest is False.
      optimizer: makes one from the parameters: ``lambda p: torch.optim.Adam(p, 1e-3)``.
      steps: how many steps of it.
      seed: of what the reference draws, of cotangents, and of which elements are kept.
      max_bytes: of all arrays together. Above that, taps are sampled: ``indices/`` says which
        elements of the flattened array are kept, the manifest's "shapes" what shape it had.

    Returns:
      The SHA-256 of the recording.

    Raises:
      ImportError: if PyTorch is not there.
      TypeError: if the inputs are no arrays, the reference is neither a module nor a function,
        returns anything but tensors of PyTorch and numbers, or ``optimizer`` makes none.
      ValueError: if ``max_bytes`` leaves no room for a sample of each tap, a number is out of its
        range, two leaves have one name, the path can't be one of a new file, no step would be
        taken, or the reference raises in float64.
    """
    if reason := missing("torch"):
        raise ImportError(f"`parity.record` runs the reference, which needs PyTorch: {reason}")
    from parity.frameworks import torch_record_side

    _require(reference, optimizer, steps, seed, max_bytes, Path(path))
    named = _named(inputs)
    found = torch_record_side.run(reference, named, training=training, seed=seed)
    if optimizer is not None:
        cotangents = {name: found[name] for name in found if name.startswith("cotangents/")}
        found |= torch_record_side.steps(
            reference, named, cotangents, optimizer, steps, training=training, seed=seed
        )
    doubtful = sorted(
        name for name in found if name.startswith("float64/") and _is_doubtful(found[name])
    )
    shapes = {} if max_bytes is None else _sample(found, max_bytes, seed)
    facts = environment.installed() | environment.running(load=True)
    manifest = {
        "kind": KIND,
        "made_by": {"torch": facts["torch"]},
        "environment": facts,
        "training": training,
        "seed": seed,
        "float64": any(name.startswith("float64/") for name in found),
        "shapes": shapes,
        "computed in float32": doubtful,
    }
    return recording.write(Path(path), found, manifest)


def _require(
    reference: Any, optimizer: Any, steps: Any, seed: Any, max_bytes: Any, path: Path
) -> None:
    """Refuse what could not be recorded, before anything is computed."""
    recording.require_path(path)
    if not callable(reference):
        raise TypeError(
            f"`reference` must be a module or a function, got {type(reference).__name__}."
        )
    owner = getattr(reference, "__self__", None)
    if hasattr(owner, "parameters"):
        raise TypeError(f"`reference` must be the {type(owner).__name__} itself, got its method.")
    if optimizer is not None and not callable(optimizer):
        raise TypeError(
            "`optimizer` must make one from parameters, as lambda p: torch.optim.Adam(p, 1e-3); "
            f"got {type(optimizer).__name__}."
        )
    if optimizer is not None and not hasattr(reference, "parameters"):
        raise TypeError("`optimizer` needs a module: a function has no parameters.")
    numbers = {"steps": (steps, 1), "seed": (seed, 0)}
    if max_bytes is not None:
        numbers["max_bytes"] = max_bytes, 1
    for name, (number, least) in numbers.items():
        if type(number) is not int or not least <= number < 2**63:
            raise ValueError(f"`{name}` must be an integer of at least {least}, got {number!r}.")


def _named(inputs: Any) -> dict[str, np.ndarray]:
    if isinstance(inputs, list):
        raise TypeError("`inputs` must be an array, a tuple or a dict of them; got a list.")
    if not isinstance(inputs, Mapping):
        places = inputs if isinstance(inputs, tuple) else (inputs,)
        inputs = {str(place): value for place, value in enumerate(places)}
    named = {str(name): to_array(value, f"`inputs` {name}") for name, value in inputs.items()}
    if len(named) < len(inputs):
        raise ValueError(f"`inputs` has two of one name among {list(inputs)}.")
    return named


def _is_doubtful(array: np.ndarray) -> bool:
    """Say whether all values fit float32, as where a float32 buffer has been cast to float64."""
    return is_floating(array.dtype) and bool(array.any()) and fits_float32(widen(array))


def _sample(found: dict[str, np.ndarray], max_bytes: int, seed: int) -> dict[str, list[int]]:
    """Keep as many elements of each tap as there is room for; return the shapes they had."""
    # Of a tap: its own elements, and those of the companion in float64.
    sides = {
        name: [side for side in (name, f"float64/{name}") if side in found]
        for name in found
        if name.startswith("taps/")
    }
    sizes = {name: sum(found[side].nbytes for side in both) for name, both in sides.items()}
    taps = {side for both in sides.values() for side in both}
    fixed = sum(array.nbytes for name, array in found.items() if name not in taps)
    if fixed + sum(sizes.values()) <= max_bytes:
        return {}
    room = (max_bytes - fixed) // max(len(sides), 1)
    if room < _LEAST_SAMPLE or not sides:
        raise ValueError(
            f"`max_bytes` is {max_bytes:,}, and what is never sampled takes {fixed:,}; each of "
            f"{len(sides)} taps needs {_LEAST_SAMPLE}. Give a smaller input, or more bytes."
        )
    shapes, random = {}, np.random.default_rng(seed)
    for name, both in sides.items():
        if sizes[name] <= room:
            continue
        size, shape = found[name].size, found[name].shape
        kept = room // (sum(found[side].itemsize for side in both) + 8)
        indices = np.sort(random.choice(size, size=kept, replace=False))
        shapes[name] = list(shape)
        found |= {side: found[side].reshape(-1)[indices] for side in both}
        found[name.replace("taps/", "indices/", 1)] = indices.astype(np.int64)
    return shapes
