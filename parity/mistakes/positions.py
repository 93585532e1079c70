"""PyTorch: tables of positions with other columns, rows, frequencies or digits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from parity.frameworks.torch_calls import Call
from parity.mistakes.embeddings import looked_up
from parity.mistakes.guess import Guess

_COLUMNS = "order the columns as in torch"
_SUMS = ("add", "radd", "iadd", "sub", "rsub", "mul", "rmul")
_BASES = (10_000.0, 1_000.0, 100.0, 500_000.0, 1_000_000.0)


def position_mistakes(call: Call) -> Iterator[Guess]:
    """Yield mistakes of a table of positions, at its lookup or where it is added."""
    found = looked_up(call)
    if found is not None:
        yield from _table(found[0], partial(_rows, found[1]))
    if call.name in _SUMS and len(call.places) > 1:
        for place in (1, 0):
            table = call.places[place]
            if isinstance(table, Tensor) and _is_table(table):
                yield from _columns(call, place, table)
                yield from _table(table, partial(_with, call, place))


def _rows(ids: Tensor, table: Tensor) -> Tensor:
    return table[ids]


def _with(call: Call, place: int, value: Tensor) -> Tensor:
    places = [*call.places]
    places[place] = value
    answer: Tensor = call(*places)
    return answer


def _is_table(value: Tensor) -> bool:
    if value.dim() < 2 or not value.is_floating_point():
        return False
    return value.shape[-1] >= 4 and value.shape[-1] % 2 == 0 and value.shape[-2] > 1


def _columns(call: Call, place: int, table: Tensor) -> Iterator[Guess]:
    """Yield sums in which one operand has its columns, or its rows, moved."""
    for code, cause, order in _orders(table.shape[-1]):
        yield Guess(code, cause, _COLUMNS, partial(_with, call, place, table[..., order]))
    for shift, word in ((1, "next"), (-1, "one before")):
        cause = f"positions are off by one: each takes the row of the {word}"
        answer = partial(_with, call, place, table.roll(-shift, -2))
        yield Guess("shifted-by-one", cause, "positions start at 0", answer)


def _orders(width: int) -> Iterator[tuple[str, str, Tensor]]:
    columns = torch.arange(width)
    halves = torch.cat([columns[::2], columns[1::2]])
    code = "interleaved-halves"
    yield code, "columns are in halves in the port, interleaved in torch", halves
    yield code, "columns are interleaved in the port, in halves in torch", halves.argsort()
    code = "sine-cosine-swapped"
    yield code, "sine and cosine have changed places in the port", columns ^ 1
    cause = "the halves of the columns have changed places in the port"
    yield code, cause, columns.roll(width // 2)


def _table(table: Tensor, used: partial[Tensor]) -> Iterator[Guess]:
    """Yield what other formulas make of a table of sines and cosines, row 0 first."""
    found = sinusoid(table)
    if found is None:
        return
    is_interleaved, own = found
    shape, rows, half = table.shape, table.shape[-2], len(own)
    base = float(own[1]) ** -half
    for dtype, code, name in (
        (torch.float32, "float32-table", "float32"),
        (torch.bfloat16, "dtype-cast", "bfloat16"),
    ):
        cause = f"the angles are rounded to {name} in the port: far positions are off"
        fix = "compute the angles in float64, and round the table once"
        for angles in _published(rows, half, base, dtype):
            answer = partial(used, _joined(angles, is_interleaved).to(table.dtype).reshape(shape))
            yield Guess(code, cause, fix, answer, rounds=True)
    yield from _frequencies(table, own, is_interleaved, used)
    zero = "the port adds no positions"
    yield Guess("positions-missing", zero, "add them", partial(used, torch.zeros_like(table)))


def _frequencies(
    table: Tensor, own: Tensor, is_interleaved: bool, used: partial[Tensor]
) -> Iterator[Guess]:
    """Yield tables of other frequencies, and of other positions."""
    shape, half = table.shape, len(own)
    places = torch.arange(shape[-2], dtype=own.dtype)
    columns = torch.arange(half, dtype=own.dtype)
    base = float(own[1]) ** -half
    other = [(f"the base is {b:g} in the port", b ** (-columns / half)) for b in _BASES]
    other += [
        ("the exponents end at 1 in the port", base ** (-columns / max(half - 1, 1))),
        ("the exponents run to 2 in the port: 2 i is doubled", base ** (-2 * columns / half)),
        ("the exponents run to 1/2 in the port", base ** (-columns / half / 2)),
    ]
    for cause, frequencies in other:
        rest = _joined(places[:, None] * frequencies, is_interleaved).reshape(shape)
        fix = f"{base:.6g} ** (-2 i / {2 * half})"
        yield Guess("frequencies", f"{cause}, {base:.6g} and 1 in torch", fix, partial(used, rest))
    for shift in (1, -1):
        rest = _joined((places + shift)[:, None] * own, is_interleaved).reshape(shape)
        cause = f"positions start at {shift} in the port"
        yield Guess("shifted-by-one", cause, "positions start at 0", partial(used, rest))


def sinusoid(table: Tensor) -> tuple[bool, Tensor] | None:
    """Return whether sines and cosines alternate, and the frequencies; None for another table."""
    if not _is_table(table) or table.shape[-2] < 3 or math.prod(table.shape[:-2]) > 1:
        return None
    rows = table.reshape(-1, table.shape[-1])
    half = rows.shape[-1] // 2
    for is_interleaved in (True, False):
        sine, cosine = (
            (rows[:, ::2], rows[:, 1::2]) if is_interleaved else (rows[:, :half], rows[:, half:])
        )
        if sine[0].abs().max() > 1e-6 or (cosine[0] - 1).abs().max() > 1e-6:
            continue
        own = torch.atan2(sine[1], cosine[1])
        angles = torch.arange(len(rows), dtype=rows.dtype)[:, None] * own
        if torch.allclose(angles[:8].sin(), sine[:8], atol=1e-4):
            exact = _exact(own)
            return is_interleaved, own if exact is None else exact
    return None


def _exact(own: Tensor) -> Tensor | None:
    """Return the frequencies of a known formula without the rounding of a stored table."""
    half = len(own)
    columns = torch.arange(half, dtype=own.dtype)
    for base in _BASES:
        exact = base ** (-columns / half)
        if torch.allclose(exact, own, rtol=1e-3, atol=1e-6):
            return exact
    return None


def _published(rows: int, half: int, base: float, dtype: torch.dtype) -> Iterator[Tensor]:
    """Yield the angles of the published formulas, rounded at each step."""
    places = torch.arange(rows, dtype=dtype)[:, None]
    columns = torch.arange(0, 2 * half, 2, dtype=dtype)
    step = torch.tensor(-math.log(base) / (2 * half), dtype=dtype)
    yield places * torch.exp(columns * step)
    yield places / (torch.tensor(base, dtype=dtype) ** (columns / (2 * half)))


def _joined(angles: Tensor, is_interleaved: bool) -> Tensor:
    parts = [angles.sin(), angles.cos()]
    if is_interleaved:
        return torch.stack(parts, -1).flatten(-2)
    return torch.cat(parts, -1)
