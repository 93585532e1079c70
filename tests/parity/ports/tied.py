"""Learned positions, and logits from the embedding itself."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import linen as nn

from tests.parity.ports.numerics import rounded_dot
from tests.parity.ports.pair import GRADIENT, Mistake, Pair, randomized, to_dtype
from tests.parity.ports.weights import array, dense, norm

VOCABULARY, WIDTH, BATCH, LENGTH = 20, 24, 3, 6


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.positions = torch.nn.Embedding(LENGTH + 1, WIDTH)
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.mix = torch.nn.Linear(WIDTH, WIDTH)
        self.logits = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.logits.weight = self.tokens.weight

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(token_ids.shape[1], device=token_ids.device)
        x = self.tokens(token_ids) + self.positions(places)
        return self.logits(torch.tanh(self.mix(self.norm(x))))


def reference(seed: int, dtype: str) -> torch.nn.Module:
    return to_dtype(randomized(Tied(), seed), dtype)


def inputs(seed: int, dtype: str) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(seed).integers(0, VOCABULARY, (BATCH, LENGTH))
    return {"token_ids": ids}


class TiedLinen(nn.Module):
    wrong: str = ""

    @nn.compact
    def __call__(self, token_ids: jax.Array) -> jax.Array:
        wrong = self.wrong
        tokens = nn.Embed(VOCABULARY, WIDTH, name="tokens")
        positions = nn.Embed(LENGTH + 1, WIDTH, name="positions")
        places = jnp.arange(token_ids.shape[1]) + (wrong == "shifted-by-one")
        x = tokens(token_ids)
        if wrong == "scale-added":
            x = x * WIDTH**0.5
        x = nn.LayerNorm(epsilon=1e-5, name="norm")(x + positions(places)[None])
        dot = rounded_dot if wrong == "matmul-precision" else None
        x = nn.Dense(WIDTH, dot_general=dot, name="mix")(x)
        x = x if wrong == "activation-missing" else nn.tanh(x)
        if wrong == "tied-copied":
            return nn.Dense(VOCABULARY, use_bias=False, name="logits")(x)
        return tokens.attend(x)


def params(wrong: str | None, model: Tied) -> dict[str, dict]:
    moved = {
        "tokens": {"embedding": array(model.tokens.weight)},
        "positions": {"embedding": array(model.positions.weight)},
        "norm": norm(model.norm),
        "mix": dense(model.mix),
    }
    if wrong == "tied-copied":
        moved["logits"] = {"kernel": array(model.logits.weight).T}
    if wrong == "untransposed-square":
        moved["mix"]["kernel"] = moved["mix"]["kernel"].T
    return {"params": moved}


MISTAKES = {
    "untransposed-square": Mistake("untransposed-square", "mix.weight", "mix", in_weights=True),
    # The outputs agree until the first step; the gradient lacks what comes through the logits.
    "tied-copied": Mistake("tied-copied", "tokens.weight", shows_in=GRADIENT),
    "shifted-by-one": Mistake("shifted-by-one", "positions"),
    "scale-added": Mistake("scale-sqrt-d", "tokens", "norm"),
    "matmul-precision": Mistake("matmul-precision", "mix"),
    "activation-missing": Mistake("activation-missing", "", "logits"),
}
PAIRS = (
    Pair(
        "tied/linen",
        reference,
        inputs,
        lambda wrong: TiedLinen(wrong or ""),
        params,
        MISTAKES,
    ),
)
