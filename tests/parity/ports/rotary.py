"""Attention with rotary positions, as in Llama; the port is a plain function of its weights."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import torch

from tests.parity.ports.numerics import through_bfloat16
from tests.parity.ports.pair import Mistake, Pair, normal, randomized, to_dtype
from tests.parity.ports.weights import dense

WIDTH, HEADS, BATCH, LENGTH = 32, 4, 3, 6
HEAD_WIDTH, HALF = WIDTH // HEADS, WIDTH // HEADS // 2
BASE = 10_000.0


def exact_angles(base: float = BASE) -> np.ndarray:
    return np.arange(LENGTH)[:, None] * base ** (-np.arange(HALF) / HALF)


class Rotary(torch.nn.Module):
    """The halves of a head turn against each other."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = torch.nn.Linear(WIDTH, WIDTH)
        self.k_proj = torch.nn.Linear(WIDTH, WIDTH)
        self.v_proj = torch.nn.Linear(WIDTH, WIDTH)
        self.o_proj = torch.nn.Linear(WIDTH, WIDTH)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (HEADS, HEAD_WIDTH)).transpose(1, 2)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.tensor(exact_angles(), device=x.device)
        cos, sin = torch.cos(angles).to(x.dtype), torch.sin(angles).to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key = (
            self.turned(self.split(self.q_proj(x))),
            self.turned(self.split(self.k_proj(x))),
        )
        weights = torch.softmax(query @ key.transpose(-1, -2) * HEAD_WIDTH**-0.5, dim=-1)
        y = weights @ self.split(self.v_proj(x))
        return self.o_proj(y.transpose(1, 2).flatten(2))


def reference(seed: int, dtype: str) -> torch.nn.Module:
    return to_dtype(randomized(Rotary(), seed), dtype)


def inputs(seed: int, dtype: str) -> dict[str, np.ndarray]:
    return {"x": normal(seed, dtype, BATCH, LENGTH, WIDTH)}


def turned(wrong: str, x: jax.Array) -> jax.Array:
    """Turn [batch, position, head, feature]."""
    angles = exact_angles(500_000.0 if wrong == "rotary-base" else BASE)[:, None, :]
    if wrong == "rotated-backwards":
        angles = -angles
    sides = (jnp.asarray(side(angles), x.dtype) for side in (np.cos, np.sin))
    if wrong == "interleaved-halves":
        first, second = x[..., ::2], x[..., 1::2]
    else:
        first, second = jnp.split(x, 2, axis=-1)
    cos, sin = (jnp.broadcast_to(side, first.shape) for side in sides)
    both = [first * cos - second * sin, second * cos + first * sin]
    if wrong == "interleaved-halves":
        return jnp.stack(both, axis=-1).reshape(x.shape)
    return jnp.concatenate(both, axis=-1)


def rotary_attention(params: dict[str, dict], x: jax.Array, wrong: str = "") -> jax.Array:
    query, key, value = (
        (jnp.dot(x, own["kernel"]) + jnp.broadcast_to(own["bias"], x.shape)).reshape(
            *x.shape[:-1], HEADS, HEAD_WIDTH
        )
        for own in (params[name] for name in ("q_proj", "k_proj", "v_proj"))
    )
    query = turned(wrong, query)
    key = key if wrong == "key-not-rotated" else turned(wrong, key)
    if wrong == "value-rotated":
        value = turned(wrong, value)
    scale = {"scale-missing": 1.0, "scale-by-width": WIDTH**-0.5}.get(wrong, HEAD_WIDTH**-0.5)
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * scale
    if wrong == "dtype-cast":
        scores = through_bfloat16(scores)
    weights = jax.nn.softmax(scores, axis=1 if wrong == "softmax-axis" else -1)
    y = jnp.einsum("bhqk,bkhd->bqhd", weights, value).reshape(x.shape)
    out = params["o_proj"]
    return jnp.dot(y, out["kernel"]) + jnp.broadcast_to(out["bias"], x.shape)


def port(wrong: str | None) -> Callable[[dict, jax.Array], jax.Array]:
    return functools.partial(rotary_attention, wrong=wrong) if wrong else rotary_attention


def params(wrong: str | None, model: Rotary) -> dict[str, dict]:
    moved = {name: dense(layer) for name, layer in model.named_children()}
    if wrong == "qkv-permuted":
        moved["q_proj"], moved["v_proj"] = moved["v_proj"], moved["q_proj"]
    if wrong == "untransposed-square":
        moved["k_proj"]["kernel"] = moved["k_proj"]["kernel"].T
    return moved


MISTAKES = {
    "untransposed-square": Mistake(
        "untransposed-square", "k_proj.weight", "o_proj", in_weights=True
    ),
    "qkv-permuted": Mistake("qkv-permuted", "q_proj.weight", "o_proj", in_weights=True),
    "interleaved-halves": Mistake("interleaved-halves", "", "o_proj"),
    "rotated-backwards": Mistake("rotated-backwards", "", "o_proj"),
    "rotary-base": Mistake("rotary-base", "", "o_proj"),
    "key-not-rotated": Mistake("key-not-rotated", "", "o_proj"),
    "value-rotated": Mistake("value-rotated", "", "o_proj"),
    "scale-missing": Mistake("scale-sqrt-d", "", "o_proj", also=("scale-missing",)),
    "scale-by-width": Mistake("scale-sqrt-d", "", "o_proj", also=("scale-width",)),
    "softmax-axis": Mistake("softmax-axis", "", "o_proj"),
    "dtype-cast": Mistake("dtype-cast", "", "o_proj"),
}
PAIRS = (Pair("rotary/function", reference, inputs, port, params, MISTAKES),)
