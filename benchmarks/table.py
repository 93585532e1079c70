"""The exact table, and exact rows, against the float32 formula that everyone writes.

Claims: the table takes at most 0.9 of the formula's time; rows of arbitrary positions at most 3.5
times. Run: python -m benchmarks.table
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.ratios import alternate, show
from jax_input import encode_positions, sinusoidal_table


def naive(positions: jax.Array, d_model: int) -> jax.Array:
    """Return the published formula, in float32."""
    scaled = jnp.arange(0, d_model, 2, dtype=jnp.float32) * (-math.log(10_000.0) / d_model)
    angle = positions.astype(jnp.float32)[:, None] * jnp.exp(scaled)
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1).reshape(-1, d_model)


def naive_by_columns(positions: jax.Array, d_model: int) -> jax.Array:
    """Return the same, written into columns as PyTorch code does it."""
    scaled = jnp.arange(0, d_model, 2, dtype=jnp.float32) * (-math.log(10_000.0) / d_model)
    angle = positions.astype(jnp.float32)[:, None] * jnp.exp(scaled)
    table = jnp.zeros((positions.shape[0], d_model))
    return table.at[:, 0::2].set(jnp.sin(angle)).at[:, 1::2].set(jnp.cos(angle))


def main() -> None:
    """Measure the sizes of the claims."""
    for max_len, d_model in ((512, 512), (5_000, 512), (32_768, 1_024)):
        exact, formula, by_columns = (
            jax.jit(build)
            for build in (
                lambda n=max_len, d=d_model: sinusoidal_table(n, d),
                lambda n=max_len, d=d_model: naive(jnp.arange(n), d),
                lambda n=max_len, d=d_model: naive_by_columns(jnp.arange(n), d),
            )
        )
        measured = alternate(
            {
                "float32 formula": formula,
                "float32 formula, by columns": by_columns,
                "sinusoidal_table": exact,
            },
            over="float32 formula",
        )
        show(f"table {max_len} x {d_model}", measured)
    positions = jnp.asarray(np.random.default_rng(0).permutation(5_000), jnp.int32)
    exact_rows = jax.jit(lambda p: encode_positions(p, 512))
    formula_rows = jax.jit(lambda p: naive(p, 512))
    measured = alternate(
        {
            "float32 formula": lambda: formula_rows(positions),
            "encode_positions": lambda: exact_rows(positions),
        },
        over="float32 formula",
    )
    show("5,000 arbitrary positions x 512", measured)


if __name__ == "__main__":
    main()
