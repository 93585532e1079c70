"""What a forward of ``linen.TransformerInput`` costs a caller who brings no constants.

Run: ``python benchmarks/params_only.py``. Each line is the median of alternating ratios of two
jitted forwards at (8, 512), d_model 512, vocabulary 32,000, max_len 5,000.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jax_input.inputs import transformer_input
from jax_input.linen import TransformerInput
from jax_input.sinusoidal import encode_positions, sinusoidal_table

BATCH, SEQ_LEN, D_MODEL, VOCAB_SIZE, MAX_LEN = 8, 512, 512, 32_000, 5_000
REPEATS = 31


def seconds(call: Callable[..., jax.Array], arguments: tuple[Any, ...]) -> float:
    """Return the time of one call, finished."""
    start = time.perf_counter()
    call(*arguments).block_until_ready()
    return time.perf_counter() - start


def median_ratio(
    call: Callable[..., jax.Array],
    arguments: tuple[Any, ...],
    base: Callable[..., jax.Array],
    base_arguments: tuple[Any, ...],
) -> float:
    """Return the median ratio of the times of two functions, called in turns."""
    call, base = jax.jit(call), jax.jit(base)
    seconds(call, arguments), seconds(base, base_arguments)
    pairs = [(seconds(call, arguments), seconds(base, base_arguments)) for _ in range(REPEATS)]
    return statistics.median(ours / theirs for ours, theirs in pairs)


def unchecked(variables: Any, token_ids: jax.Array) -> jax.Array:
    """Run the pure function on the module's variables."""
    table = variables["constants"]["position_table"]
    return transformer_input(token_ids, variables["params"]["embedding"], table)


def naive(variables: Any, token_ids: jax.Array) -> jax.Array:
    """Build the rows in the middle of the forward."""
    table = sinusoidal_table(SEQ_LEN, D_MODEL)
    return transformer_input(token_ids, variables["params"]["embedding"], table)


def naive_positions(variables: Any, token_ids: jax.Array, positions: jax.Array) -> jax.Array:
    """Encode each position by itself in the middle of the forward."""
    rows = encode_positions(positions, D_MODEL)
    table = jnp.zeros((SEQ_LEN, D_MODEL))
    return transformer_input(token_ids, variables["params"]["embedding"], table) + rows


def main() -> None:
    """Print the ratios."""
    model = TransformerInput(
        vocab_size=VOCAB_SIZE, d_model=D_MODEL, max_len=MAX_LEN, deterministic=True
    )
    id_key, position_key, init_key = jax.random.split(jax.random.key(0), 3)
    token_ids = jax.random.randint(id_key, (BATCH, SEQ_LEN), 0, VOCAB_SIZE)
    positions = jax.random.randint(position_key, (BATCH, SEQ_LEN), 0, MAX_LEN)
    variables = model.init(init_key, token_ids)
    params = {"params": variables["params"]}
    kept, brought = (variables, token_ids), (variables, token_ids, positions)
    params_kept, params_brought = (params, *kept[1:]), (params, *brought[1:])
    lines = {
        "constants, over the pure function": (model.apply, kept, unchecked, kept),
        "params only, over constants": (model.apply, params_kept, model.apply, kept),
        "naive rebuild, over constants": (naive, kept, model.apply, kept),
        "params only, over constants, with positions": (
            *(model.apply, params_brought, model.apply, brought),
        ),
        "naive rebuild, over constants, with positions": (
            *(naive_positions, brought, model.apply, brought),
        ),
    }
    for name, (call, arguments, base, base_arguments) in lines.items():
        print(f"{median_ratio(call, arguments, base, base_arguments):6.2f}  {name}", flush=True)


if __name__ == "__main__":
    main()
