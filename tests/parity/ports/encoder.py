"""Encoder layers: two with the norms after and gelu in linen, one with them before in nnx."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import linen as nn
from flax import nnx

from tests.parity.ports.attention import attend
from tests.parity.ports.numerics import through_bfloat16, unbiased_norm
from tests.parity.ports.pair import normal, randomized, to_dtype
from tests.parity.ports.weights import dense, heads_last, norm, reshaped, split_heads

WIDTH, HEADS, INNER, LAYERS, BATCH, LENGTH, RATE = 32, 4, 48, 2, 3, 6, 0.25
OPTIONS = {"dim_feedforward": INNER, "dropout": RATE, "batch_first": True}


def post_norm(seed: int, dtype: str) -> torch.nn.Module:
    layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, activation="gelu", **OPTIONS)
    model = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    return to_dtype(randomized(model, seed), dtype)


def pre_norm(seed: int, dtype: str) -> torch.nn.Module:
    model = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, norm_first=True, **OPTIONS)
    return to_dtype(randomized(model, seed), dtype)


def inputs(seed: int, dtype: str) -> dict[str, np.ndarray]:
    padding = np.arange(LENGTH) >= np.array([[LENGTH], [4], [2]])
    # Small, so that an eps is seen before the first norm too.
    src = normal(seed, dtype, BATCH, LENGTH, WIDTH) * np.asarray(0.25, jnp.dtype(dtype))
    return {"src": src, "src_key_padding_mask": padding}


class UnbiasedNorm(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:])
        bias = self.param("bias", nn.initializers.zeros, x.shape[-1:])
        return unbiased_norm(x, scale, bias, 1e-5)


class LayerLinen(nn.Module):
    """Norms after the sums; parts with PyTorch's names where Flax has no other for them."""

    wrong: str = ""

    def setup(self) -> None:
        wrong = self.wrong
        by_hand = {"attention_fn": functools.partial(attend, wrong=wrong)}
        self.self_attn = nn.MultiHeadDotProductAttention(
            num_heads=HEADS,
            dropout_rate=RATE,
            broadcast_dropout=wrong == "dropout-broadcast",
            **(by_hand if wrong in {"scale-missing", "softmax-axis"} else {}),
        )
        self.linear1 = nn.Dense(INNER, use_bias=wrong != "bias-missing")
        self.linear2 = nn.Dense(WIDTH)
        after = {"epsilon": 1e-3 if wrong == "eps" else 1e-5}
        self.norm1 = UnbiasedNorm() if wrong == "variance-form" else nn.LayerNorm(**after)
        self.norm2 = nn.LayerNorm(epsilon=1e-5)
        self.dropout = nn.Dropout(RATE)

    def attention(self, x: jax.Array, mask: jax.Array, deterministic: bool) -> jax.Array:
        y = self.self_attn(x, mask=mask, deterministic=deterministic)
        if self.wrong == "dtype-cast":
            y = through_bfloat16(y)
        return self.dropped(y, deterministic)

    def feed_forward(self, x: jax.Array, deterministic: bool) -> jax.Array:
        hidden = self.linear1(x)
        if self.wrong == "wrong-activation":
            hidden = nn.relu(hidden)
        else:
            hidden = nn.gelu(hidden, approximate=self.wrong == "gelu-kind")
        return self.dropped(self.linear2(self.dropped(hidden, deterministic)), deterministic)

    def dropped(self, x: jax.Array, deterministic: bool) -> jax.Array:
        if self.wrong == "train-mode":
            return self.dropout(x, deterministic=False, rng=jax.random.key(0))
        if self.wrong == "dropout-scale" and deterministic:
            return x * (1 - RATE)
        return self.dropout(x, deterministic=deterministic)

    def __call__(self, x: jax.Array, mask: jax.Array, deterministic: bool = True) -> jax.Array:
        wrong = self.wrong
        if wrong == "norm-order":
            x = x + self.attention(self.norm1(x), mask, deterministic)
            return x + self.feed_forward(self.norm2(x), deterministic)
        attended = self.attention(x, mask, deterministic)
        x = self.norm1(attended if wrong == "residual-missing" else x + attended)
        x = x + self.feed_forward(x, deterministic)
        return x if wrong == "missing-norm" else self.norm2(x)


class EncoderLinen(nn.Module):
    wrong: str = ""

    @nn.compact
    def __call__(
        self, src: jax.Array, src_key_padding_mask: jax.Array, train: bool = False
    ) -> jax.Array:
        mask = src_key_padding_mask[:, None, None, :]
        if self.wrong == "additive-mask-as-bool":
            mask = jnp.where(mask, -1e4, 0).astype(src.dtype)
        elif self.wrong != "mask-polarity":
            mask = ~mask
        for layer in range(LAYERS):
            src = LayerLinen(self.wrong, name=f"layers_{layer}")(src, mask, not train)
        return src


class LayerNnx(nnx.Module):
    """Norms before the sums; names of its own."""

    def __init__(self, rngs: nnx.Rngs, wrong: str = "") -> None:
        self.wrong = wrong
        eps = 1e-6 if wrong == "eps" else 1e-5
        self.attention = nnx.MultiHeadAttention(
            num_heads=HEADS, in_features=WIDTH, dropout_rate=RATE, decode=False, rngs=rngs,
            broadcast_dropout=False,
            **({"use_bias": False} if wrong == "bias-missing" else {}),
        )  # fmt: skip
        self.norm_attention = nnx.LayerNorm(WIDTH, epsilon=eps, rngs=rngs)
        self.norm_feed_forward = nnx.LayerNorm(WIDTH, epsilon=1e-5, rngs=rngs)
        self.expand = nnx.Linear(WIDTH, INNER, rngs=rngs)
        self.contract = nnx.Linear(INNER, WIDTH, rngs=rngs)
        self.dropout = nnx.Dropout(RATE, rngs=rngs)

    def feed_forward(self, x: jax.Array) -> jax.Array:
        activation = nnx.gelu if self.wrong == "wrong-activation" else nnx.relu
        y = self.contract(self.dropout(activation(self.expand(x))))
        return self.dropout(activation(y) if self.wrong == "double-activation" else y)

    def __call__(self, src: jax.Array, src_key_padding_mask: jax.Array) -> jax.Array:
        wrong = self.wrong
        mask = ~src_key_padding_mask[:, None, None, :]
        if wrong == "mask-polarity":
            mask = ~mask
        if wrong == "norm-order":
            x = self.norm_attention(src + self.dropout(self.attention(src, mask=mask)))
            return self.norm_feed_forward(x + self.feed_forward(x))
        normed = self.norm_attention(src)
        base = normed if wrong == "residual-after-norm" else src
        x = base + self.dropout(self.attention(normed, mask=mask))
        y = self.feed_forward(x if wrong == "missing-norm" else self.norm_feed_forward(x))
        return y if wrong == "residual-missing" else x + y


def moved_attention(wrong: str | None, layer: torch.nn.MultiheadAttention) -> dict[str, dict]:
    moved = split_heads(layer)
    if wrong == "qkv-permuted":
        moved["key"], moved["value"] = moved["value"], moved["key"]
    if wrong == "heads-interleaved":
        moved["query"] = heads_last(moved["query"])
    if wrong == "untransposed-square":
        kernel = moved["out"]["kernel"]
        moved["out"]["kernel"] = kernel.reshape(WIDTH, WIDTH).T.reshape(kernel.shape)
    return moved


def linen_params(wrong: str | None, model: torch.nn.TransformerEncoder) -> dict[str, dict]:
    layers = list(model.layers)
    if wrong == "layers-swapped":
        layers.reverse()
    first = reshaped if wrong == "untransposed" else dense
    return {
        "params": {
            f"layers_{place}": {
                "self_attn": moved_attention(wrong, layer.self_attn),
                "linear1": first(layer.linear1),
                "linear2": dense(layer.linear2),
                "norm1": norm(layer.norm2 if wrong == "norms-swapped" else layer.norm1),
                "norm2": norm(layer.norm1 if wrong == "norms-swapped" else layer.norm2),
            }
            for place, layer in enumerate(layers)
        }
    }


def nnx_params(wrong: str | None, layer: torch.nn.TransformerEncoderLayer) -> dict[str, dict]:
    attention = moved_attention(wrong, layer.self_attn)
    if wrong == "bias-missing":
        attention = {name: {"kernel": own["kernel"]} for name, own in attention.items()}
    swapped = wrong == "norms-swapped"
    return {
        "attention": attention,
        "norm_attention": norm(layer.norm2 if swapped else layer.norm1),
        "norm_feed_forward": norm(layer.norm1 if swapped else layer.norm2),
        "expand": dense(layer.linear1),
        "contract": (reshaped if wrong == "untransposed" else dense)(layer.linear2),
    }


def nnx_port(wrong: str | None) -> nnx.Module:
    module = LayerNnx(nnx.Rngs(0), wrong or "")
    module.eval()
    return module
