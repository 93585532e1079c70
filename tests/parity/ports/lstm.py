"""Two stacked LSTM layers read at the last step; Flax keeps one of PyTorch's two biases."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import linen as nn

from tests.parity.ports.numerics import through_bfloat16
from tests.parity.ports.pair import Mistake, Pair, normal, randomized, to_dtype
from tests.parity.ports.weights import array, dense, without_bias

WIDTH, LAYERS, CLASSES, BATCH, LENGTH = 16, 2, 5, 3, 6


class Lstm(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(WIDTH, WIDTH, num_layers=LAYERS, batch_first=True)
        self.head = torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs, _ = self.lstm(x)
        return self.head(outputs[:, -1])


def reference(seed: int, dtype: str) -> torch.nn.Module:
    return to_dtype(randomized(Lstm(), seed), dtype)


def inputs(seed: int, dtype: str) -> dict[str, np.ndarray]:
    return {"x": normal(seed, dtype, BATCH, LENGTH, WIDTH)}


class LstmLinen(nn.Module):
    wrong: str = ""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        wrong = self.wrong
        gate = nn.hard_sigmoid if wrong == "wrong-activation" else nn.sigmoid
        lanes = LENGTH if wrong == "time-major" else BATCH
        start = jnp.ones if wrong == "initial-state" else jnp.zeros
        carry = (start((lanes, WIDTH), x.dtype), start((lanes, WIDTH), x.dtype))
        for layer in range(LAYERS):
            last = layer == LAYERS - 1
            run = nn.RNN(
                nn.OptimizedLSTMCell(WIDTH, gate_fn=gate, param_dtype=x.dtype),
                reverse=wrong == "reversed-time",
                time_major=wrong == "time-major",
            )
            x = run(x, initial_carry=carry)
            if wrong == "dtype-cast" and not last:
                x = through_bfloat16(x)
            if wrong == "double-activation" and last:
                x = nn.tanh(x)
        return nn.Dense(CLASSES)(x[:, 0 if wrong == "last-step" else -1])


def cell(wrong: str | None, model: torch.nn.LSTM, layer: int) -> dict[str, dict[str, np.ndarray]]:
    """Cut the packed gates of one layer; PyTorch packs input, forget, cell, output."""
    parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    packed = {name: array(getattr(model, f"{name}_l{layer}")) for name in parts}
    bias = packed["bias_ih"]
    if wrong != "bias-missing":
        bias = bias + packed["bias_hh"]
    moved = {}
    order = "igfo" if wrong == "gate-order" else "ifgo"
    gates = (np.split(given, 4) for given in (packed["weight_ih"], packed["weight_hh"], bias))
    for gate, into, back, own in zip(order, *gates, strict=True):
        back = back if wrong == "untransposed-square" else back.T
        moved |= {f"i{gate}": {"kernel": into.T}, f"h{gate}": {"kernel": back, "bias": own}}
    return moved


def params(wrong: str | None, model: Lstm) -> dict[str, dict]:
    order = (1, 0) if wrong == "layers-swapped" else (0, 1)
    cells = {
        f"OptimizedLSTMCell_{place}": cell(wrong, model.lstm, layer)
        for place, layer in enumerate(order)
    }
    head = without_bias if wrong == "bias-not-copied" else dense
    return {"params": cells | {"Dense_0": head(model.head)}}


def in_weights(code: str, where: str) -> Mistake:
    return Mistake(code, f"lstm.{where}", "lstm", in_weights=True)


MISTAKES = {
    "gate-order": in_weights("gate-order", "weight_ih_l0"),
    "bias-missing": in_weights("bias-missing", "bias_hh_l0"),
    "untransposed-square": in_weights("untransposed-square", "weight_hh_l0"),
    "layers-swapped": in_weights("layers-swapped", "weight_ih_l0"),
    "bias-not-copied": Mistake("bias-missing", "head.bias", "head", in_weights=True),
    "initial-state": Mistake("initial-state", "lstm"),
    "reversed-time": Mistake("reversed-time", "lstm"),
    "time-major": Mistake("axes-swapped", "lstm"),
    "wrong-activation": Mistake("wrong-activation", "lstm"),
    "dtype-cast": Mistake("dtype-cast", "lstm"),
    "double-activation": Mistake("double-activation", "", "head", also=("activation-extra",)),
    "last-step": Mistake("last-step", "", "head"),
}
PAIRS = (
    Pair(
        "lstm/linen",
        reference,
        inputs,
        lambda wrong: LstmLinen(wrong or ""),
        params,
        MISTAKES,
    ),
)
