"""``parity.record``: what anyone's PyTorch reference computes, in one file that travels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from parity import environment, recording
from parity.formats import fits_float32
from parity.needs import missing
from parity.trees import to_array

KIND = "model"


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
      reference: a module, or a function of tensors. It is copied to the CPU, and stays as it is.
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
      TypeError: if the inputs are no arrays, the reference returns no tensors of PyTorch, or a
        function is to be optimized.
      ValueError: if all but the taps is more than ``max_bytes``, or ``steps`` below 1.
    """
    if reason := missing("torch"):
        raise ImportError(f"`parity.record` runs the reference, which needs PyTorch: {reason}")
    from parity.frameworks import torch_record_side

    _require(reference, optimizer, steps)
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


def _require(reference: Any, optimizer: Any, steps: Any) -> None:
    if not callable(reference):
        raise TypeError(
            f"`reference` must be a module or a function, got {type(reference).__name__}."
        )
    if optimizer is not None and not hasattr(reference, "parameters"):
        raise TypeError("`optimizer` needs a module: a function has no parameters.")
    if type(steps) is not int or steps < 1:
        raise ValueError(f"`steps` must be at least 1, got {steps!r}.")


def _named(inputs: Any) -> dict[str, np.ndarray]:
    if not isinstance(inputs, Mapping):
        places = inputs if isinstance(inputs, tuple) else (inputs,)
        inputs = {str(place): value for place, value in enumerate(places)}
    return {str(name): to_array(value, f"`inputs` {name}") for name, value in inputs.items()}


def _is_doubtful(array: np.ndarray) -> bool:
    """Say whether all values fit float32, as where a float32 buffer has been cast to float64."""
    return array.dtype == np.float64 and bool(array.any()) and fits_float32(array)


def _sample(found: dict[str, np.ndarray], max_bytes: int, seed: int) -> dict[str, list[int]]:
    """Keep as many elements of each tap as there is room for; return the shapes they had."""
    # Of a tap: its own elements, and those of the companion in float64.
    sides = {
        name: [side for side in (name, f"float64/{name}") if side in found]
        for name in found
        if name.startswith("taps/")
    }
    sizes = {name: sum(found[side].nbytes for side in both) for name, both in sides.items()}
    fixed = sum(array.nbytes for name, array in found.items() if "taps/" not in name)
    if fixed + sum(sizes.values()) <= max_bytes:
        return {}
    room = (max_bytes - fixed) // max(len(sides), 1)
    if room < 0 or not sides:
        raise ValueError(
            f"`max_bytes` is {max_bytes:,}, and what is never sampled takes {fixed:,}. "
            "Give a smaller input, or more bytes."
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
