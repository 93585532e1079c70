"""PyTorch: the bridge to NumPy, bit for bit and never sharing memory; its state of affairs."""

import ml_dtypes
import numpy as np
import torch
from jaxtyping import Shaped


def to_numpy(tensor: Shaped[torch.Tensor, "*shape"]) -> Shaped[np.ndarray, "*shape"]:
    """Copy a tensor to NumPy.

    Args:
      tensor: of any device; one that requires a gradient too.

    Returns:
      The same bits in memory of its own; bfloat16 as that of ml_dtypes.
    """
    plain = tensor.detach().resolve_conj().resolve_neg()
    dense = plain.to_dense() if plain.layout != torch.strided else plain
    host = dense.cpu().contiguous()
    if host.dtype == torch.bfloat16:
        return host.view(torch.int16).numpy().copy().view(ml_dtypes.bfloat16)
    return host.numpy().copy()


def to_real_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Copy a tensor to NumPy; a complex one has real and imaginary part along a last axis."""
    return to_numpy(torch.view_as_real(tensor) if tensor.is_complex() else tensor)


def to_float64(tensor: torch.Tensor) -> np.ndarray:
    """Copy a tensor of any dtype to NumPy in float64."""
    return to_numpy(tensor).astype(np.float64)


def from_numpy(array: Shaped[np.ndarray, "*shape"]) -> Shaped[torch.Tensor, "*shape"]:
    """Copy an array to a tensor on the CPU: the same bits in memory of its own."""
    own = np.array(array, order="C", copy=True)
    if own.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(own.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(own)


def describe() -> dict[str, str]:
    """Return what may change PyTorch's numbers from one machine to the next."""
    cuda = torch.cuda
    return {
        "torch": torch.__version__,
        "torch devices": _cards() if cuda.is_available() else "cpu",
        "torch threads": str(torch.get_num_threads()),
        "torch default dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "torch float32 matmul precision": torch.get_float32_matmul_precision(),
        "torch TF32 (cuda matmul, cudnn)": f"{_matmul_tf32()}, {torch.backends.cudnn.allow_tf32}",
        "torch deterministic algorithms": str(torch.are_deterministic_algorithms_enabled()),
    }


def _cards() -> str:
    return ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))


def _matmul_tf32() -> bool:
    return torch.backends.cuda.matmul.allow_tf32
