"""PyTorch: what the modules of a model are, which of its tensors are tied, and its weights."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from parity.formats import dtype_of
from parity.frameworks.torch_side import from_numpy, to_numpy
from parity.placement_units import Layer, Spec

# A subclass counts as what it derives from; the first that fits decides.
KNOWN: dict[type[nn.Module], tuple[str, ...]] = {
    nn.Linear: ("in_features", "out_features"),
    nn.Embedding: ("num_embeddings", "embedding_dim"),
    nn.EmbeddingBag: ("num_embeddings", "embedding_dim"),
    **dict.fromkeys(
        (nn.Conv1d, nn.Conv2d, nn.Conv3d), ("in_channels", "out_channels", "kernel_size", "groups")
    ),
    **dict.fromkeys(
        (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
        ("in_channels", "out_channels", "kernel_size", "groups"),
    ),
    nn.LayerNorm: ("normalized_shape", "eps"),
    nn.RMSNorm: ("normalized_shape", "eps"),
    nn.GroupNorm: ("num_groups", "num_channels", "eps"),
    **dict.fromkeys(
        (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
        ("num_features", "eps", "momentum"),
    ),
    **dict.fromkeys(
        (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), ("num_features", "eps")
    ),
    nn.MultiheadAttention: ("embed_dim", "num_heads", "kdim", "vdim", "batch_first"),
    **dict.fromkeys(
        (nn.LSTM, nn.GRU, nn.RNN),
        ("input_size", "hidden_size", "num_layers", "bidirectional", "batch_first"),
    ),
    **dict.fromkeys((nn.LSTMCell, nn.GRUCell, nn.RNNCell), ("input_size", "hidden_size")),
}


def layers(module: nn.Module) -> dict[str, Layer]:
    """Return what every module is, by path; that of the model itself is ""."""
    return {path: _layer(part) for path, part in module.named_modules(remove_duplicate=False)}


def _layer(module: nn.Module) -> Layer:
    for base, names in KNOWN.items():
        if isinstance(module, base):
            return Layer(base.__name__, {name: getattr(module, name) for name in names})
    return Layer(type(module).__name__)


def state(source: nn.Module | Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a model or of its state_dict, which may hold other things."""
    held = source.state_dict() if isinstance(source, nn.Module) else source
    return {name: value for name, value in held.items() if isinstance(value, Tensor)}


def weights(source: nn.Module | Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return copies of all tensors of a model or of its state_dict, by name."""
    return {name: to_numpy(tensor) for name, tensor in state(source).items()}


def specs(source: nn.Module | Mapping[str, Any]) -> dict[str, Spec]:
    """Return shape and dtype of all tensors of a model or of its state_dict, by name."""
    return {
        name: Spec(tuple(tensor.shape), dtype_of(str(tensor.dtype).removeprefix("torch.")))
        for name, tensor in state(source).items()
    }


def tied(source: nn.Module | Mapping[str, Any]) -> dict[str, str]:
    """Return the other names of tensors that are one, each with the first name."""
    first: dict[Any, str] = {}
    found = {}
    for name, tensor in state(source).items():
        if not tensor.numel():
            continue
        place = (tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride())
        if (known := first.setdefault(place, name)) != name:
            found[name] = known
    return found


def to_state(
    arrays: Mapping[str, np.ndarray], like: nn.Module | Mapping[str, Any]
) -> dict[str, Tensor]:
    """Return a state_dict with arrays, and copies of what it has besides them."""
    return {
        name: from_numpy(arrays[name]) if name in arrays else tensor.detach().cpu().clone()
        for name, tensor in state(like).items()
    }
