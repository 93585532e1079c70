"""The linen modules, with their constants and with parameters alone."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from jax_input import linen, sinusoidal_table
from parity.case import Case
from parity.cases import modules
from parity.cases import problem as problems
from parity.cases.modules import RATE, Shell
from parity.cases.problem import Problem, problem
from parity.cases.sides import built, key, on_jax, on_torch


def cases() -> Iterator[Case]:
    """Yield the cases of ``jax_input.linen``."""
    yield from modules.cases(_SHELL)
    yield from map(_params_alone, ("right", "left"))


def _embed(given: Problem) -> Callable[..., Any]:
    vocab_size, d_model = given.embedding.shape

    def embed(token_ids: Any, embedding: Any, scale: Any) -> Any:
        module = linen.Embed(
            vocab_size=vocab_size,
            d_model=d_model,
            scale=scale,
            padding_idx=given.padding_idx,
            dtype=given.dtype,
        )
        return module.apply({"params": {"embedding": embedding}}, token_ids)

    return embed


def _module(given: Problem) -> linen.TransformerInput:
    return linen.TransformerInput(
        **given.sizes, padding_idx=given.padding_idx, dropout_rate=RATE, dtype=given.dtype
    )


def _whole(
    given: Problem, *, constants: bool = True, rngs: dict[str, Any] | None = None
) -> Callable[..., Any]:
    module = _module(given)
    table = sinusoidal_table(module.max_len, module.d_model, dtype=given.dtype)
    kept = {"constants": {"position_table": table}} if constants else {}

    def forward(token_ids: Any, embedding: Any, positions: Any = None) -> Any:
        variables = {"params": {"embedding": embedding}, **kept}
        return module.apply(variables, token_ids, positions, rngs is None, rngs=rngs)

    return forward


def _params_alone(padding: str) -> Case:
    """Leave out the constants, and compare the rows that are built in their place."""
    given = problem("float32", padding)
    given = replace(given, embedding=np.zeros_like(given.embedding))
    return Case(
        f"linen/params_alone[padding {padding}, float32, jit]",
        "float32",
        lambda: given.arrays,
        on_jax(_whole(given, constants=False), name="table"),
        built(lambda: on_torch(modules.torch_forward(given), name="table")),
        lambda: {"table": problems.expected(given)["table"]},
        default=padding == "left",
    )


def _halves(given: Problem) -> Callable[..., Any]:
    embed = _embed(given)
    encode = linen.PositionalEncoding(
        d_model=given.embedding.shape[1], max_len=64, dtype=given.dtype, deterministic=True
    )

    def forward(token_ids: Any, embedding: Any, positions: Any = None) -> Any:
        rows = embed(token_ids, embedding, "sqrt")
        # The constants that the module makes for itself, handed back to it.
        _, made = encode.apply({}, rows, positions, mutable=["constants"])
        return encode.apply(made, rows, positions)

    return forward


def _fresh(given: Problem) -> np.ndarray:
    init = jax.jit(lambda: _module(given).init(key(2), given.token_ids, None, True)["params"])
    return np.asarray(init()["embedding"])


_SHELL = Shell(
    "linen", _embed, _whole, _halves, lambda given: _whole(given, rngs={"dropout": key(1)}), _fresh
)
