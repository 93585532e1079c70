"""The scaled look-up, its gradient, the padding row, and ids without a row."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import jax_input
from parity.case import Arrays, Case, Tensor
from parity.cases.expected import FLOATS, product, rng, rounded, scattered, whole
from parity.cases.sides import COTANGENT, MODES, on_jax, on_torch, torch_dtype, torch_ref
from parity.formats import round_to

# sqrt(300) is no power of two, so that a missing rounding shows.
_VOCAB, _WIDTH = 23, 300
_IDS = {
    "batch": [[0, 22, 5, 5, 7], [7, 5, 0, 1, 0]],
    "length 1": [[3], [0]],
    "one sequence": [4, 4, 22],
}


def cases() -> Iterator[Case]:
    """Yield the cases of ``jax_input.embed_tokens``."""
    for mode in MODES:
        jit = mode == "jit"
        for dtype in FLOATS:
            yield _look_up("rows", dtype, dtype, mode, default=jit)
            yield _look_up("scale", dtype, dtype, mode, default=False, scale="sqrt")
        for dtype in ("bfloat16", "float16"):
            yield _look_up("scale", "float32", dtype, mode, default=False, scale="sqrt")
        yield _look_up("padding", "float32", "float32", mode, default=jit, scale=1.7, padding_idx=5)
        yield _look_up(
            "padding", "float32", "float32", mode, default=jit, padding_idx=5, zero_padding=True
        )
        for policy in ("nan", "clip", "zero"):
            yield _out_of_range(policy, mode, default=jit)
        yield _hits("float32", "bfloat16", mode, default=jit)
        yield _hits("bfloat16", "bfloat16", mode, default=False)
        yield _empty(mode, default=jit)
    # So small that float16 holds it with fewer bits.
    yield _look_up("scale", "float32", "float16", "jit", default=False, scale=1e-5)
    yield _look_up("rows", "float32", "float32", "jit", default=False, ids="length 1")
    yield _look_up("rows", "float32", "float32", "jit", default=False, ids="one sequence")


def _embedding(dtype: str) -> np.ndarray:
    return round_to(rng(2).normal(size=(_VOCAB, _WIDTH)), dtype)


def _case(
    name: str,
    term: str,
    arrays: Arrays,
    dtype: str,
    expected: dict[str, Tensor],
    *,
    jit: bool,
    default: bool = True,
    **options: Any,
) -> Case:
    return Case(
        name,
        dtype,
        lambda: arrays,
        on_jax(
            lambda token_ids, embedding: jax_input.embed_tokens(
                token_ids, embedding, dtype=dtype, **options
            ),
            name=term,
            jit=jit,
        ),
        on_torch(
            lambda token_ids, embedding: torch_ref.embed_tokens(
                token_ids, embedding, dtype=torch_dtype(dtype), **options
            ),
            name=term,
        ),
        lambda: expected,
        default=default,
        batch=("token_ids", COTANGENT, term),
    )


def _look_up(
    term: str,
    param_dtype: str,
    dtype: str,
    mode: str,
    *,
    ids: str = "batch",
    default: bool = True,
    **options: Any,
) -> Case:
    token_ids = np.array(_IDS[ids], np.int32)
    embedding = _embedding(param_dtype)
    cotangent = round_to(rng(3).normal(size=(*token_ids.shape, _WIDTH)), dtype)
    scale = options.get("scale")
    factor = 1.0 if scale is None else _WIDTH**0.5 if scale == "sqrt" else scale
    rows = embedding.astype(np.float64)[token_ids]
    is_padding = (token_ids == options.get("padding_idx"))[..., None]
    if options.get("zero_padding"):
        rows = np.where(is_padding, 0.0, rows)
    output = rounded(rows, dtype) if scale is None else product(rows, factor, dtype)
    terms = np.where(is_padding, 0, cotangent.astype(np.float64) * factor)
    gradient = scattered(token_ids, terms, _VOCAB, param_dtype)
    named = ", ".join(f"{key} {value}" for key, value in options.items())
    shape = f"{ids}, " if ids != "batch" else ""
    kinds = dtype if dtype == param_dtype else f"{param_dtype} to {dtype}"
    return _case(
        f"embedding/{term}[{kinds}, {shape}{f'{named}, ' if named else ''}{mode}]",
        term,
        {"token_ids": token_ids, "embedding": embedding, COTANGENT: cotangent},
        dtype,
        {term: output, "gradient/embedding": gradient},
        jit=mode == "jit",
        default=default,
        **options,
    )


def _out_of_range(policy: str, mode: str, *, default: bool) -> Case:
    token_ids = np.array([[1, 23, -1, 22], [-24, 0, 2**31 - 1, 23]], np.int32)
    embedding = _embedding("float32")
    cotangent = round_to(rng(4).normal(size=(2, 4, _WIDTH)), "float32")
    outside = ((token_ids < 0) | (token_ids >= _VOCAB))[..., None]
    nearest = np.clip(token_ids, 0, _VOCAB - 1)
    rows, terms = embedding.astype(np.float64)[nearest], cotangent.astype(np.float64)
    if policy != "clip":
        rows = np.where(outside, np.nan if policy == "nan" else 0.0, rows)
        terms = np.where(outside, 0.0, terms)
    return _case(
        f"embedding/out_of_range[{policy}, {mode}]",
        "rows",
        {"token_ids": token_ids, "embedding": embedding, COTANGENT: cotangent},
        "float32",
        {
            "rows": rounded(rows, "float32"),
            "gradient/embedding": scattered(nearest, terms, _VOCAB, "float32"),
        },
        jit=mode == "jit",
        default=default,
        out_of_range=policy,
    )


def _hits(param_dtype: str, dtype: str, mode: str, *, default: bool) -> Case:
    """Hit one row 4,096 times with ones: a sum in bfloat16 stops at 256."""
    token_ids = np.zeros(4_096, np.int32)
    embedding = round_to(rng(5).normal(size=(4, 2)), param_dtype)
    exact = np.zeros((4, 2))
    exact[0] = 4_096
    reason = "a sum of 4,096 ones is exact in float32, and a power of two in every format"
    one_row = "one row is hit by the same cotangent every time"
    gradient = Tensor(exact, 0.0, reason, same_bits=True, uniform=one_row)
    rows = rounded(embedding.astype(np.float64)[token_ids], dtype)
    return _case(
        f"embedding/hits[{param_dtype} to {dtype}, {mode}]",
        "rows",
        {
            "token_ids": token_ids,
            "embedding": embedding,
            COTANGENT: round_to(np.ones((4_096, 2)), dtype),
        },
        dtype,
        {
            "rows": replace(rows, uniform=one_row),
            "gradient/embedding": gradient,
        },
        jit=mode == "jit",
        default=default,
    )


def _empty(mode: str, *, default: bool) -> Case:
    """Look up nothing: the shape is kept and the gradient is zero."""

    def shaped(side: Callable[[Arrays], Arrays]) -> Callable[[Arrays], Arrays]:
        def run(arrays: Arrays) -> Arrays:
            results = side(arrays)
            return {
                "shape": np.array(results["rows"].shape, np.int64),
                "gradient/embedding": results["gradient/embedding"],
            }

        return run

    inner = _case(
        f"embedding/empty[{mode}]",
        "rows",
        {
            "token_ids": np.zeros((0, 5), np.int32),
            "embedding": _embedding("float32"),
            COTANGENT: np.zeros((0, 5, _WIDTH), np.float32),
        },
        "float32",
        {
            "shape": whole(np.array([0, 5, _WIDTH])),
            "gradient/embedding": Tensor(
                np.zeros((_VOCAB, _WIDTH)), 0.0, "no terms", True, uniform="no token, no gradient"
            ),
        },
        jit=mode == "jit",
        scale="sqrt",
    )
    return replace(
        inner, port=shaped(inner.port), reference=shaped(inner.reference), default=default, batch=()
    )
