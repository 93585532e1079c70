"""Weights of PyTorch layers as Flax layers take them."""

import jax
import numpy as np
import torch

Arrays = dict[str, np.ndarray]


def array(tensor: torch.Tensor) -> np.ndarray:
    """Copy a tensor to the host in its own dtype; NumPy has bfloat16 only from an extension."""
    name = str(tensor.dtype).removeprefix("torch.")
    return tensor.detach().double().numpy().astype(jax.numpy.dtype(name))


def dense(layer: torch.nn.Linear) -> Arrays:
    return {"kernel": array(layer.weight).T, "bias": array(layer.bias)}


def norm(layer: torch.nn.LayerNorm) -> Arrays:
    return {"scale": array(layer.weight), "bias": array(layer.bias)}


def untransposed(layer: torch.nn.Linear) -> Arrays:
    return {"kernel": array(layer.weight), "bias": array(layer.bias)}


def reshaped(layer: torch.nn.Linear) -> Arrays:
    """Make the shape right and the order wrong, as whoever reacts to the error's text alone."""
    weight = array(layer.weight)
    return {"kernel": weight.reshape(weight.shape[::-1]), "bias": array(layer.bias)}


def without_bias(layer: torch.nn.Linear) -> Arrays:
    return {"kernel": array(layer.weight).T, "bias": 0 * array(layer.bias)}


def split_heads(layer: torch.nn.MultiheadAttention) -> dict[str, Arrays]:
    """Split the packed projections of an attention into those of Flax, one axis a head."""
    heads, width = layer.num_heads, layer.embed_dim
    shape = (width, heads, width // heads)
    kernels = array(layer.in_proj_weight).reshape(3, width, width)
    biases = array(layer.in_proj_bias).reshape(3, *shape[1:])
    moved = {
        name: {"kernel": kernel.T.reshape(shape), "bias": bias}
        for name, kernel, bias in zip(("query", "key", "value"), kernels, biases, strict=True)
    }
    out = dense(layer.out_proj)
    return moved | {"out": out | {"kernel": out["kernel"].reshape(*shape[1:], width)}}


def heads_last(layer: Arrays) -> Arrays:
    """Read each projected column as (head_dim, num_heads), where it is (num_heads, head_dim)."""

    def swap(given: np.ndarray) -> np.ndarray:
        *_, heads, width = given.shape
        return given.reshape(*given.shape[:-2], width, heads).swapaxes(-1, -2)

    return {name: swap(given) for name, given in layer.items()}
