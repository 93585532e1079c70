"""Arrays in pinned host memory, from where a device fetches them without a further copy.

``torch.Tensor.pin_memory`` in JAX's terms: an array with the memory kind "pinned_host".
``import jax_input`` does not load this module: write ``from jax_input import memory``.
"""

import warnings
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import SingleDeviceSharding

PINNED = "pinned_host"

Tree = TypeVar("Tree")


def pin_memory(tree: Tree) -> Tree:
    """Put every array of a tree in pinned host memory, where its backend has that.

    Arrays keep their bits, dtype, devices and sharding. NumPy arrays are copied, and go to the
    default device. Traced arrays are moved inside the program, and arrays that are pinned already
    stay as they are. The results are committed to their devices.

    Bring an array back where it is used, inside jit or outside, by ``jax.device_put(array,
    jax.memory.Space.Device)``. JAX refuses to mix the two kinds in one operation, and to
    differentiate a result that is in host memory; a gradient through this call is right.

    Args:
      tree: any pytree whose leaves are JAX or NumPy arrays.

    Returns:
      The tree with each array in pinned host memory; arrays whose backend has none as they came,
      with one warning (UserWarning) that says which memories there are.

    Raises:
      TypeError: if a leaf is no JAX or NumPy array of numbers, or JAX would cut it to 32 bits.

    Reference: ``torch.Tensor.pin_memory``.
    """
    lacking: dict[str, list[str]] = {}

    def pin(path: tuple[Any, ...], leaf: Any) -> Any:
        _require_array(jax.tree_util.keystr(path), leaf)
        device = _device_of(leaf)
        kinds = _memory_kinds(device)
        if PINNED not in kinds:
            lacking[device.platform] = kinds
            return leaf
        return _pinned(leaf, device)

    pinned = jax.tree_util.tree_map_with_path(pin, tree)
    for platform, kinds in lacking.items():
        warnings.warn(
            f"Nothing was pinned: the backend {platform} has no pinned host memory; its memories: "
            f"{', '.join(kinds) or 'none'}. The arrays stay where they were, which is as right, "
            "only slower to transfer.",
            stacklevel=2,
        )
    return pinned


def _pinned(leaf: np.ndarray | Array, device: jax.Device) -> Array:
    if isinstance(leaf, jax.core.Tracer):  # the sharding is known only once it is compiled
        source = jax.typeof(leaf).memory_space  # without it the gradient stays on the host
        return jax.device_put(leaf, jax.memory.Space.Host, src=source)
    if isinstance(leaf, jax.Array):
        return jax.device_put(leaf, leaf.sharding.with_memory_kind(PINNED))
    # On CPU JAX takes over the memory of an aligned NumPy array, so that writing to it later would
    # change the result: `may_alias=False` does not prevent it here (jax 0.10.2).
    return jax.device_put(leaf.copy(), SingleDeviceSharding(device, memory_kind=PINNED))


def _device_of(leaf: np.ndarray | Array) -> jax.Device:
    """Return one device of this process that holds the array, or that is to hold it."""
    if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer):
        return next(iter(leaf.sharding.addressable_devices))
    with jax.ensure_compile_time_eval():  # under jit too
        return next(iter(jnp.zeros(()).devices()))


def _memory_kinds(device: jax.Device) -> list[str]:
    return [memory.kind for memory in device.addressable_memories()]


def _require_array(place: str, leaf: Any) -> None:
    if isinstance(leaf, jax.Array):
        return
    if not isinstance(leaf, np.ndarray):
        raise TypeError(
            f"`tree`{place} must be a JAX or NumPy array, got {type(leaf).__name__}. "
            "Pass the arrays alone, or convert it by np.asarray."
        )
    is_number = leaf.dtype == np.bool_ or jnp.issubdtype(leaf.dtype, np.number)
    if not is_number or not leaf.dtype.isnative:
        raise TypeError(
            f"`tree`{place} must hold numbers in the byte order of this machine, got "
            f"{leaf.dtype.str}. Convert it by astype."
        )
    kept = jax.dtypes.canonicalize_dtype(leaf.dtype)
    if kept != leaf.dtype:
        raise TypeError(
            f"`tree`{place} is {leaf.dtype}, which JAX cuts to {kept} where x64 is off. "
            f"Cast it to {kept}, or call this under `with jax.enable_x64(True)`."
        )
