"""The linen modules, with their constants and with parameters alone."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from jax_input import linen
from parity.case import Case
from parity.cases import modules
from parity.cases.expected import FLOATS
from parity.cases.modules import RATE, Shell
from parity.cases.problem import Problem, problem
from parity.cases.sides import key


def cases() -> Iterator[Case]:
    """Yield the cases of ``jax_input.linen``."""
    for dtype in FLOATS:
        parameters = f"padding right, {dtype}, jit"
        yield modules.terms(_SHELL, problem(dtype), parameters, default=False)
        yield modules.dropout(_SHELL, dtype, default=dtype == "float32")
    yield modules.terms(_SHELL, problem("bfloat16", "left"), "padding left, bfloat16, jit")
    left = problem("float32", "left")
    yield modules.terms(_SHELL, left, "padding left, float32, eager", default=False)
    for padding in ("right", "left"):
        given = problem("float32", padding)
        parameters = f"params alone, padding {padding}, float32, jit"
        yield modules.terms(_PARAMS_ALONE, given, parameters)
    yield modules.fresh(_SHELL)


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


def _forward(given: Problem) -> Callable[..., Any]:
    module = _module(given)
    constants = _built(module, given)

    def forward(token_ids: Any, embedding: Any, positions: Any = None) -> Any:
        variables = {"params": {"embedding": embedding}, "constants": constants}
        return module.apply(variables, token_ids, positions, True)

    return forward


def _built(module: linen.TransformerInput, given: Problem) -> Any:
    """Return the constants that the module makes for itself."""

    @jax.jit
    def build(embedding: Any) -> Any:
        variables = {"params": {"embedding": embedding}}
        _, made = module.apply(variables, given.token_ids, None, True, mutable=["constants"])
        return made["constants"]

    return build(given.embedding)


def _params_alone(given: Problem) -> Callable[..., Any]:
    module = _module(given)

    def forward(token_ids: Any, embedding: Any, positions: Any = None) -> Any:
        return module.apply({"params": {"embedding": embedding}}, token_ids, positions, True)

    return forward


def _halves(given: Problem) -> Callable[..., Any]:
    embed = _embed(given)
    encode = linen.PositionalEncoding(
        d_model=given.embedding.shape[1], max_len=64, dtype=given.dtype, deterministic=True
    )
    constants = encode.init({}, np.zeros((1, 1, encode.d_model), np.float32))

    def forward(token_ids: Any, embedding: Any, positions: Any = None) -> Any:
        return encode.apply(constants, embed(token_ids, embedding, "sqrt"), positions)

    return forward


def _train(given: Problem) -> Callable[..., Any]:
    module = _module(given)

    def forward(token_ids: Any, embedding: Any, positions: Any = None) -> Any:
        variables = {"params": {"embedding": embedding}}
        rngs = {"dropout": key(1)}
        return module.apply(variables, token_ids, positions, False, rngs=rngs)

    return forward


def _fresh(given: Problem) -> np.ndarray:
    variables = _module(given).init(key(2), given.token_ids, None, True)
    return np.asarray(variables["params"]["embedding"])


_SHELL = Shell("linen", _embed, _forward, _halves, _train, _fresh)
_PARAMS_ALONE = Shell("linen", _embed, _params_alone, _halves, _train, _fresh)
