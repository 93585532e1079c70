"""The values inside an encoder, by name, and the order in which they are computed."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from jax_input.leaves import Leaf, read_array
from jax_input.masks import require_mask
from jax_input.requirements import is_concrete

Taps = Mapping[str, Float[np.ndarray, "num_layers ..."]]

POST_ORDER = (
    *("attention_weights", "attention", "attention_sum", "attention_norm"),
    *("feed_forward_hidden", "feed_forward", "feed_forward_sum", "feed_forward_norm"),
)
PRE_ORDER = (
    *("attention_norm", "attention_weights", "attention", "attention_sum"),
    *("feed_forward_norm", "feed_forward_hidden", "feed_forward", "feed_forward_sum"),
)


def read_taps(taps: Any, leaves: list[Leaf]) -> dict[str, Float[np.ndarray, "..."]]:
    """Return the taps that are known, each with an axis of all layers."""
    if not isinstance(taps, Mapping) or not set(taps) & {*POST_ORDER, "final_norm"}:
        raise TypeError(
            "`taps` must be the dict that `encoder` returns beside its output with "
            f"return_taps=True, got {type(taps).__name__}. Its names are "
            f"{', '.join(sorted(POST_ORDER))} and final_norm."
        )
    known = {
        name: read_array(f"taps: {name}", taps[name])
        for name in (*POST_ORDER, "final_norm")
        if name in taps
    }
    stacks = {leaf.stack: {x.layer for x in leaves if x.stack == leaf.stack} for leaf in leaves}
    sizes = {len(layers) for stack, layers in stacks.items() if stack is not None}
    for name, array in known.items():
        is_weights = name == "attention_weights"
        if name != "final_norm" and array.ndim != 4 + is_weights:
            last = "num_heads, query, key" if is_weights else "seq_len, size"
            kind = f"num_layers, batch, {last}"
            raise ValueError(f"`taps: {name}` must have axes [{kind}], got {list(array.shape)}.")
        if name != "final_norm" and len(sizes) == 1 and len(array) not in sizes:
            raise ValueError(
                f"`taps: {name}` must have one entry for each of the {sizes.pop()} layers of "
                f"`params`, got {len(array)}. Take both of one call."
            )
    return known


def read_mask(mask: Any, taps: Taps) -> Bool[np.ndarray, "batch heads query key"] | None:
    """Return a mask that fits the weights, or None where there are none."""
    if not is_concrete(mask):
        raise TypeError("`mask` is traced, and has no values yet. Pass it outside of jit.")
    allowed = np.asarray(require_mask("mask", mask))
    if "attention_weights" not in taps:
        return None
    scores = taps["attention_weights"].shape[1:]
    if allowed.ndim != 4 or any(
        n not in (1, m) for n, m in zip(allowed.shape, scores, strict=True)
    ):
        raise ValueError(
            f"`mask` must have shape [batch, num_heads, query, key], here {list(scores)}, with 1 "
            f"where it is the same for all; got {list(allowed.shape)}."
        )
    return allowed


def first_not_finite(leaves: list[Leaf], taps: Taps) -> tuple[str, str] | None:
    """Return the place where NaN or inf first appears, in the order of computation, and its tap."""
    order = PRE_ORDER if is_pre_norm(leaves, taps) else POST_ORDER
    num_layers = max((len(taps[name]) for name in order if name in taps), default=0)
    for layer in range(num_layers):
        for name in order:
            if name in taps and not np.isfinite(taps[name][layer]).all():
                return f"layers[{layer}].{name}", name
    if "final_norm" in taps and not np.isfinite(taps["final_norm"]).all():
        return "final_norm", "final_norm"
    return None


def is_pre_norm(leaves: list[Leaf], taps: Taps) -> bool:
    """Return whether a sublayer's norm is that of its input, and not that of its sum."""
    if not {"attention", "attention_sum", "attention_norm"} <= set(taps):
        return False
    affine = {leaf.name: leaf.parameter for leaf in leaves if leaf.layer == "layers[0]"}
    part, whole, normed = (
        taps[name][0].astype(np.float64)
        for name in ("attention", "attention_sum", "attention_norm")
    )
    rows = [np.isfinite(x).all(axis=-1) for x in (part, whole, normed)]
    if (rows[2] & ~rows[1]).any():
        return True
    at = rows[0] & rows[1] & rows[2]
    if not at.any():
        return False
    scale, bias = (
        affine.get(f"attention_norm.{name}", np.array([default])).astype(np.float64)
        for name, default in (("scale", 1.0), ("bias", 0.0))
    )

    def distance(x: Float[np.ndarray, "rows d_model"]) -> float:
        centred = x - x.mean(axis=-1, keepdims=True)
        deviation = np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + 1e-5)
        return float(np.abs(centred / deviation * scale + bias - normed[at]).mean())

    return distance(whole[at] - part[at]) < distance(whole[at])
