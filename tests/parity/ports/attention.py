"""Self-attention with padding; PyTorch's mask says what is hidden, Flax's what may be seen."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import linen as nn
from flax import nnx

from tests.parity.ports.numerics import rounded_dot, through_bfloat16
from tests.parity.ports.pair import TRAINING, Mistake, Pair, normal, randomized, to_dtype
from tests.parity.ports.weights import array, dense, heads_last, split_heads

WIDTH, HEADS, BATCH, LENGTH, RATE = 32, 4, 3, 6, 0.25
HEAD_WIDTH = WIDTH // HEADS


class SelfAttention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = torch.nn.MultiheadAttention(WIDTH, HEADS, dropout=RATE, batch_first=True)

    def forward(self, x: torch.Tensor, padding: torch.Tensor | None = None) -> torch.Tensor:
        return self.attn(x, x, x, key_padding_mask=padding, need_weights=False)[0]


def reference(seed: int, dtype: str) -> torch.nn.Module:
    return to_dtype(randomized(SelfAttention(), seed), dtype)


def unpadded_inputs(seed: int, dtype: str) -> dict[str, np.ndarray]:
    return {"x": normal(seed, dtype, BATCH, LENGTH, WIDTH)}


def inputs(seed: int, dtype: str) -> dict[str, np.ndarray]:
    """Pad each row by another length, one not at all and none wholly."""
    padding = np.arange(LENGTH) >= np.array([[LENGTH], [4], [2]])
    return unpadded_inputs(seed, dtype) | {"padding": padding}


def attend(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: jax.Array | None = None,
    wrong: str = "",
    **_: object,
) -> jax.Array:
    """Attend as written by hand, heads on the last axis but one."""
    scale = {"scale-missing": 1.0, "scale-by-width": WIDTH**-0.5, "scale-inverse": HEAD_WIDTH**0.5}
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * scale.get(wrong, HEAD_WIDTH**-0.5)
    if mask is not None:
        scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
    probabilities = nn.softmax(scores, axis=-2 if wrong == "softmax-axis" else -1)
    if wrong == "dtype-cast":
        probabilities = through_bfloat16(probabilities)
    return jnp.einsum("bhqk,bkhd->bqhd", probabilities, value)


class SelfAttentionLinen(nn.Module):
    wrong: str = ""

    @nn.compact
    def __call__(
        self, x: jax.Array, padding: jax.Array | None = None, train: bool = False
    ) -> jax.Array:
        mask = None
        if padding is not None:
            mask = padding[:, None, None, :]
            if self.wrong == "additive-mask-as-bool":
                mask = jnp.where(mask, jnp.finfo(x.dtype).min, 0).astype(x.dtype)
            elif self.wrong != "mask-polarity":
                mask = ~mask
        by_hand = {"scale-missing", "scale-by-width", "scale-inverse", "softmax-axis", "dtype-cast"}
        settings = {"attention_fn": functools.partial(attend, wrong=self.wrong)}
        return nn.MultiHeadDotProductAttention(
            num_heads=HEADS,
            use_bias=self.wrong != "bias-missing",
            qkv_dot_general=rounded_dot if self.wrong == "matmul-precision" else None,
            dropout_rate=RATE,
            # By default one mask would serve the whole batch and all heads.
            broadcast_dropout=self.wrong == "dropout-broadcast",
            deterministic=not train,
            **(settings if self.wrong in by_hand else {}),
        )(x, mask=mask)


class SelfAttentionNnx(nnx.Module):
    """The projections packed, as in PyTorch."""

    def __init__(self, rngs: nnx.Rngs, wrong: str = "") -> None:
        self.wrong = wrong
        self.in_proj = nnx.Linear(WIDTH, 3 * WIDTH, rngs=rngs)
        self.out_proj = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def split(self, x: jax.Array) -> jax.Array:
        if self.wrong == "heads-interleaved":
            return x.reshape(*x.shape[:-1], HEAD_WIDTH, HEADS).swapaxes(-1, -2)
        return x.reshape(*x.shape[:-1], HEADS, HEAD_WIDTH)

    def __call__(self, x: jax.Array, padding: jax.Array | None = None) -> jax.Array:
        query, key, value = map(self.split, jnp.split(self.in_proj(x), 3, axis=-1))
        if self.wrong == "qkv-permuted":
            query, key, value = key, value, query
        mask = None if padding is None else ~padding[:, None, None, :]
        if self.wrong == "mask-polarity":
            mask = ~mask
        if self.wrong == "mask-ignored":
            mask = None
        y = attend(query, key, value, mask, self.wrong)
        if self.wrong == "heads-joined-early":
            y = y.swapaxes(-2, -3)  # batch, heads, length: right for torch's own order of axes
        return self.out_proj(y.reshape(x.shape))


def linen_params(wrong: str | None, model: SelfAttention) -> dict[str, dict]:
    moved = split_heads(model.attn)
    if wrong == "qkv-permuted":
        moved["query"], moved["key"] = moved["key"], moved["query"]
    if wrong == "heads-interleaved":
        moved |= {name: heads_last(moved[name]) for name in ("query", "key", "value")}
    if wrong == "untransposed-square":
        weight = array(model.attn.out_proj.weight)
        moved["out"]["kernel"] = weight.reshape(HEADS, HEAD_WIDTH, WIDTH)
    return {"params": {"MultiHeadDotProductAttention_0": moved}}


def nnx_params(wrong: str | None, model: SelfAttention) -> dict[str, dict[str, np.ndarray]]:
    out = dense(model.attn.out_proj)
    kernel, bias = array(model.attn.in_proj_weight).T, array(model.attn.in_proj_bias)
    if wrong == "untransposed":
        kernel = kernel.T.reshape(kernel.shape)
    if wrong == "untransposed-square":
        out["kernel"] = out["kernel"].T
    if wrong == "bias-not-copied":
        bias = 0 * bias
    return {"in_proj": {"kernel": kernel, "bias": bias}, "out_proj": out}


OUT = {"where": "attn.out_proj.weight", "seen": "attn", "in_weights": True}
IN_PROJ = {"where": "attn.in_proj_weight", "seen": "attn", "in_weights": True}
IN_BOTH = {
    "mask-polarity": Mistake("mask-polarity", "", "attn", also=("additive-mask-as-bool",)),
    "scale-missing": Mistake("scale-sqrt-d", "attn", also=("scale-missing",)),
    "scale-by-width": Mistake("scale-sqrt-d", "attn", also=("scale-width",)),
    "softmax-axis": Mistake("softmax-axis", "attn"),
    "dtype-cast": Mistake("dtype-cast", "attn"),
    "untransposed-square": Mistake("untransposed-square", **OUT),
}
LINEN = {
    "additive-mask-as-bool": Mistake("additive-mask-as-bool", "", "attn", also=("mask-polarity",)),
    "scale-inverse": Mistake("scale-sqrt-d", "attn", also=("scale-inverse",)),
    "bias-missing": Mistake("bias-missing", "attn"),
    "matmul-precision": Mistake("matmul-precision", "attn"),
    "dropout-broadcast": Mistake("dropout-broadcast", "attn", shows_in=TRAINING),
    "qkv-permuted": Mistake("qkv-permuted", **IN_PROJ),
    "heads-interleaved": Mistake("heads-interleaved", **IN_PROJ),
}
NNX = {
    "qkv-permuted": Mistake("qkv-permuted", "attn"),
    "heads-interleaved": Mistake("heads-interleaved", "attn"),
    "heads-joined-early": Mistake("heads-mixed", "attn"),
    "mask-ignored": Mistake("mask-missing", "", "attn"),
    "untransposed": Mistake("untransposed", **IN_PROJ),
    "bias-not-copied": Mistake("bias-missing", "attn.in_proj_bias", "attn", in_weights=True),
}
UNMASKED = {name: own for name, own in (IN_BOTH | LINEN).items() if "mask" not in name}


def linen_port(wrong: str | None) -> nn.Module:
    return SelfAttentionLinen(wrong or "")


def nnx_port(wrong: str | None) -> nnx.Module:
    return SelfAttentionNnx(nnx.Rngs(0), wrong or "")


PAIRS = (
    Pair("attention/linen", reference, inputs, linen_port, linen_params, IN_BOTH | LINEN),
    Pair(
        "attention-unmasked/linen", reference, unpadded_inputs, linen_port, linen_params, UNMASKED
    ),
    Pair("attention/nnx", reference, inputs, nnx_port, nnx_params, IN_BOTH | NNX),
)
