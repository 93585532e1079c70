"""Tokens times the square root of the width, plus sinusoidal positions, and a norm."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import linen as nn

from tests.parity.ports.numerics import through_bfloat16
from tests.parity.ports.pair import GRADIENT, Mistake, Pair, randomized, to_dtype
from tests.parity.ports.weights import array, norm

# The root of 24 is no power of two, and no integer either.
VOCABULARY, WIDTH, ROWS, LENGTH, PADDING = 20, 24, 4096, 6, 0


def exact_table() -> np.ndarray:
    angle = np.arange(ROWS)[:, None] * 10_000.0 ** (-np.arange(0, WIDTH, 2) / WIDTH)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(ROWS, WIDTH)


class Input(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH, padding_idx=PADDING)
        self.register_buffer("pe", torch.tensor(exact_table(), dtype=torch.float32))
        self.norm = torch.nn.LayerNorm(WIDTH)

    def forward(self, token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.embedding(token_ids) * WIDTH**0.5
        return self.norm(x + self.pe[positions])


def reference(seed: int, dtype: str) -> torch.nn.Module:
    model = randomized(Input(), seed)
    # In float64 the buffer must not stay the float32 one that it was made as.
    model = to_dtype(model, dtype)
    model.pe = torch.tensor(exact_table()).to(model.pe.dtype)
    return model


def inputs(seed: int, dtype: str) -> dict[str, np.ndarray]:
    """Let each row start elsewhere, far enough for a float32 angle to be off."""
    generator = np.random.default_rng(seed)
    real = np.arange(LENGTH) < np.array([[LENGTH], [5], [3]])
    ids = np.where(real, generator.integers(1, VOCABULARY, real.shape), PADDING)
    return {"token_ids": ids, "positions": np.array([[0], [700], [4000]]) + np.arange(LENGTH)}


def table(wrong: str, dtype: jnp.dtype) -> jax.Array:
    if wrong in {"float32-table", "bfloat16-angles"}:
        # The published formula, whose angles are rounded before their sines are taken.
        own = jnp.bfloat16 if wrong == "bfloat16-angles" else jnp.float32
        frequencies = jnp.exp(jnp.arange(0, WIDTH, 2, dtype=own) * own(-np.log(1e4) / WIDTH))
        angle = jnp.arange(ROWS, dtype=own)[:, None] * frequencies[None]
        pairs = jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1)
        return pairs.reshape(ROWS, WIDTH).astype(dtype)
    exact = exact_table()
    if wrong == "interleaved-halves":
        exact = np.concatenate([exact[:, ::2], exact[:, 1::2]], axis=-1)
    if wrong == "cosine-first":
        exact = exact.reshape(ROWS, -1, 2)[..., ::-1].reshape(ROWS, WIDTH)
    return jnp.asarray(exact, dtype)


class InputLinen(nn.Module):
    wrong: str = ""

    @nn.compact
    def __call__(self, token_ids: jax.Array, positions: jax.Array) -> jax.Array:
        wrong = self.wrong
        initial = nn.initializers.normal(WIDTH**-0.5)
        embedding = self.param("embedding", initial, (VOCABULARY, WIDTH))
        if wrong != "padding-row-trained":
            # Padding is read as it is and gets no gradient, as in PyTorch.
            frozen = (jnp.arange(VOCABULARY) == PADDING)[:, None]
            embedding = jnp.where(frozen, jax.lax.stop_gradient(embedding), embedding)
        x = embedding[token_ids]
        if wrong == "padding-row":
            x = jnp.where((token_ids == PADDING)[..., None], 0, x)
        scale = {"scale-missing": 1.0, "scale-inverse": WIDTH**-0.5}.get(wrong, WIDTH**0.5)
        x = through_bfloat16(x) if wrong == "dtype-cast" else x
        x = x * scale
        rows = table(wrong, x.dtype)[positions + (wrong == "shifted-by-one")]
        layer_norm = nn.LayerNorm(epsilon=1e-3 if wrong == "eps" else 1e-5, name="norm")
        if wrong == "missing-norm":
            return x + rows
        return layer_norm(x) + rows if wrong == "norm-order" else layer_norm(x + rows)


def params(wrong: str | None, model: Input) -> dict[str, dict]:
    embedding = array(model.embedding.weight)
    if wrong == "rows-shifted":
        # A vocabulary that begins with one special token more.
        embedding = np.roll(embedding, 1, axis=0)
    return {"params": {"embedding": embedding, "norm": norm(model.norm)}}


MISTAKES = {
    "rows-shifted": Mistake("shifted-by-one", "embedding.weight", "norm", in_weights=True),
    "scale-missing": Mistake("scale-sqrt-d", "", "norm", also=("scale-missing",)),
    "scale-inverse": Mistake("scale-sqrt-d", "", "norm", also=("scale-inverse",)),
    "interleaved-halves": Mistake("interleaved-halves", "pe", "norm"),
    "cosine-first": Mistake("sine-cosine-swapped", "pe", "norm"),
    "float32-table": Mistake("float32-table", "pe", "norm"),
    "bfloat16-angles": Mistake("dtype-cast", "pe", "norm"),
    "shifted-by-one": Mistake("shifted-by-one", "", "norm"),
    "padding-row": Mistake("padding-row", "embedding", "norm"),
    "padding-row-trained": Mistake("padding-row", "embedding.weight", shows_in=GRADIENT),
    "dtype-cast": Mistake("dtype-cast", "embedding", "norm"),
    "eps": Mistake("eps", "norm"),
    "norm-order": Mistake("norm-order", "", "norm"),
    "missing-norm": Mistake("missing-norm", "norm", "", also=("norm-missing",)),
}
PAIRS = (
    Pair(
        "embedding/linen",
        reference,
        inputs,
        lambda wrong: InputLinen(wrong or ""),
        params,
        MISTAKES,
    ),
)
