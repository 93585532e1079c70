"""JAX: the bridge to NumPy, bit for bit and never sharing memory; its devices and switches."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Shaped


def to_numpy(array: Shaped[Array, "*shape"]) -> Shaped[np.ndarray, "*shape"]:
    """Copy an array to NumPy: the same bits in memory of its own."""
    return np.array(array, copy=True)


def from_numpy(array: Shaped[np.ndarray, "*shape"]) -> Shaped[Array, "*shape"]:
    """Copy an array to the default device.

    Args:
      array: of any dtype that JAX has.

    Returns:
      The same bits in memory of its own; the copy is over when this returns.

    Raises:
      ValueError: if JAX would cut the dtype to 32 bits, x64 being off.
    """
    kept = jax.dtypes.canonicalize_dtype(array.dtype)
    if kept != array.dtype:
        raise ValueError(
            f"`array` is {array.dtype.name}, which JAX cuts to {kept.name} while x64 is off. "
            f"Cast it to {kept.name}, or call this under `with jax.enable_x64(True)`."
        )
    # JAX may keep the host buffer itself, or still be reading it: so it gets one of its own.
    return jax.block_until_ready(jax.device_put(np.array(array, order="C", copy=True)))


def missing_device(platform: str) -> str:
    """Say why there is no device of a platform; "" if there is one."""
    try:
        jax.devices(platform)
    except RuntimeError:
        return f"no {platform} here: JAX has {', '.join(_platforms())}"
    return ""


def default_device() -> str:
    """Return the platform that computations run on unless told otherwise."""
    return jax.default_backend()


@contextmanager
def configured(platform: str | None, matmul_precision: str | None) -> Iterator[None]:
    """Run what is inside on a platform, with a matmul precision; None leaves either alone."""
    device = jax.default_device(jax.devices(platform)[0]) if platform else nullcontext()
    precision = (
        jax.default_matmul_precision(matmul_precision) if matmul_precision else nullcontext()
    )
    with device, precision:
        yield


def describe() -> dict[str, str]:
    """Return what may change JAX's numbers from one machine to the next."""
    config: Any = jax.config
    devices = ", ".join(f"{device.platform} ({device.device_kind})" for device in jax.devices())
    return {
        "jax": jax.__version__,
        "jax devices": devices,
        "jax x64": str(config.jax_enable_x64),
        "jax matmul precision": config.jax_default_matmul_precision or "default",
        "jax default prng": config.jax_default_prng_impl,
    }


def _platforms() -> list[str]:
    return sorted({device.platform for device in jax.devices()} | {"cpu"})
