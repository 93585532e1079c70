"""Convolutions with batch norms; PyTorch puts the channels before the image, Flax after it."""

import jax
import numpy as np
import torch
from flax import linen as nn
from flax import nnx

from tests.parity.ports.numerics import rounded_dot, through_bfloat16
from tests.parity.ports.pair import STATE, Mistake, Pair, normal, randomized, to_dtype
from tests.parity.ports.weights import array, dense

CHANNELS, WIDTH, CLASSES = 3, 8, 10
HEIGHT, BREADTH = 8, 12  # halved by the pool, and again by the second convolution
FLAT = WIDTH * (HEIGHT // 4) * (BREADTH // 4)
# What `padding=1` means; "SAME" pads an even image only at its end once the stride is two.
AROUND = ((1, 1), (1, 1))


class Cnn(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(CHANNELS, WIDTH, 3, padding=1)
        self.bn1 = torch.nn.BatchNorm2d(WIDTH)
        self.pool = torch.nn.MaxPool2d(2)
        self.conv2 = torch.nn.Conv2d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.bn2 = torch.nn.BatchNorm2d(WIDTH)
        self.fc = torch.nn.Linear(FLAT, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(torch.relu(self.bn1(self.conv1(x))))
        x = torch.relu(self.bn2(self.conv2(x)))
        return self.fc(torch.flatten(x, 1))


def reference(seed: int, dtype: str) -> torch.nn.Module:
    return to_dtype(randomized(Cnn(), seed), dtype)


def inputs(seed: int, dtype: str) -> dict[str, np.ndarray]:
    return {"x": normal(seed, dtype, 3, CHANNELS, HEIGHT, BREADTH)}


def channels_last(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"x": given["x"].transpose(0, 2, 3, 1)}


def flattened(wrong: str, x: jax.Array) -> jax.Array:
    """Flatten in the order that the weights of ``fc`` were trained for."""
    if wrong != "nchw-flatten":
        x = x.transpose(0, 3, 1, 2)
    return x.reshape(x.shape[0], -1)


def pooled(wrong: str, x: jax.Array) -> jax.Array:
    pool = nn.avg_pool if wrong == "pool-kind" else nn.max_pool
    return pool(x, (2, 2), strides=(2, 2))


class CnnLinen(nn.Module):
    wrong: str = ""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        wrong = self.wrong
        settings = {
            "use_running_average": not train and wrong != "train-mode",
            # PyTorch's momentum of 0.1 is the part of the new value, not of the old one.
            "momentum": 0.1 if wrong == "momentum" else 0.9,
            "epsilon": 1e-3 if wrong == "eps" else 1e-5,
        }
        x = nn.Conv(WIDTH, (3, 3), padding=AROUND, name="conv1")(x)
        if wrong == "norm-order":
            x = nn.BatchNorm(name="bn1", **settings)(nn.relu(x))
        else:
            x = nn.relu(nn.BatchNorm(name="bn1", **settings)(x))
        x = pooled(wrong, x)
        padding = "SAME" if wrong == "padding-mode" else AROUND
        x = nn.Conv(WIDTH, (3, 3), strides=2, padding=padding, name="conv2")(x)
        x = x if wrong == "missing-norm" else nn.BatchNorm(name="bn2", **settings)(x)
        x = x if wrong == "activation-missing" else nn.relu(x)
        dot = rounded_dot if wrong == "matmul-precision" else None
        y = nn.Dense(CLASSES, dot_general=dot, name="fc")(flattened(wrong, x))
        return nn.relu(y) if wrong == "double-activation" else y


class CnnNnx(nnx.Module):
    def __init__(self, rngs: nnx.Rngs, wrong: str = "") -> None:
        self.wrong = wrong
        eps = 1e-3 if wrong == "eps" else 1e-5
        momentum = 0.99 if wrong == "momentum" else 0.9
        padding = "SAME" if wrong == "padding-mode" else AROUND
        self.conv1 = nnx.Conv(CHANNELS, WIDTH, (3, 3), padding=AROUND, rngs=rngs)
        self.bn1 = nnx.BatchNorm(WIDTH, momentum=momentum, epsilon=1e-5, rngs=rngs)
        self.conv2 = nnx.Conv(WIDTH, WIDTH, (3, 3), strides=2, padding=padding, rngs=rngs)
        self.bn2 = nnx.BatchNorm(WIDTH, momentum=momentum, epsilon=eps, rngs=rngs)
        self.fc = nnx.Linear(FLAT, CLASSES, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        wrong = self.wrong
        x = self.bn1(self.conv1(x))
        x = pooled(wrong, x if wrong == "activation-missing" else nnx.relu(x))
        if wrong == "dtype-cast":
            x = through_bfloat16(x)
        x = self.bn2(self.conv2(x))
        x = nnx.gelu(x) if wrong == "wrong-activation" else nnx.relu(x)
        return self.fc(flattened(wrong, x))


def moved_convolution(wrong: str | None, layer: torch.nn.Conv2d) -> dict[str, np.ndarray]:
    weight = array(layer.weight)
    out, into, *window = weight.shape
    kernel = weight.transpose(2, 3, 1, 0)
    if wrong == "untransposed":
        kernel = weight.reshape(*window, into, out)
    if wrong == "untransposed-square":
        kernel = weight.transpose(2, 3, 0, 1)
    if wrong == "window-transposed":
        kernel = weight.transpose(3, 2, 1, 0)
    if wrong == "kernel-flipped":
        kernel = kernel[::-1, ::-1]
    return {"kernel": kernel, "bias": array(layer.bias)}


def layers(wrong: str | None, model: Cnn) -> dict[str, dict[str, np.ndarray]]:
    first = None if wrong == "untransposed-square" else wrong
    second = wrong if wrong == "untransposed-square" else None
    bn1, bn2 = (model.bn2, model.bn1) if wrong == "layers-swapped" else (model.bn1, model.bn2)
    return {
        "conv1": moved_convolution(first, model.conv1),
        "bn1": {"scale": array(bn1.weight), "bias": array(bn1.bias)},
        "conv2": moved_convolution(second, model.conv2),
        "bn2": {"scale": array(bn2.weight), "bias": array(bn2.bias)},
        "fc": dense(model.fc),
    }


def statistics(wrong: str | None, model: Cnn) -> dict[str, dict[str, np.ndarray]]:
    moved = {
        name: {"mean": array(layer.running_mean), "var": array(layer.running_var)}
        for name, layer in (("bn1", model.bn1), ("bn2", model.bn2))
    }
    if wrong == "statistics-not-copied":
        moved["bn1"] = {"mean": 0 * moved["bn1"]["mean"], "var": 0 * moved["bn1"]["var"] + 1}
    return moved


def linen_params(wrong: str | None, model: Cnn) -> dict[str, dict]:
    return {"params": layers(wrong, model), "batch_stats": statistics(wrong, model)}


def nnx_params(wrong: str | None, model: Cnn) -> dict[str, dict[str, np.ndarray]]:
    both = statistics(wrong, model)
    return {name: own | both.get(name, {}) for name, own in layers(wrong, model).items()}


def nnx_port(wrong: str | None) -> nnx.Module:
    module = CnnNnx(nnx.Rngs(0), wrong or "")
    module.eval()
    return module


CONV1 = {"where": "conv1.weight", "seen": "conv1", "in_weights": True}
IN_WEIGHTS = {
    "untransposed": Mistake("untransposed", **CONV1),
    "kernel-flipped": Mistake("kernel-flipped", **CONV1),
    "window-transposed": Mistake("kernel-turned", **CONV1),
    "untransposed-square": Mistake("untransposed-square", "conv2.weight", "conv2", in_weights=True),
    "layers-swapped": Mistake("layers-swapped", "bn1", in_weights=True),
    "statistics-not-copied": Mistake(
        "running-statistics", "bn1.running_mean", "bn1", in_weights=True
    ),
}
IN_BOTH = {
    "padding-mode": Mistake("padding-mode", "conv2"),
    "nchw-flatten": Mistake("nchw-flatten", "", "fc"),
    "pool-kind": Mistake("pool-kind", "pool", "conv2"),
    # The running variance of Flax is also that of the batch, PyTorch's that of a sample, so that
    # even the right port is off in `running_var` then, by a factor that depends on the batch.
    "momentum": Mistake("momentum", "bn1.running_mean", shows_in=STATE),
}
LINEN = {
    "eps": Mistake("eps", "bn1"),
    "train-mode": Mistake("train-mode", "bn1", mutable=True),
    "norm-order": Mistake("norm-order", "bn1"),
    "missing-norm": Mistake("missing-norm", "bn2", "fc", also=("norm-missing",)),
    "activation-missing": Mistake("activation-missing", "", "fc"),
    "double-activation": Mistake("double-activation", "", "", also=("activation-extra",)),
    "matmul-precision": Mistake("matmul-precision", "fc"),
}
NNX = {
    "eps": Mistake("eps", "bn2"),
    "activation-missing": Mistake("activation-missing", "", "conv2"),
    "wrong-activation": Mistake("wrong-activation", "", "fc"),
    "dtype-cast": Mistake("dtype-cast", "", "conv2"),
}
PAIRS = (
    Pair(
        "cnn/linen",
        reference,
        inputs,
        lambda wrong: CnnLinen(wrong or ""),
        linen_params,
        IN_WEIGHTS | IN_BOTH | LINEN,
        channels_last,
    ),
    Pair(
        "cnn/nnx",
        reference,
        inputs,
        nnx_port,
        nnx_params,
        IN_WEIGHTS | IN_BOTH | NNX,
        channels_last,
    ),
)
