"""Dropout with the same mask on both sides, and the input part term by term."""

from collections.abc import Iterator
from functools import partial

import numpy as np

import jax_input
import torch_ref
from parity.case import Case, Tensor
from parity.cases import problem as problems
from parity.cases.expected import FLOATS, product, rng, whole
from parity.cases.problem import Problem, problem
from parity.cases.sides import MODES, key, on_jax, on_torch, once, torch_dtype
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
    arrays = {"x": x, "mask": mask}

    def expected() -> dict[str, Tensor]:
        kept, dropped = (np.where(mask, a.astype(np.float64), 0.0) for a in (x, cotangent))
        return {
            "dropout": product(kept, 1 / (1 - rate), dtype),
            "gradient/x": product(dropped, 1 / (1 - rate), dtype),
        }

    return Case(
        f"inputs/dropout[rate {rate}, {dtype}, {mode}]",
        dtype,
        lambda: on_jax(
            lambda x, mask: jax_input.dropout(x, rate, mask=mask),
            arrays,
            name="dropout",
            cotangent=cotangent,
            jit=mode == "jit",
        ),
        lambda: on_torch(
            lambda x, mask: torch_ref.dropout(x, rate, mask=mask),
            arrays,
            name="dropout",
            cotangent=cotangent,
        ),
        expected,
        default=default,
    )


def _transformer_input(given: Problem, parameters: str, default: bool = True) -> Case:
    return Case(
        f"inputs/transformer_input[{parameters}]",
        given.dtype,
        lambda: port_terms(given, jit=parameters.endswith("jit")),
        lambda: reference_terms(given),
        lambda: problems.expected(given),
        default=default,
    )


def port_terms(given: Problem, *, jit: bool = True) -> dict[str, np.ndarray]:
    """Run the pure functions of the port, term by term."""
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
    return problems.port(given, side, jit=jit)


def reference_terms(given: Problem) -> dict[str, np.ndarray]:
    """Run the pure functions of the reference, term by term."""
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
    return problems.reference(given, side)


def _drawn(given: Problem, dtype: str, *, default: bool) -> Case:
    """Let the port draw its mask from a key, and give the other side the same mask."""
    rate = 0.25
    arrays = {**given.arrays, "table": problems.table_of(given)}

    @once
    def drawn() -> np.ndarray:
        function = partial(
            jax_input.transformer_input,
            padding_idx=given.padding_idx,
            dropout_rate=rate,
            dropout_key=key(0),
        )
        return on_jax(function, arrays, name="dropout")["dropout"]

    def reference() -> dict[str, np.ndarray]:
        function = partial(
            torch_ref.transformer_input, padding_idx=given.padding_idx, dropout_rate=rate
        )
        masked = {**arrays, "dropout_mask": problems.mask_of(drawn())}
        result = on_torch(function, masked, name="dropout")
        return result | {"mask": np.array([True, True])}

    return Case(
        f"inputs/dropout_key[rate {rate}, {dtype}, jit]",
        dtype,
        lambda: {"dropout": drawn(), "mask": problems.draws(drawn(), rate)},
        reference,
        lambda: {
            "dropout": problems.dropped(given, problems.mask_of(drawn()), rate),
            "mask": whole(np.array([True, True])),
        },
        default=default,
    )
