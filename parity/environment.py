"""What a run's numbers may depend on: versions, machine, variables, devices and switches."""

from __future__ import annotations

import importlib
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "torch", "safetensors", "tokenizers")
_PREFIXES = ("JAX_", "XLA_", "NVIDIA_TF32", "LIBTPU_INIT")


def installed() -> dict[str, str]:
    """Return what is known without loading a framework."""
    versions = {name: _version(name) for name in ("jax-input", *_PACKAGES)}
    variables = {name: value for name, value in os.environ.items() if name.startswith(_PREFIXES)}
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": f"{_cpu()}, {os.cpu_count()} cores",
        **versions,
        **dict(sorted(variables.items())),
    }


def running(*, load: bool) -> dict[str, str]:
    """Return what the frameworks say of themselves.

    Args:
      load: whether to load one that this process has not used.
    """
    found: dict[str, str] = {}
    for name in ("jax", "torch"):
        if not load and name not in sys.modules:
            continue
        try:
            found |= importlib.import_module(f"parity.frameworks.{name}_side").describe()
        except Exception as error:  # a framework that is broken is part of the environment
            found[name] = f"can't be loaded: {error}"
    return found


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
