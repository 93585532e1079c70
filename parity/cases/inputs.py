"""Dropout with the same mask on both sides, and the input part term by term."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

import jax_input
from parity.case import Arrays, Case, Tensor
from parity.cases import problem as problems
from parity.cases.expected import FLOATS, product, rng
from parity.cases.problem import Problem, problem
from parity.cases.sides import (
    COTANGENT,
    MODES,
    built,
    key,
    on_jax,
    on_torch,
    torch_dtype,
    torch_ref,
)
from parity.formats import round_to


def cases() -> Iterator[Case]:
    """Yield the cases of ``jax_input.inputs``."""
    for mode in MODES:
        for dtype in FLOATS:
            jit = mode == "jit"
            yield _dropout(0.1, dtype, mode, default=jit)
            yield _dropout(0.5, dtype, mode, default=False)
            terms = jit and dtype == "float32"
            yield _transformer_input(problem(dtype), f"padding right, {dtype}, {mode}", terms)
    left = problem("float16", "left")
    yield _transformer_input(left, "padding left, float16, jit", default=False)
    everywhere = problem("float32", "everywhere")
    yield _transformer_input(everywhere, "padding everywhere, float32, jit", default=False)
    yield from (_drawn(problem(dtype, "nowhere"), dtype, default=False) for dtype in FLOATS)


def _dropout(rate: float, dtype: str, mode: str, default: bool) -> Case:
    random = rng(6)
    x, cotangent = (round_to(random.normal(size=(4, 5, 64)), dtype) for _ in range(2))
    mask = random.random(size=x.shape) >= rate

    def expected() -> dict[str, Tensor]:
        kept, dropped = (np.where(mask, a.astype(np.float64), 0.0) for a in (x, cotangent))
        return {
            "dropout": product(kept, 1 / (1 - rate), dtype),
            "gradient/x": product(dropped, 1 / (1 - rate), dtype),
        }

    return Case(
        f"inputs/dropout[rate {rate}, {dtype}, {mode}]",
        dtype,
        lambda: {"x": x, "mask": mask, COTANGENT: cotangent},
        on_jax(
            lambda x, mask: jax_input.dropout(x, rate, mask=mask),
            name="dropout",
            jit=mode == "jit",
        ),
        on_torch(lambda x, mask: torch_ref.dropout(x, rate, mask=mask), name="dropout"),
        expected,
        default=default,
        batch=("x", "mask", COTANGENT, "dropout", "gradient/x"),
    )


def _transformer_input(given: Problem, parameters: str, default: bool = True) -> Case:
    return Case(
        f"inputs/transformer_input[{parameters}]",
        given.dtype,
        lambda: given.differentiated,
        port_terms(given, jit=parameters.endswith("jit")),
        reference_terms(given),
        lambda: problems.expected(given),
        default=default,
        batch=problems.BATCH,
    )


def port_terms(given: Problem, *, jit: bool = True) -> Callable[[Arrays], Arrays]:
    """Return what runs the pure functions of the port, term by term."""

    def build() -> Callable[[Arrays], Arrays]:
        max_len, d_model = given.sizes["max_len"], given.sizes["d_model"]
        table = jax_input.sinusoidal_table(max_len, d_model, dtype=given.dtype)
        side = problems.Functions(
            lambda token_ids, embedding, scale: jax_input.embed_tokens(
                token_ids, embedding, scale=scale, padding_idx=given.padding_idx, dtype=given.dtype
            ),
            lambda token_ids, embedding, positions=None: jax_input.transformer_input(
                token_ids, embedding, table, positions=positions, padding_idx=given.padding_idx
            ),
        )
        return problems.port(side, jit=jit)

    return built(build)


def reference_terms(given: Problem) -> Callable[[Arrays], Arrays]:
    """Return what runs the pure functions of the reference, term by term."""

    def build() -> Callable[[Arrays], Arrays]:
        max_len, d_model = given.sizes["max_len"], given.sizes["d_model"]
        dtype = torch_dtype(given.dtype)
        table = torch_ref.sinusoidal_table(max_len, d_model, dtype=dtype)
        side = problems.Functions(
            lambda token_ids, embedding, scale: torch_ref.embed_tokens(
                token_ids, embedding, scale=scale, padding_idx=given.padding_idx, dtype=dtype
            ),
            lambda token_ids, embedding, positions=None: torch_ref.transformer_input(
                token_ids, embedding, table, positions=positions, padding_idx=given.padding_idx
            ),
        )
        return problems.reference(side)

    return built(build)


def _drawn(given: Problem, dtype: str, *, default: bool) -> Case:
    """Let the port draw its mask from a key; the other side keeps everything."""
    rate = 0.25
    arrays = {**given.arrays, "table": problems.table_of(given)}
    function = partial(
        jax_input.transformer_input, padding_idx=given.padding_idx, dropout_rate=rate
    )
    return Case(
        f"inputs/dropout_key[rate {rate}, {dtype}, jit]",
        dtype,
        lambda: arrays,
        problems.drawing(on_jax(partial(function, dropout_key=key(0)), name="dropout"), rate),
        problems.keeping(
            lambda **arrays: torch_ref.transformer_input(
                **arrays, padding_idx=given.padding_idx, dropout_rate=rate
            )
        ),
        lambda: {"dropout": problems.kept(given, rate), "mask": problems.DRAWN},
        default=default,
        drops=("dropout",),
    )
