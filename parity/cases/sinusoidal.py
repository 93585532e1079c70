"""The position table and single rows, against closed forms."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

import jax_input
from parity import exact
from parity.case import Case, Tensor
from parity.cases.expected import FLOATS, rounded
from parity.cases.sides import on_jax, on_torch, published, torch_dtype, torch_ref

# Where formats and tables end: the integers of bfloat16, float16 and TF32, the largest float16,
# common lengths, both signs, and the ends of int32.
_BOUNDARIES = (
    *(0, 1, 2, 255, 256, 257, 2_047, 2_048, 2_049, 4_999, 65_504, 131_071, 1_000_000),
    *(-1, -257, 2**31 - 1, -(2**31)),
)
_TIMESTEPS = (0.5, 999.0, 0.001, -12.25, 123_456.78)
_CONVENTIONS: dict[str, dict[str, Any]] = {
    "paper": {},
    "tensor2tensor": {"layout": "halves", "freq_shift": 1},
    "marian": {"layout": "halves"},
    "diffusers": {"layout": "halves", "cos_first": True},
    "cosine first": {"cos_first": True},
    "base 500000": {"base": 500_000.0},
}


def cases() -> Iterator[Case]:
    """Yield the cases of ``jax_input.sinusoidal``."""
    for dtype in FLOATS:
        wide = dtype == "float32"
        yield _positions(64, "paper", dtype, "jit")
        yield _table(70, 34, "paper", dtype, "jit", default=False)
        yield _positions(64, "paper", dtype, "eager", default=False)
        # The shape of the input part's cases, so that one program does for all of them.
        yield _table(64, 48, "paper", dtype, "eager", default=wide)
    for convention in _CONVENTIONS:
        # Those left out mix what these have.
        common = convention in ("tensor2tensor", "diffusers", "cosine first", "base 500000")
        yield _positions(7, convention, "float32", "jit", default=common)
        yield _table(65, 7, convention, "float32", "jit", default=False)
    # Some of its entries are so small that float16 holds them with fewer bits.
    yield _positions(7, "base 500000", "float16", "jit", default=False)
    for width in (1, 2, 5):
        yield _positions(width, "paper", "float32", "eager", default=width == 1)
        yield _table(3, width, "paper", "float32", "eager", default=False)
    yield _table(5_000, 512, "paper", "float32", "jit", default=False)
    yield _timesteps()
    yield _published(60, default=False)
    yield _published(5_000)


def _table(
    max_len: int, d_model: int, convention: str, dtype: str, mode: str, *, default: bool = True
) -> Case:
    options = _CONVENTIONS[convention]
    rows = _shown(max_len)
    return Case(
        f"sinusoidal/table[{max_len}x{d_model}, {convention}, {dtype}, {mode}]",
        dtype,
        lambda: {"rows": rows},
        on_jax(
            lambda rows: jnp.take(
                jax_input.sinusoidal_table(
                    max_len, d_model, sinusoid=jax_input.Sinusoid(**options), dtype=dtype
                ),
                rows,
                axis=0,
            ),
            name="table",
            jit=mode == "jit",
        ),
        on_torch(
            lambda rows: torch_ref.sinusoidal_table(
                max_len,
                d_model,
                sinusoid=torch_ref.Sinusoid(**options),
                dtype=torch_dtype(dtype),
            )[rows],
            name="table",
        ),
        lambda: {"table": rounded(exact.sinusoid(rows, d_model, **options), dtype)},
        default=default,
    )


def _shown(max_len: int) -> np.ndarray:
    """Return the rows that are compared: all of a short table, 100 spread over a long one."""
    return np.unique(np.linspace(0, max_len - 1, 100).round().astype(np.int32))


def _positions(
    d_model: int, convention: str, dtype: str, mode: str, *, default: bool = True
) -> Case:
    options = _CONVENTIONS[convention]
    positions = np.array(_BOUNDARIES, np.int32)
    return Case(
        f"sinusoidal/positions[d_model {d_model}, {convention}, {dtype}, {mode}]",
        dtype,
        lambda: {"positions": positions},
        on_jax(
            lambda positions: jax_input.encode_positions(
                positions, d_model, sinusoid=jax_input.Sinusoid(**options), dtype=dtype
            ),
            name="table",
            jit=mode == "jit",
        ),
        on_torch(
            lambda positions: torch_ref.encode_positions(
                positions,
                d_model,
                sinusoid=torch_ref.Sinusoid(**options),
                dtype=torch_dtype(dtype),
            ),
            name="table",
        ),
        lambda: {"table": rounded(exact.sinusoid(positions, d_model, **options), dtype)},
        default=default,
        batch=("positions", "table"),
    )


def _timesteps() -> Case:
    positions = np.array(_TIMESTEPS, np.float32)
    sinusoid = asdict(jax_input.DIFFUSERS)

    def expected() -> dict[str, Tensor]:
        values = exact.sinusoid(positions, 320, **sinusoid)
        return {"table": Tensor(values, 2.0**-24, "the promise for float32 positions", False)}

    return Case(
        "sinusoidal/timesteps[d_model 320, float32, jit]",
        "float32",
        lambda: {"positions": positions},
        on_jax(
            lambda positions: jax_input.encode_positions(
                positions, 320, sinusoid=jax_input.DIFFUSERS
            ),
            name="table",
        ),
        on_torch(
            lambda positions: torch_ref.encode_positions(
                positions, 320, sinusoid=torch_ref.DIFFUSERS
            ),
            name="table",
        ),
        expected,
        batch=("positions", "table"),
    )


def _published(max_len: int, *, default: bool = True) -> Case:
    """Measure the published float32 formula: the reference is off, as `known.toml` says."""
    rows = _shown(max_len)
    return Case(
        f"sinusoidal/published[{max_len}x512, float32]",
        "float32",
        lambda: {"rows": rows},
        on_jax(lambda rows: jax_input.sinusoidal_table(max_len, 512)[rows], name="table"),
        on_torch(lambda rows: published.published_table(max_len, 512)[0, rows], name="table"),
        lambda: {"table": replace(rounded(exact.sinusoid(rows, 512), "float32"), same_bits=False)},
        default=default,
    )
