"""PyTorch: embeddings of shifted ids, scaled otherwise, with another padding row."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from parity.frameworks.torch_calls import Call
from parity.mistakes.guess import Guess

_ROWS = "rows start at 0, as in torch"


def embedding_mistakes(call: Call) -> Iterator[Guess]:
    """Yield mistakes of a lookup."""
    found = looked_up(call)
    if found is None:
        return
    table, ids = found
    if ids.dim() > 1 and ids.shape[-1] == ids.shape[-2]:
        cause = "the port looks up the ids transposed: query - key for key - query"
        fix = "keep the sign of relative positions"
        yield Guess("reversed", cause, fix, partial(torch.clone, table[ids.mT]))
    cause = "the port looks up row 0 everywhere, whatever the ids are"
    yield Guess("input-ignored", cause, "look up the ids", table[torch.zeros_like(ids)].clone)
    yield from _shifted(table, ids)
    if call.name == "embedding":
        yield from _scaled(table, table[ids])
        yield from _rows(call, table, ids)


def looked_up(call: Call) -> tuple[Tensor, Tensor] | None:
    """Return the table and the rows that a call looks up in it; None if it does something else."""
    if len(call.places) < 2 or call.name not in ("embedding", "getitem", "index_select"):
        return None
    table, ids = call.places[0], call.places[-1 if call.name == "index_select" else 1]
    if not isinstance(table, Tensor) or not isinstance(ids, Tensor):
        return None
    if ids.is_floating_point():  # the function of nn.functional has the ids first
        table, ids = ids, table
    is_table = table.is_floating_point() and table.dim() == 2 and len(table) > 1
    return (table, ids) if is_table and ids.dtype in (torch.int32, torch.int64) else None


def _shifted(table: Tensor, ids: Tensor) -> Iterator[Guess]:
    for shift in (1, -1, 2, -2):
        rows = ids + shift
        told = f"row {'+' if shift > 0 else '-'} {abs(shift)}"
        cause = f"the port looks up {told}: ids or positions are shifted"
        answer = partial(torch.index_select, table, 0, (rows % len(table)).flatten())
        yield Guess("shifted-by-one", cause, _ROWS, partial(_shaped, answer, rows))
        clipped = f"the port looks up {told}, clipped at the ends"
        rows = rows.clamp(0, len(table) - 1)
        answer = partial(torch.index_select, table, 0, rows.flatten())
        yield Guess("shifted-by-one", clipped, _ROWS, partial(_shaped, answer, rows))


def _shaped(answer: partial[Tensor], ids: Tensor) -> Tensor:
    rows = answer()
    return rows.reshape(*ids.shape, rows.shape[-1])


def _scaled(table: Tensor, rows: Tensor) -> Iterator[Guess]:
    root, width = math.sqrt(table.shape[-1]), table.shape[-1]
    for verb, factor, name in (
        ("multiplies", root, f"sqrt({width})"),
        ("divides", 1 / root, f"sqrt({width})"),
    ):
        cause = f"the port {verb} the embedding by {name}, torch does not"
        fix = f"leave out {'the factor' if factor > 1 else '1 /'} {name}"
        yield Guess("scale-sqrt-d", cause, fix, partial(torch.mul, rows, factor))


def _rows(call: Call, table: Tensor, ids: Tensor) -> Iterator[Guess]:
    """Yield the ids in the opposite order, and a padding row of zeros."""
    if ids.dim() and ids.shape[-1] > 1:
        cause = "the port looks up the ids in the opposite order"
        yield Guess("reversed", cause, "keep the order of the ids", table[ids.flip(-1)].clone)
    own = call.named.get("padding_idx", (*call.places, None, None)[2])
    paddings = {0, len(table) - 1} | ({own % len(table)} if isinstance(own, int) else set())
    for padding in sorted(paddings):
        hit = ids == padding
        if hit.any():
            cause = f"row {padding} reads zeros in the port, as padding; torch reads what is stored"
            answer = partial(table[ids].masked_fill, hit.unsqueeze(-1), 0.0)
            yield Guess("padding-row", cause, "read the stored row", answer)
