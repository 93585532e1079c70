"""The nnx modules."""

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx as flax_nnx

from jax_input import nnx
from parity.case import Case
from parity.cases import modules
from parity.cases.modules import RATE, Shell
from parity.cases.problem import Problem
from parity.cases.sides import key


def cases() -> Iterator[Case]:
    """Yield the cases of ``jax_input.nnx``."""
    return modules.cases(_SHELL)


def _embed(given: Problem) -> Callable[..., Any]:
    vocab_size, d_model = given.embedding.shape

    def embed(token_ids: Any, embedding: Any, scale: Any) -> Any:
        module = nnx.Embed(
            vocab_size=vocab_size,
            d_model=d_model,
            scale=scale,
            padding_idx=given.padding_idx,
            dtype=jnp.dtype(given.dtype),
            rngs=flax_nnx.Rngs(key(0)),
        )
        module.embedding[...] = embedding
        return module(token_ids)

    return embed


def _whole(given: Problem, *, deterministic: bool) -> Callable[..., Any]:
    module = nnx.TransformerInput(
        **given.sizes,
        padding_idx=given.padding_idx,
        dropout_rate=RATE,
        dtype=jnp.dtype(given.dtype),
        rngs=flax_nnx.Rngs(key(0)),
    )
    (module.eval if deterministic else module.train)()
    graph, *states = flax_nnx.split(module, flax_nnx.Param, ...)

    def forward(token_ids: Any, embedding: Any, positions: Any = None) -> Any:
        state = flax_nnx.State({"embedding": flax_nnx.Param(embedding)})
        rngs = None if deterministic else key(1)
        return flax_nnx.merge(graph, state, states[1])(token_ids, positions, rngs=rngs)

    return forward


def _halves(given: Problem) -> Callable[..., Any]:
    embed = _embed(given)
    encode = nnx.PositionalEncoding(
        d_model=given.embedding.shape[1],
        max_len=64,
        dtype=jnp.dtype(given.dtype),
        rngs=flax_nnx.Rngs(key(0)),
    )
    encode.eval()
    return lambda token_ids, embedding, positions=None: encode(
        embed(token_ids, embedding, "sqrt"), positions
    )


def _fresh(given: Problem) -> np.ndarray:
    module = nnx.TransformerInput(
        **given.sizes, padding_idx=given.padding_idx, rngs=flax_nnx.Rngs(key(2))
    )
    return np.asarray(module.embedding[...])


_SHELL = Shell(
    "nnx",
    _embed,
    lambda given: _whole(given, deterministic=True),
    _halves,
    lambda given: _whole(given, deterministic=False),
    _fresh,
)
