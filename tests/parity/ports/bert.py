"""Hugging Face's BERT, small, with the mean of its real tokens, and a linen port written by hand.

The port has a dense layer each for query, key and value, as most ports of BERT have.
"""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import linen as nn
from transformers import BertConfig, BertModel

from tests.parity.ports.numerics import through_bfloat16
from tests.parity.ports.pair import randomized, to_dtype
from tests.parity.ports.weights import array, dense, norm

WIDTH, HEADS, INNER, LAYERS, BATCH, LENGTH = 32, 4, 48, 2, 3, 6
VOCABULARY, POSITIONS, KINDS, EPS = 30, 8, 2, 1e-12
HEAD_WIDTH = WIDTH // HEADS


class Sentence(torch.nn.Module):
    """BERT, and the mean over the tokens that are no padding."""

    def __init__(self) -> None:
        super().__init__()
        config = BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=INNER,
            max_position_embeddings=POSITIONS,
            type_vocab_size=KINDS,
            attn_implementation="eager",
        )
        self.bert = BertModel(config, add_pooling_layer=False)

    def forward(
        self,
        input_ids: torch.Tensor,
        token_type_ids: torch.Tensor,
        attention_mask: torch.Tensor,
    ) -> torch.Tensor:
        found = self.bert(input_ids, attention_mask, token_type_ids).last_hidden_state
        real = attention_mask[..., None].to(found.dtype)
        return (found * real).sum(1) / real.sum(1)


def reference(seed: int, dtype: str) -> torch.nn.Module:
    model = randomized(Sentence(), seed)
    # As BERT is initialised; of a variance near 1 its eps of 1e-12 is no other than one of 1e-6.
    with torch.no_grad():
        for name, weight in model.bert.embeddings.named_parameters():
            if name.endswith("embeddings.weight"):
                weight *= 0.02 * WIDTH**0.5
    return to_dtype(model, dtype)


def inputs(seed: int, dtype: str) -> dict[str, np.ndarray]:
    """Pad with id 0 at the end; no argument has a dtype to choose."""
    generator = np.random.default_rng(seed)
    real = np.arange(LENGTH) < np.array([[LENGTH], [4], [3]])
    ids = generator.integers(1, VOCABULARY, (BATCH, LENGTH))
    kinds = np.broadcast_to(np.arange(LENGTH) >= 2, (BATCH, LENGTH)).astype(np.int64)
    return {
        "input_ids": np.where(real, ids, 0),
        "token_type_ids": kinds,
        "attention_mask": real.astype(np.int64),
    }


class Embeddings(nn.Module):
    eps: float
    wrong: str

    @nn.compact
    def __call__(self, input_ids: jax.Array, token_type_ids: jax.Array) -> jax.Array:
        wrong = self.wrong
        x = nn.Embed(VOCABULARY, WIDTH, name="word_embeddings")(input_ids)
        positions = jnp.arange(input_ids.shape[1]) + (wrong == "shifted-by-one")
        x = x + nn.Embed(POSITIONS, WIDTH, name="position_embeddings")(positions)[None]
        kinds = nn.Embed(KINDS, WIDTH, name="token_type_embeddings")
        if wrong == "token-types-ignored":
            token_type_ids = 0 * token_type_ids
        return nn.LayerNorm(epsilon=self.eps, name="LayerNorm")(x + kinds(token_type_ids))


class Attention(nn.Module):
    wrong: str

    def split(self, x: jax.Array) -> jax.Array:
        if self.wrong == "heads-interleaved":
            return x.reshape(*x.shape[:-1], HEAD_WIDTH, HEADS).swapaxes(-1, -2)
        return x.reshape(*x.shape[:-1], HEADS, HEAD_WIDTH)

    @nn.compact
    def __call__(self, x: jax.Array, bias: jax.Array) -> jax.Array:
        wrong = self.wrong
        query, key, value = (
            self.split(nn.Dense(WIDTH, name=name)(x)) for name in ("query", "key", "value")
        )
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, key)
        if wrong != "scale-missing":
            scores = scores / HEAD_WIDTH**0.5
        if wrong == "mask-after-softmax":
            weights = nn.softmax(scores) * (bias == 0)
        else:
            weights = nn.softmax(scores + bias, axis=-2 if wrong == "softmax-axis" else -1)
        return jnp.einsum("bhqk,bkhd->bqhd", weights, value).reshape(x.shape)


class Layer(nn.Module):
    eps: float
    wrong: str

    @nn.compact
    def __call__(self, x: jax.Array, bias: jax.Array) -> jax.Array:
        wrong = self.wrong
        y = nn.Dense(WIDTH, name="attention_output")(Attention(wrong, name="attention")(x, bias))
        x = y if wrong == "residual-missing" else x + y
        x = nn.LayerNorm(epsilon=self.eps, name="attention_norm")(x)
        y = nn.Dense(INNER, use_bias=wrong != "bias-missing", name="intermediate")(x)
        if wrong == "wrong-activation":
            y = nn.relu(y)
        else:
            y = nn.gelu(y, approximate=wrong == "gelu-kind")
        y = through_bfloat16(y) if wrong == "dtype-cast" else y
        y = nn.Dense(WIDTH, name="output")(y)
        return nn.LayerNorm(epsilon=self.eps, name="output_norm")(x + y)


class BertLinen(nn.Module):
    wrong: str = ""

    def bias(self, attention_mask: jax.Array, dtype: jnp.dtype) -> jax.Array:
        """Return what is added to the scores."""
        if self.wrong == "mask-added":
            return attention_mask[:, None, None, :].astype(dtype)
        hidden = attention_mask == (1 if self.wrong == "mask-polarity" else 0)
        return jnp.where(hidden[:, None, None, :], jnp.finfo(dtype).min, 0).astype(dtype)

    @nn.compact
    def __call__(
        self, input_ids: jax.Array, token_type_ids: jax.Array, attention_mask: jax.Array
    ) -> jax.Array:
        wrong = self.wrong
        eps = {"eps": 1e-6, "eps-of-torch": 1e-5}.get(wrong, EPS)
        x = Embeddings(eps, wrong, name="embeddings")(input_ids, token_type_ids)
        for layer in range(LAYERS):
            x = Layer(eps, wrong, name=f"layer_{layer}")(x, self.bias(attention_mask, x.dtype))
        if wrong == "mean-over-padding":
            return x.mean(1)
        if wrong == "first-token":
            return x[:, 0]
        real = attention_mask[..., None].astype(x.dtype)
        return (x * real).sum(1) / real.sum(1)


def moved_layer(wrong: str | None, layer: torch.nn.Module) -> dict[str, dict]:
    own = layer.attention.self
    query, key = (own.key, own.query) if wrong == "qkv-permuted" else (own.query, own.key)
    joined = dense(layer.attention.output.dense)
    if wrong == "untransposed-square":
        joined["kernel"] = joined["kernel"].T
    return {
        "attention": {"query": dense(query), "key": dense(key), "value": dense(own.value)},
        "attention_output": joined,
        "attention_norm": norm(layer.attention.output.LayerNorm),
        "intermediate": dense(layer.intermediate.dense),
        "output": dense(layer.output.dense),
        "output_norm": norm(layer.output.LayerNorm),
    }


def params(wrong: str | None, model: Sentence) -> dict[str, dict]:
    layers = list(model.bert.encoder.layer)
    if wrong == "layers-swapped":
        layers.reverse()
    own = model.bert.embeddings
    tables = ("word_embeddings", "position_embeddings", "token_type_embeddings")
    embeddings = {name: {"embedding": array(getattr(own, name).weight)} for name in tables}
    moved = {f"layer_{place}": moved_layer(wrong, layer) for place, layer in enumerate(layers)}
    return {"params": moved | {"embeddings": embeddings | {"LayerNorm": norm(own.LayerNorm)}}}
