"""The model of ``mlp`` in Equinox, which keeps PyTorch's layout of a weight."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tests.parity.ports.mlp import CLASSES, FEATURES, HIDDEN, RATE, Mlp, inputs, reference
from tests.parity.ports.pair import Mistake, Pair
from tests.parity.ports.weights import array


class MlpEquinox(eqx.Module):
    fc1: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    dropout: eqx.nn.Dropout
    fc2: eqx.nn.Linear
    fc3: eqx.nn.Linear
    head: eqx.nn.Linear
    wrong: str = eqx.field(static=True)

    def __init__(self, key: jax.Array, wrong: str = "") -> None:
        keys = jax.random.split(key, 4)
        self.wrong = wrong
        self.fc1 = eqx.nn.Linear(FEATURES, HIDDEN, key=keys[0])
        self.norm = eqx.nn.LayerNorm(HIDDEN, eps=1e-12 if wrong == "eps" else 1e-5)
        self.dropout = eqx.nn.Dropout(RATE, inference=True)
        self.fc2 = eqx.nn.Linear(HIDDEN, HIDDEN, key=keys[1])
        self.fc3 = eqx.nn.Linear(HIDDEN, HIDDEN, key=keys[2])
        self.head = eqx.nn.Linear(2 * HIDDEN, CLASSES, key=keys[3])

    def __call__(self, x: jax.Array) -> jax.Array:
        """Equinox layers take one example."""
        return jax.vmap(self.one)(x)

    def one(self, x: jax.Array) -> jax.Array:
        x = self.norm(self.fc1(x))
        x = self.dropout(jax.nn.gelu(x, approximate=self.wrong == "gelu-kind"))
        h = x + jax.nn.relu(self.fc2(x))
        side = jnp.tanh(self.fc3(h))
        both = [side, h] if self.wrong == "concat-order" else [h, side]
        return self.head(jnp.concatenate(both))


def params(wrong: str | None, model: Mlp) -> dict[str, dict[str, np.ndarray]]:
    moved = {
        name: {"weight": array(layer.weight), "bias": array(layer.bias)}
        for name, layer in model.named_children()
        if name not in {"act", "dropout"}
    }
    if wrong == "untransposed-square":
        # Right for Flax, one transpose too many here.
        moved["fc2"]["weight"] = moved["fc2"]["weight"].T
    return moved


def filled_equinox(module: eqx.Module, arrays: dict[str, dict[str, np.ndarray]]) -> eqx.Module:
    """Return the module with a nested dict of arrays in place of its own."""
    for name, layer in arrays.items():
        for leaf, value in layer.items():
            module = eqx.tree_at(
                lambda tree, name=name, leaf=leaf: getattr(getattr(tree, name), leaf),
                module,
                jnp.asarray(value),
            )
    return module


MISTAKES = {
    "eps": Mistake("eps", "norm"),
    "gelu-kind": Mistake("gelu-kind", "act", "dropout"),
    "concat-order": Mistake("concat-order", "", "head"),
    "untransposed-square": Mistake("untransposed-square", "fc2.weight", "fc2", in_weights=True),
}
PAIRS = (
    Pair(
        "mlp/equinox",
        reference,
        inputs,
        lambda wrong: MlpEquinox(jax.random.key(0), wrong or ""),
        params,
        MISTAKES,
    ),
)
