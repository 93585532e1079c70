"""The encoder's forward pass and gradient, against PyTorch and against plain Flax stacks.

Claims: faster than stacks of ``nn.MultiHeadDotProductAttention`` (linen) and of
``nnx.MultiHeadAttention``; at most 1.05 times the time of ``nn.TransformerEncoder`` forward, 1.2
times for the gradient of all parameters. Run: python -m benchmarks.encoder [rounds]
"""

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import linen, nnx

from benchmarks.ratios import alternate, show
from jax_input import EncoderConfig, encoder, encoder_params

SHAPES = ((8, 128, 6), (2, 1024, 2))
D_MODEL, NUM_HEADS, D_FF = 512, 8, 2048


class LinenLayer(linen.Module):
    """A post-norm layer as Flax's users write it."""

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Attend and feed forward."""
        attention = linen.MultiHeadDotProductAttention(NUM_HEADS, deterministic=True)
        x = linen.LayerNorm(epsilon=1e-5)(x + attention(x))
        hidden = linen.relu(linen.Dense(D_FF)(x))
        return linen.LayerNorm(epsilon=1e-5)(x + linen.Dense(D_MODEL)(hidden))


class NnxLayer(nnx.Module):
    """The same in nnx."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        """Draw the parameters."""
        self.attention = nnx.MultiHeadAttention(
            NUM_HEADS, D_MODEL, deterministic=True, decode=False, rngs=rngs
        )
        self.hidden = nnx.Linear(D_MODEL, D_FF, rngs=rngs)
        self.out = nnx.Linear(D_FF, D_MODEL, rngs=rngs)
        self.attention_norm = nnx.LayerNorm(D_MODEL, epsilon=1e-5, rngs=rngs)
        self.feed_forward_norm = nnx.LayerNorm(D_MODEL, epsilon=1e-5, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Attend and feed forward."""
        x = self.attention_norm(x + self.attention(x))
        return self.feed_forward_norm(x + self.out(nnx.relu(self.hidden(x))))


def timed(forward: Callable[..., jax.Array], params: Any, x: jax.Array) -> dict[str, Any]:
    """Return the compiled forward pass and gradient of a JAX function, ready to be called."""
    run = jax.jit(forward)
    gradient = jax.jit(jax.grad(lambda p, x: jnp.sum(forward(p, x) ** 2)))
    return {"forward": lambda: run(params, x), "gradient": lambda: gradient(params, x)}


def of_port(x: jax.Array, num_layers: int, *, scan: bool) -> dict[str, Any]:
    """Return ``jax_input.encoder``."""
    config = EncoderConfig(
        num_layers=num_layers, d_model=D_MODEL, num_heads=NUM_HEADS, d_ff=D_FF, scan=scan
    )
    params = encoder_params(jax.random.key(0), config)
    return timed(lambda p, x: encoder(x, p, config), params, x)


def of_linen(x: jax.Array, num_layers: int) -> dict[str, Any]:
    """Return a plain linen stack."""
    stack = linen.Sequential([LinenLayer() for _ in range(num_layers)])
    return timed(stack.apply, stack.init(jax.random.key(0), x), x)


def of_nnx(x: jax.Array, num_layers: int) -> dict[str, Any]:
    """Return a plain nnx stack."""
    stack = nnx.Sequential(*(NnxLayer(nnx.Rngs(0)) for _ in range(num_layers)))
    graph, state = nnx.split(stack)
    return timed(lambda state, x: nnx.merge(graph, state)(x), state, x)


def of_torch(module: torch.nn.Module, x: torch.Tensor) -> dict[str, Any]:
    """Return a PyTorch module: inference for the forward pass, training without dropout."""

    def forward() -> None:
        with torch.inference_mode():
            module.eval()(x)

    def gradient() -> None:
        module.zero_grad()
        module.train()(x).square().sum().backward()

    return {"forward": forward, "gradient": gradient}


def torch_encoder(num_layers: int) -> torch.nn.Module:
    """Return PyTorch's own."""
    layer = torch.nn.TransformerEncoderLayer(
        D_MODEL, NUM_HEADS, D_FF, dropout=0.0, batch_first=True
    )
    return torch.nn.TransformerEncoder(layer, num_layers)


def main(rounds: int) -> None:
    """Measure the shapes of the claims."""
    for batch, seq_len, num_layers in SHAPES:
        given = np.random.default_rng(0).normal(size=(batch, seq_len, D_MODEL)).astype(np.float32)
        x, tensor = jnp.asarray(given), torch.from_numpy(given)
        sides = {
            "nn.TransformerEncoder": of_torch(torch_encoder(num_layers), tensor),
            "jax_input.encoder, scan": of_port(x, num_layers, scan=True),
            "jax_input.encoder, unrolled": of_port(x, num_layers, scan=False),
            "linen stack": of_linen(x, num_layers),
            "nnx stack": of_nnx(x, num_layers),
        }
        for what in ("forward", "gradient"):
            measured = alternate(
                {name: side[what] for name, side in sides.items()},
                over="nn.TransformerEncoder",
                rounds=rounds,
            )
            title = f"{what} ({batch}, {seq_len}), d_model {D_MODEL}, {num_layers} layers"
            show(f"{title}; PyTorch on {torch.get_num_threads()} threads", measured)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
