"""``torch.nn.TransformerEncoder`` with the parameters of a problem, as a function of them."""

from collections.abc import Callable
from typing import Any

from parity.cases.encoder_problem import D_FF, D_MODEL, HEADS, Problem
from parity.cases.sides import torch, torch_dtype


def torch_encoder(problem: Problem) -> Callable[..., Any]:
    """Return what calls it with a vector of parameters: its output, and no steps."""

    def function(parameters: Any, x: Any, mask: Any = None) -> Any:
        leaves = problem.by_layer(problem.leaves(parameters))
        weights: dict[str, Any] = {}
        for index in range(problem.layers):
            weights |= _layer(leaves, index)
        if problem.has_final_norm:
            weights |= _norm(leaves, "final_norm", "norm")
        output = torch.func.functional_call(_module(problem), weights, (x,), _masks(mask))
        return output, {}

    return function


def _module(problem: Problem) -> Any:
    """Return the module, whose own weights are not used."""
    nn, dtype = torch.nn, torch_dtype(problem.dtype)
    layer = nn.TransformerEncoderLayer(
        *(D_MODEL, HEADS, D_FF),
        dropout=0.0,
        activation=problem.activation,
        norm_first=problem.norm == "pre",
        batch_first=True,
        dtype=dtype,
    )
    norm = nn.LayerNorm(D_MODEL, dtype=dtype) if problem.has_final_norm else None
    return nn.TransformerEncoder(layer, problem.layers, norm=norm, enable_nested_tensor=False)


def _masks(mask: Any) -> dict[str, Any]:
    """Return a mask as the module takes it: True = hidden."""
    if mask is None:
        return {}
    if (mask == mask[:, :, :1]).all():  # every query sees the same keys
        return {"src_key_padding_mask": ~mask[:, 0, 0]}
    return {"mask": ~mask[0, 0]}


def _layer(leaves: dict[str, Any], index: int) -> dict[str, Any]:
    """Return the weights of a layer by the names of the module."""
    ours, theirs = f"layer.{index}/", f"layers.{index}."
    inner = f"{ours}attention/"
    projections = [f"{inner}{name}" for name in ("query", "key", "value")]
    kernels = [leaves[f"{name}/kernel"].reshape(D_MODEL, -1).T for name in projections]
    return {
        f"{theirs}self_attn.in_proj_weight": torch.cat(kernels),
        f"{theirs}self_attn.in_proj_bias": torch.cat([
            leaves[f"{name}/bias"].reshape(-1) for name in projections
        ]),
        **_dense(leaves, f"{inner}out", f"{theirs}self_attn.out_proj"),
        **_dense(leaves, f"{ours}feed_forward/in", f"{theirs}linear1"),
        **_dense(leaves, f"{ours}feed_forward/out", f"{theirs}linear2"),
        **_norm(leaves, f"{ours}attention_norm", f"{theirs}norm1"),
        **_norm(leaves, f"{ours}feed_forward_norm", f"{theirs}norm2"),
    }


def _dense(leaves: dict[str, Any], ours: str, theirs: str) -> dict[str, Any]:
    bias = leaves[f"{ours}/bias"]
    kernel = leaves[f"{ours}/kernel"].reshape(-1, bias.shape[0])
    return {f"{theirs}.weight": kernel.T, f"{theirs}.bias": bias}


def _norm(leaves: dict[str, Any], ours: str, theirs: str) -> dict[str, Any]:
    return {
        f"{theirs}.weight": leaves[f"{ours}/scale"],
        f"{theirs}.bias": leaves[f"{ours}/bias"],
    }
