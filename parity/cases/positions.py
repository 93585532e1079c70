"""Position numbers, and the rows they add."""

from collections.abc import Iterator

import numpy as np

import jax_input
from parity.case import Case, Tensor
from parity.cases.expected import FLOATS, half_ulp, rng, scattered, whole
from parity.cases.sides import COTANGENT, MODES, on_jax, on_torch, torch_ref
from parity.formats import round_to

# Padding on the right, on the left, in gaps, everywhere, nowhere.
_MASK = np.array(
    [
        *([1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [0, 0, 1, 1, 1], [0, 0, 0, 0, 1]),
        *([1, 0, 1, 1, 0], [0, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]),
    ],
    bool,
)


def cases() -> Iterator[Case]:
    """Yield the cases of ``jax_input.positions``."""
    for mode in MODES:
        jit = mode == "jit"
        yield _ids(0, mode, default=not jit)
        yield _ids(131_071, mode, default=jit)
        yield _mask("every padding", _MASK, mode)
        yield _mask("length 1", _MASK[:, :1], mode, default=jit)
        yield _segments(mode, default=jit)
        for dtype in FLOATS:
            yield _add(dtype, mode, explicit=False, default=False)
            yield _add(dtype, mode, explicit=True, default=jit and dtype != "float16")
    yield _add("bfloat16", "jit", explicit=True, default=False, table_dtype="float32")


def _ids(offset: int, mode: str, *, default: bool) -> Case:
    return Case(
        f"positions/ids[offset {offset}, {mode}]",
        "int32",
        lambda: {"offset": np.array(offset, np.int32)},
        on_jax(
            lambda offset: jax_input.position_ids(7, offset=offset),
            name="position_ids",
            jit=mode == "jit",
        ),
        on_torch(lambda offset: torch_ref.position_ids(7, offset=int(offset)), name="position_ids"),
        lambda: {"position_ids": whole(np.arange(offset, offset + 7))},
        default=default,
    )


def _mask(padding: str, mask: np.ndarray, mode: str, *, default: bool = True) -> Case:
    uniform = "" if mask.shape[1] > 1 else "a row of one token starts at 0"
    return Case(
        f"positions/mask[{padding}, {mode}]",
        "int32",
        lambda: {"mask": mask},
        on_jax(jax_input.positions_from_mask, name="mask", jit=mode == "jit"),
        on_torch(lambda mask: torch_ref.positions_from_mask(mask), name="mask"),
        lambda: {"mask": whole(np.where(mask, np.cumsum(mask, axis=1) - 1, 0), uniform=uniform)},
        default=default,
        batch=("mask",),
    )


def _segments(mode: str, *, default: bool) -> Case:
    segment_ids = np.array([[1, 1, 1, 2, 2, 0, 0], [3, 4, 4, 4, 4, 3, 3]], np.int32)
    exact = np.array([[0, 1, 2, 0, 1, 0, 1], [0, 0, 1, 2, 3, 0, 1]])
    return Case(
        f"positions/segments[{mode}]",
        "int32",
        lambda: {"segment_ids": segment_ids},
        on_jax(jax_input.positions_from_segments, name="segments", jit=mode == "jit"),
        on_torch(
            lambda segment_ids: torch_ref.positions_from_segments(segment_ids), name="segments"
        ),
        lambda: {"segments": whole(exact)},
        default=default,
        batch=("segment_ids", "segments"),
    )


def _add(
    dtype: str, mode: str, *, explicit: bool, default: bool, table_dtype: str | None = None
) -> Case:
    """Compare the sum, and both gradients; each row is hit from more than one place.

    A table of another dtype is rounded to that of ``x`` before it is added.
    """
    kept = table_dtype or dtype
    random = rng(1)
    x, cotangent = (round_to(random.normal(size=(3, 6, 12)) * 9, dtype) for _ in range(2))
    table = round_to(random.uniform(-1, 1, size=(9, 12)), kept)
    arrays = {"x": x, "table": table, COTANGENT: cotangent}
    rows = np.broadcast_to(np.arange(6, dtype=np.int32), (3, 6))
    if explicit:
        rows = random.integers(0, 9, size=(3, 6)).astype(np.int32)
        rows[0, :2] = 0, 8
        arrays["positions"] = rows

    def expected() -> dict[str, Tensor]:
        added = round_to(table.astype(np.float64), dtype).astype(np.float64)
        wide = x.astype(np.float64) + added[rows]
        reason = f"one addition in {dtype}"
        return {
            "sum": Tensor(wide, half_ulp(wide, dtype), reason, True),
            "gradient/x": Tensor(cotangent.astype(np.float64), 0.0, "handed on as it is", True),
            "gradient/table": scattered(rows, cotangent.astype(np.float64), 9, kept),
        }

    named = f"{dtype}, " if kept == dtype else f"{dtype}, {kept} table, "
    return Case(
        f"positions/add[{named}{'explicit positions, ' if explicit else ''}{mode}]",
        dtype,
        lambda: arrays,
        on_jax(jax_input.add_positions, name="sum", jit=mode == "jit"),
        on_torch(lambda **given: torch_ref.add_positions(**given), name="sum"),
        expected,
        default=default,
        batch=("x", "positions", COTANGENT, "sum", "gradient/x"),
    )
