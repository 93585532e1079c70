"""Guesses at lookups and tables of positions compute what they say."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from parity.mistakes.positions import sinusoid
from tests.parity.test_mistakes_attention import answers, draw, equal, seen

IDS = torch.tensor([[0, 3, 6], [2, 0, 5]])
TABLE = draw(7, 8)


def lookup():
    return seen("embedding", lambda: functional.embedding(IDS, TABLE, padding_idx=2))


def formula(rows: int, width: int, base: float = 1e4, layout: str = "interleaved") -> np.ndarray:
    angles = np.arange(rows)[:, None] * base ** (-np.arange(0, width, 2) / width)
    parts = [np.sin(angles), np.cos(angles)]
    if layout == "interleaved":
        return np.stack(parts, -1).reshape(rows, width)
    return np.concatenate(parts, -1)


@pytest.mark.parametrize("shift", [1, -1, 2, -2])
def test_rows_are_shifted_round_or_up_to_the_ends(shift: int) -> None:
    told = f"row {'+' if shift > 0 else '-'} {abs(shift)}"
    around, clipped = answers(lookup(), "shifted-by-one", told)
    equal(around, np.roll(TABLE.numpy(), -shift, 0)[IDS.numpy()])
    equal(clipped, TABLE.numpy()[np.clip(IDS.numpy() + shift, 0, 6)])


def test_scaled_reversed_and_ignored_ids() -> None:
    own, ids = TABLE.numpy(), IDS.numpy()
    more, less = answers(lookup(), "scale-sqrt-d")
    equal(more, own[ids] * math.sqrt(8))
    equal(less, own[ids] / math.sqrt(8))
    equal(answers(lookup(), "reversed")[0], own[ids[:, ::-1]])
    equal(answers(lookup(), "input-ignored")[0], own[0 * ids])


def test_padding_rows_are_guessed_where_the_ids_have_one() -> None:
    first, last, own = answers(lookup(), "padding-row")[:3]
    for ours, row in ((first, 0), (last, 2), (own, 6)):
        theirs = TABLE.numpy().copy()
        theirs[row] = 0
        equal(ours, theirs[IDS.numpy()])


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_a_table_of_sines_is_known(layout: str) -> None:
    found = sinusoid(torch.from_numpy(formula(20, 8, layout=layout)))
    assert found is not None
    assert found[0] == (layout == "interleaved")
    np.testing.assert_allclose(found[1], 1e4 ** (-np.arange(4) / 4), rtol=1e-12)


@pytest.mark.parametrize("table", [TABLE, torch.zeros(5, 8), torch.ones(5, 8), draw(2, 5, 8)])
def test_another_table_is_not(table: Tensor) -> None:
    assert sinusoid(table) is None


def added(rows: int = 6):
    x, table = draw(2, rows, 8), torch.from_numpy(formula(rows, 8))
    return x.numpy(), seen("add", lambda: x + table)


@pytest.mark.parametrize(
    ("code", "part", "table"),
    [
        ("interleaved-halves", "in halves in the port", formula(6, 8, layout="halves")),
        ("frequencies", "base is 1000 ", formula(6, 8, base=1_000.0)),
        ("shifted-by-one", "start at 1 ", formula(7, 8)[1:]),
        ("positions-missing", "", np.zeros((6, 8))),
        (
            "sine-cosine-swapped",
            "sine and",
            formula(6, 8).reshape(6, 4, 2)[..., ::-1].reshape(6, 8),
        ),
    ],
)
def test_other_tables_that_are_added(code: str, part: str, table: np.ndarray) -> None:
    x, call = added()
    found = answers(call, code, part)
    assert any(np.allclose(ours, x + table, rtol=0, atol=1e-12) for ours in found)


def test_angles_in_float32_are_off_far_away_and_nowhere_near() -> None:
    table = torch.from_numpy(formula(5000, 8))
    places = torch.tensor([1, 4999])
    for ours in answers(seen("getitem", lambda: table[places]), "float32-table"):
        off = (ours - table[places]).abs().amax(-1)
        assert 0 < off[0] < 1e-7
        assert 1e-6 < off[1] < 1e-2
