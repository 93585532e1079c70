"""The jitted forward pass of a caller who brings no constants, against one who brings them.

The rows of the call are built again each time, once for the whole batch; written plainly, XLA
builds them for each sequence. The check of a table that is brought takes less than 0.05 of the
pass. Run: python -m benchmarks.params_only
"""

from functools import partial
from typing import Any

import jax

from benchmarks.ratios import alternate, show
from jax_input import (
    embed_tokens,
    encode_positions,
    linen,
    sinusoidal_table,
    transformer_input,
)

BATCH, SEQ_LEN, D_MODEL, VOCAB, MAX_LEN = 8, 512, 512, 32_000, 5_000


def without_check(variables: Any, token_ids: jax.Array, positions: jax.Array | None) -> jax.Array:
    """Run the pure function on the variables of the module."""
    table = variables["constants"]["position_table"]
    return transformer_input(
        token_ids, variables["params"]["embedding"], table, positions=positions
    )


def plainly(variables: Any, token_ids: jax.Array, positions: jax.Array | None) -> jax.Array:
    """Build the rows in the middle of the forward pass."""
    if positions is None:
        table = sinusoidal_table(SEQ_LEN, D_MODEL)
        return transformer_input(token_ids, variables["params"]["embedding"], table)
    x = embed_tokens(token_ids, variables["params"]["embedding"], scale="sqrt")
    return x + encode_positions(positions, D_MODEL)


def main() -> None:
    """Measure the shape of the claims, without positions and with one for each token."""
    id_key, position_key, init_key = jax.random.split(jax.random.key(0), 3)
    token_ids = jax.random.randint(id_key, (BATCH, SEQ_LEN), 0, VOCAB)
    somewhere = jax.random.randint(position_key, (BATCH, SEQ_LEN), 0, MAX_LEN)
    module = linen.TransformerInput(
        vocab_size=VOCAB, d_model=D_MODEL, max_len=MAX_LEN, deterministic=True
    )
    variables = module.init(init_key, token_ids)
    params = {"params": variables["params"]}
    apply, pure, plain = jax.jit(module.apply), jax.jit(without_check), jax.jit(plainly)

    for positions, words in ((None, "positions 0, 1, ..."), (somewhere, "a position a token")):
        ids_and_positions = (token_ids, positions)
        brought = partial(apply, variables, *ids_and_positions)
        title = f"forward ({BATCH}, {SEQ_LEN}), d_model {D_MODEL}, {words}"
        unchecked = {"unchecked": partial(pure, variables, *ids_and_positions)}
        # Apart from the others, since what runs after a large table finds a cold cache.
        check = alternate({**unchecked, "constants": brought}, over="unchecked", rounds=101)
        show(f"{title}: the check", check)
        alone = {
            "constants": brought,
            "params alone": partial(apply, params, *ids_and_positions),
            "params alone, built plainly": partial(plain, params, *ids_and_positions),
        }
        show(f"{title}: the rebuild", alternate(alone, over="constants", rounds=51))


if __name__ == "__main__":
    main()
