"""Guesses at recurrent layers compute what they say, each against a formula of its own."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.parity.test_mistakes_attention import answers, draw, equal, seen

BATCH, LENGTH, FEATURES, WIDTH = 2, 4, 3, 5


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def layer(kind: type[nn.RNNBase], name: str, place: int = 1, both: bool = False):
    torch.manual_seed(0)
    module = kind(FEATURES, WIDTH, bidirectional=both, dtype=torch.float64)
    return seen(name, lambda: module(draw(LENGTH, BATCH, FEATURES)), place)


def given(call) -> list[np.ndarray]:
    return [value.detach().numpy() for value in call.places]


def test_gates_in_all_other_orders() -> None:
    call = layer(nn.LSTM, "lstm_gates")
    assert len(answers(call, "gate-order")) == 23
    (ours,) = answers(call, "gate-order", "order i, f, o, g in")
    i, f, g, o = np.split(given_first(call), 4, -1)
    for mine, theirs in zip(ours, (i, f, o, g), strict=True):
        equal(mine, theirs)


@pytest.mark.parametrize(
    ("code", "part", "formula"),
    [
        ("forget-bias", "", lambda i, f, g, c: sigmoid(f + 1) * c + sigmoid(i) * np.tanh(g)),
        ("gates-tied", "", lambda i, f, g, c: (1 - sigmoid(i)) * c + sigmoid(i) * np.tanh(g)),
        ("activation-missing", "cell gate", lambda i, f, g, c: sigmoid(f) * c + sigmoid(i) * g),
        (
            "wrong-activation",
            "hard_sigmoid in",
            lambda i, f, g, c: (
                np.clip(f / 6 + 0.5, 0, 1) * c + np.clip(i / 6 + 0.5, 0, 1) * np.tanh(g)
            ),
        ),
    ],
)
def test_other_cells_of_an_lstm(code: str, part: str, formula) -> None:
    call = layer(nn.LSTM, "cell")
    i, f, g, o, c = given(call)
    ((hidden, state),) = answers(call, code, part)
    theirs = formula(i, f, g, c)
    gate = np.clip(o / 6 + 0.5, 0, 1) if part.startswith("hard") else sigmoid(o)
    equal(state, theirs)
    equal(hidden, gate * np.tanh(theirs))


def test_other_cells_of_a_gru() -> None:
    call = layer(nn.GRU, "gru")
    inner, outer, h, w, b = given(call)
    (r_i, z_i, n_i), (r_h, z_h, n_h) = np.split(inner, 3, -1), np.split(outer, 3, -1)
    r, z, w_n, b_n = sigmoid(r_i + r_h), sigmoid(z_i + z_h), w[2 * WIDTH :], b[2 * WIDTH :]

    def mixed(n: np.ndarray, share: np.ndarray) -> np.ndarray:
        return (1 - share) * n + share * h

    new = np.tanh(n_i + r * n_h)
    for code, part, theirs in (
        ("reset-gate", "before", mixed(np.tanh(n_i + (r * h) @ w_n.T + b_n), z)),
        ("reset-gate", "outside", mixed(np.tanh(n_i + r * (n_h - b_n) + b_n), z)),
        ("reset-gate", "no reset", mixed(np.tanh(n_i + n_h), z)),
        ("update-gate", "", mixed(new, 1 - z)),
        ("gate-order", "", mixed(np.tanh(n_i + z * n_h), r)),
        ("bias-missing", "", mixed(np.tanh(n_i + r * (n_h - b_n)), z)),
        ("activation-missing", "", mixed(n_i + r * n_h, z)),
    ):
        (ours,) = answers(call, code, part)
        equal(ours, theirs)


def test_a_sequence_read_from_its_end() -> None:
    call = layer(nn.GRU, "in_time", 0)
    (ours,) = answers(call, "reversed-time", "from its end")
    equal(ours, given_first(call)[::-1])


def test_a_second_direction_that_is_not_reversed() -> None:
    call = layer(nn.GRU, "in_time", 1, both=True)
    (ours,) = answers(call, "reversed-time", "second direction")
    equal(ours, given_first(call))


def given_first(call) -> np.ndarray:
    return call.places[0].detach().numpy()


def test_the_state_at_the_last_time_of_a_reversed_direction() -> None:
    call = layer(nn.GRU, "last_state", 1, both=True)
    (ours,) = answers(call, "last-step", "last step of the sequence")
    equal(ours, call.places[1][-1].detach().numpy())


def test_a_state_that_starts_from_ones() -> None:
    (ours,) = answers(layer(nn.LSTM, "zeros", 0), "initial-state")
    equal(ours, np.ones((1, BATCH, WIDTH)))
