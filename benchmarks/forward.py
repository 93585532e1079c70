"""The jitted forward pass of the input part, against hand-written JAX and against PyTorch.

Claims: no slower than ``W[ids] * s + pe`` under jit (a ratio of at most 1.05), and faster than
``torch_ref`` on the same threads. Run: python -m benchmarks.forward
"""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

import torch_ref
from benchmarks.ratios import alternate, show
from jax_input import linen, transformer_input
from jax_input import nnx as input_nnx

BATCH, SEQ_LEN, D_MODEL, VOCAB = 8, 512, 512, 32_000


def main() -> None:
    """Measure the shapes of the claims, in evaluation."""
    ids = np.random.default_rng(0).integers(0, VOCAB, (BATCH, SEQ_LEN)).astype(np.int32)
    token_ids = jnp.asarray(ids)
    module = linen.TransformerInput(vocab_size=VOCAB, d_model=D_MODEL, deterministic=True)
    variables = module.init(jax.random.key(0), token_ids)
    embedding = variables["params"]["embedding"]
    table = variables["constants"]["position_table"]
    nnx_module = input_nnx.TransformerInput(vocab_size=VOCAB, d_model=D_MODEL, rngs=nnx.Rngs(0))
    nnx_module.eval()
    graph, state = nnx.split(nnx_module)
    reference = torch_ref.TransformerInput(vocab_size=VOCAB, d_model=D_MODEL).eval()
    torch_ids = torch.from_numpy(ids).long()
    scale = D_MODEL**0.5

    by_hand = jax.jit(lambda w, pe, i: w[i] * scale + pe[: i.shape[-1]])
    pure = jax.jit(transformer_input)
    with_constants = jax.jit(module.apply)
    merged = jax.jit(lambda s, i: nnx.merge(graph, s)(i))

    def in_torch() -> None:
        with torch.inference_mode():
            reference(torch_ids)

    measured = alternate(
        {
            "by hand": lambda: by_hand(embedding, table, token_ids),
            "transformer_input": lambda: pure(token_ids, embedding, table),
            "linen": lambda: with_constants(variables, token_ids),
            "nnx": lambda: merged(state, token_ids),
            "torch_ref": in_torch,
        },
        over="by hand",
        rounds=51,
    )
    title = f"forward ({BATCH}, {SEQ_LEN}), d_model {D_MODEL}, vocabulary {VOCAB}"
    show(f"{title}; PyTorch on {torch.get_num_threads()} threads", measured)


if __name__ == "__main__":
    main()
