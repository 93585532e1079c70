"""A GRU read at the last step; PyTorch resets what the recurrent product gives."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import linen as nn
from flax import nnx

from tests.parity.ports.pair import Mistake, Pair, normal, randomized, to_dtype
from tests.parity.ports.weights import array, dense

FEATURES, WIDTH, CLASSES, BATCH, LENGTH = 12, 16, 5, 3, 6


class Gru(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = torch.nn.GRU(FEATURES, WIDTH, batch_first=True)
        self.head = torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs, _ = self.gru(x)
        return self.head(outputs[:, -1])


def reference(seed: int, dtype: str) -> torch.nn.Module:
    return to_dtype(randomized(Gru(), seed), dtype)


def inputs(seed: int, dtype: str) -> dict[str, np.ndarray]:
    return {"x": normal(seed, dtype, BATCH, LENGTH, FEATURES)}


class GruCell(nnx.Module):
    """Written by hand: ``nnx.GRUCell`` has no place for the recurrent bias of the new state."""

    def __init__(self, rngs: nnx.Rngs, wrong: str = "") -> None:
        self.wrong = wrong
        self.dense_i = nnx.Linear(FEATURES, 3 * WIDTH, rngs=rngs)
        self.dense_h = nnx.Linear(WIDTH, 3 * WIDTH, rngs=rngs)

    def __call__(self, h: jax.Array, x: jax.Array) -> jax.Array:
        reset, update, new = jnp.split(self.dense_i(x), 3, axis=-1)
        reset_h, update_h, new_h = jnp.split(self.dense_h(h), 3, axis=-1)
        reset = nnx.sigmoid(reset + reset_h)
        update = nnx.sigmoid(update + update_h)
        if self.wrong == "reset-gate":
            # As in the article, and in Keras with `reset_after=False`.
            new = jnp.tanh(new + jnp.split(self.dense_h(reset * h), 3, axis=-1)[2])
        else:
            new = jnp.tanh(new + reset * new_h)
        if self.wrong == "update-gate":
            update = 1 - update
        return (1 - update) * new + update * h


class GruNnx(nnx.Module):
    def __init__(self, rngs: nnx.Rngs, wrong: str = "") -> None:
        self.wrong = wrong
        self.cell = GruCell(rngs, wrong)
        self.head = nnx.Linear(WIDTH, CLASSES, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        start = jnp.ones if self.wrong == "initial-state" else jnp.zeros
        h = start((x.shape[0], WIDTH), x.dtype)
        steps = range(x.shape[1])
        if self.wrong == "last-step":
            steps = steps[:-1]
        for step in reversed(steps) if self.wrong == "reversed-time" else steps:
            h = self.cell(h, x[:, step])
        return self.head(h)


class GruLinen(nn.Module):
    wrong: str = ""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        start = jnp.zeros((x.shape[0], WIDTH), x.dtype)
        run = nn.RNN(nn.GRUCell(WIDTH, param_dtype=x.dtype), reverse=self.wrong == "reversed-time")
        x = run(x, initial_carry=start)
        return nn.Dense(CLASSES, name="head")(x[:, -2 if self.wrong == "last-step" else -1])


def packed(wrong: str | None, model: torch.nn.GRU) -> dict[str, list[np.ndarray]]:
    """Cut the packed gates; PyTorch packs reset, update, new, Keras and TensorFlow update first."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    cut = {name: np.split(array(getattr(model, f"{name}_l0")), 3) for name in names}
    if wrong == "gate-order":
        cut = {name: [update, reset, new] for name, (reset, update, new) in cut.items()}
    if wrong == "bias-missing":
        # All that a cell with one bias a gate has room for.
        reset, update, new = cut["bias_hh"]
        cut["bias_hh"] = [reset, update, 0 * new]
    return cut


def nnx_params(wrong: str | None, model: Gru) -> dict[str, dict]:
    own = {name: np.concatenate(parts) for name, parts in packed(wrong, model.gru).items()}
    cell = {
        "dense_i": {"kernel": own["weight_ih"].T, "bias": own["bias_ih"]},
        "dense_h": {"kernel": own["weight_hh"].T, "bias": own["bias_hh"]},
    }
    return {"cell": cell, "head": dense(model.head)}


def linen_params(wrong: str | None, model: Gru) -> dict[str, dict]:
    own = packed(wrong, model.gru)
    cell = {}
    for place, gate in enumerate("rzn"):
        into, back = own["weight_ih"][place], own["weight_hh"][place]
        back = back if wrong == "untransposed-square" else back.T
        cell[f"i{gate}"] = {"kernel": into.T, "bias": own["bias_ih"][place]}
        cell[f"h{gate}"] = {"kernel": back}
        # The biases of what is summed are one in Flax.
        if gate == "n":
            cell["hn"]["bias"] = own["bias_hh"][place]
        else:
            cell[f"i{gate}"]["bias"] = cell[f"i{gate}"]["bias"] + own["bias_hh"][place]
    return {"params": {"GRUCell_0": cell, "head": dense(model.head)}}


def mistakes(seen: str) -> dict[str, Mistake]:
    """Return the mistakes of both ports; only a layer of Flax's own gives all states at once."""
    return {
        "gate-order": Mistake("gate-order", "gru.weight_ih_l0", seen, in_weights=True),
        "bias-missing": Mistake("bias-missing", "gru.bias_hh_l0", seen, in_weights=True),
        "reversed-time": Mistake("reversed-time", "gru", seen),
        "last-step": Mistake("last-step", "", "head"),
    }


LINEN = mistakes("gru") | {
    "untransposed-square": Mistake(
        "untransposed-square", "gru.weight_hh_l0", "gru", in_weights=True
    ),
}
NNX = mistakes("head") | {
    "reset-gate": Mistake("reset-gate", "gru", "head"),
    "update-gate": Mistake("update-gate", "gru", "head"),
    "initial-state": Mistake("initial-state", "gru", "head"),
}
PAIRS = (
    Pair(
        "gru/linen",
        reference,
        inputs,
        lambda wrong: GruLinen(wrong or ""),
        linen_params,
        LINEN,
    ),
    Pair(
        "gru/nnx",
        reference,
        inputs,
        lambda wrong: GruNnx(nnx.Rngs(0), wrong or ""),
        nnx_params,
        NNX,
    ),
)
