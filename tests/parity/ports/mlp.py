"""Dense layers with a norm, a residual and a concatenation."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import linen as nn
from flax import nnx

from tests.parity.ports.numerics import rounded_dot, through_bfloat16, unbiased_norm
from tests.parity.ports.pair import Mistake, Pair, normal, randomized, to_dtype
from tests.parity.ports.weights import dense, norm, reshaped, untransposed, without_bias

FEATURES, HIDDEN, CLASSES, RATE = 12, 16, 5, 0.25


class Mlp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = torch.nn.Linear(FEATURES, HIDDEN)
        self.norm = torch.nn.LayerNorm(HIDDEN)
        self.act = torch.nn.GELU()
        self.dropout = torch.nn.Dropout(RATE)
        self.fc2 = torch.nn.Linear(HIDDEN, HIDDEN)
        self.fc3 = torch.nn.Linear(HIDDEN, HIDDEN)
        self.head = torch.nn.Linear(2 * HIDDEN, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.dropout(self.act(self.norm(self.fc1(x))))
        h = x + torch.relu(self.fc2(x))
        return self.head(torch.cat([h, torch.tanh(self.fc3(h))], dim=-1))


def reference(seed: int, dtype: str) -> torch.nn.Module:
    model = randomized(Mlp(), seed)
    # Of a variance near 1 no eps is seen.
    with torch.no_grad():
        model.fc1.weight *= 0.05
        model.fc1.bias *= 0.05
    return to_dtype(model, dtype)


def inputs(seed: int, dtype: str) -> dict[str, np.ndarray]:
    return {"x": normal(seed, dtype, 7, FEATURES)}


class UnbiasedNorm(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:])
        bias = self.param("bias", nn.initializers.zeros, x.shape[-1:])
        return unbiased_norm(x, scale, bias, 1e-5)


def activation(wrong: str, x: jax.Array) -> jax.Array:
    if wrong == "wrong-activation":
        return nn.silu(x)
    return nn.gelu(x, approximate=wrong == "gelu-kind")


class MlpLinen(nn.Module):
    """Layers with the names that Flax gives them."""

    wrong: str = ""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        wrong, dtype = self.wrong, x.dtype
        dot = rounded_dot if wrong == "matmul-precision" else None
        x = nn.Dense(HIDDEN, use_bias=wrong != "bias-missing", dot_general=dot)(x)
        if wrong == "variance-form":
            x = UnbiasedNorm(name="LayerNorm_0")(x)
        elif wrong != "missing-norm":
            x = nn.LayerNorm(epsilon=1e-6 if wrong == "eps" else 1e-5)(x)
        x = nn.Dropout(RATE, deterministic=not train)(activation(wrong, x))
        if wrong == "dropout-scale":
            x = x * (1 - RATE)
        h = nn.Dense(HIDDEN, dtype=jnp.bfloat16 if wrong == "dtype-cast" else None)(x)
        h = nn.relu(h.astype(dtype))
        if wrong != "residual-missing":
            h = x + h
        side = nn.tanh(nn.Dense(HIDDEN)(h))
        both = [side, h] if wrong == "concat-order" else [h, side]
        y = nn.Dense(CLASSES)(jnp.concatenate(both, axis=-1))
        return nn.relu(y) if wrong == "double-activation" else y


class MlpNnx(nnx.Module):
    """Layers with the names that they have in PyTorch."""

    def __init__(self, rngs: nnx.Rngs, wrong: str = "") -> None:
        self.wrong = wrong
        dot = {"dot_general": rounded_dot} if wrong == "matmul-precision" else {}
        self.fc1 = nnx.Linear(FEATURES, HIDDEN, rngs=rngs)
        self.norm = nnx.LayerNorm(HIDDEN, epsilon=1e-3 if wrong == "eps" else 1e-5, rngs=rngs)
        self.dropout = nnx.Dropout(RATE, rngs=rngs)
        self.fc2 = nnx.Linear(HIDDEN, HIDDEN, rngs=rngs)
        self.fc3 = nnx.Linear(HIDDEN, HIDDEN, rngs=rngs, **dot)
        self.head = nnx.Linear(2 * HIDDEN, CLASSES, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        wrong = self.wrong
        x = self.fc1(x)
        if wrong == "norm-order":
            x = self.norm(activation(wrong, x))
        else:
            x = activation(wrong, self.norm(x))
        x = self.dropout(x)
        h = nnx.relu(self.fc2(x)) if wrong == "residual-missing" else x + nnx.relu(self.fc2(x))
        if wrong == "dtype-cast":
            h = through_bfloat16(h)
        side = jnp.tanh(self.fc3(h))
        both = [side, h] if wrong == "concat-order" else [h, side]
        return self.head(jnp.concatenate(both, axis=-1))


def layers(wrong: str | None, model: Mlp) -> dict[str, dict[str, np.ndarray]]:
    """Move each layer under the name that it has in PyTorch."""
    fc2, fc3 = (model.fc3, model.fc2) if wrong == "layers-swapped" else (model.fc2, model.fc3)
    first = {"untransposed": reshaped, "untransposed-raw": untransposed}.get(wrong, dense)
    third = without_bias if wrong == "bias-not-copied" else dense
    return {
        "fc1": first(model.fc1),
        "norm": norm(model.norm),
        "fc2": (untransposed if wrong == "untransposed-square" else dense)(fc2),
        "fc3": third(fc3),
        "head": dense(model.head),
    }


def linen_params(wrong: str | None, model: Mlp) -> dict[str, dict]:
    names = ("Dense_0", "LayerNorm_0", "Dense_1", "Dense_2", "Dense_3")
    return {"params": dict(zip(names, layers(wrong, model).values(), strict=True))}


def nnx_port(wrong: str | None) -> nnx.Module:
    module = MlpNnx(nnx.Rngs(0), wrong or "")
    module.eval()
    return module


IN_WEIGHTS = {
    "untransposed": Mistake("untransposed", "fc1.weight", "fc1", in_weights=True),
    "untransposed-square": Mistake("untransposed-square", "fc2.weight", "fc2", in_weights=True),
    "layers-swapped": Mistake("layers-swapped", "fc2", in_weights=True),
    "bias-not-copied": Mistake("bias-missing", "fc3.bias", "fc3", in_weights=True),
    "untransposed-raw": Mistake("untransposed", "fc1.weight", "fc1", in_weights=True, raises=True),
}
IN_BOTH = {
    "eps": Mistake("eps", "norm"),
    "gelu-kind": Mistake("gelu-kind", "act", "dropout"),
    "wrong-activation": Mistake("wrong-activation", "act", "dropout"),
    "residual-missing": Mistake("residual-missing", "", "fc3"),
    "concat-order": Mistake("concat-order", "", "head"),
}
LINEN = {
    "bias-missing": Mistake("bias-missing", "fc1"),
    "variance-form": Mistake("variance-form", "norm"),
    "missing-norm": Mistake("missing-norm", "norm", "dropout", also=("norm-missing",)),
    "dropout-scale": Mistake("dropout-scale", "dropout", "fc2"),
    "dtype-cast": Mistake("dtype-cast", "fc2"),
    "matmul-precision": Mistake("matmul-precision", "fc1"),
    "double-activation": Mistake("double-activation", "", "", also=("activation-extra",)),
}
NNX = {
    "norm-order": Mistake("norm-order", "norm"),
    "dtype-cast": Mistake("dtype-cast", "", "fc3"),
    "matmul-precision": Mistake("matmul-precision", "fc3"),
}
PAIRS = (
    Pair(
        "mlp/linen",
        reference,
        inputs,
        lambda wrong: MlpLinen(wrong or ""),
        linen_params,
        IN_WEIGHTS | IN_BOTH | LINEN,
    ),
    Pair("mlp/nnx", reference, inputs, nnx_port, layers, IN_WEIGHTS | IN_BOTH | NNX),
)
