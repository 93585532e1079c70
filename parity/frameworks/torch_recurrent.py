"""PyTorch: recurrent layers, step by step, so that each step can be seen.

Each takes ``step``, which makes one call under a name, and what the function of PyTorch was given.
It returns what that does, or NotImplemented for options it does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Step = Callable[..., Any]


def lstm_cell(
    step: Step, x: Tensor, state: tuple[Tensor, ...], weights: tuple[Tensor | None, ...]
) -> tuple[Tensor, ...]:
    """Take one step of an LSTM: gates in the order i, f, g, o."""
    h, c = state
    gates = _gates(step, x, h, weights)
    i, f, g, o = step("lstm_gates", _chunked, gates, 4)
    return step("cell", lstm, i, f, g, o, c)


def _gates(step: Step, x: Tensor, h: Tensor, weights: tuple[Tensor | None, ...]) -> Tensor:
    w_ih, w_hh, b_ih, b_hh = weights
    inner = step("input_projection", functional.linear, x, w_ih, b_ih)
    return step(
        "gates", torch.add, inner, step("hidden_projection", functional.linear, h, w_hh, b_hh)
    )


def _chunked(gates: Tensor, count: int) -> tuple[Tensor, ...]:
    return gates.chunk(count, -1)


def lstm(i: Tensor, f: Tensor, g: Tensor, o: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Return the new hidden and cell state of an LSTM."""
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru_cell(
    step: Step, x: Tensor, state: tuple[Tensor, ...], weights: tuple[Tensor | None, ...]
) -> tuple[Tensor, ...]:
    """Take one step of a GRU: gates in the order r, z, n."""
    (h,) = state
    w_ih, w_hh, b_ih, b_hh = weights
    inner = step("input_projection", functional.linear, x, w_ih, b_ih)
    outer = step("hidden_projection", functional.linear, h, w_hh, b_hh)
    return (step("gru", gru, inner, outer, h, w_hh, b_hh),)


def gru(inner: Tensor, outer: Tensor, h: Tensor, *_: Any) -> Tensor:
    """Return the new state of a GRU; the reset gate acts after the hidden projection."""
    (r_i, z_i, n_i), (r_h, z_h, n_h) = inner.chunk(3, -1), outer.chunk(3, -1)
    r, z = (r_i + r_h).sigmoid(), (z_i + z_h).sigmoid()
    return (1 - z) * (n_i + r * n_h).tanh() + z * h


def rnn_cell(
    step: Step, x: Tensor, state: tuple[Tensor, ...], weights: tuple[Tensor | None, ...]
) -> tuple[Tensor, ...]:
    """Take one step of a plain recurrent layer with tanh."""
    return (step("tanh", torch.tanh, _gates(step, x, state[0], weights)),)


def rnn_relu_cell(
    step: Step, x: Tensor, state: tuple[Tensor, ...], weights: tuple[Tensor | None, ...]
) -> tuple[Tensor, ...]:
    """Take one step of a plain recurrent layer with relu."""
    return (step("relu", torch.relu, _gates(step, x, state[0], weights)),)


def one_step(cell: Callable[..., Any]) -> Callable[..., Any]:
    """Return what runs a cell once, as `torch.lstm_cell` and its kin do."""

    def run(
        step: Step, x: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, *biases: Tensor | None
    ) -> Any:
        states = tuple(hx) if isinstance(hx, list | tuple) else (hx,)
        made = cell(step, x, states, (w_ih, w_hh, *biases, None, None)[:4])
        return made if isinstance(hx, list | tuple) else made[0]

    return run


def recurrent(cell: Callable[..., Any]) -> Callable[..., Any]:
    """Return what runs layers of a cell over time, as `torch.lstm` and its kin do."""

    def run(
        step: Step,
        x: Tensor,
        hx: Any,
        flat: Any,
        has_biases: Any,
        num_layers: Any = None,
        dropout: float = 0.0,
        training: bool = False,
        bidirectional: bool = False,
        batch_first: bool = False,
    ) -> Any:
        if not isinstance(num_layers, int) or isinstance(num_layers, bool) or x.dim() != 3:
            return NotImplemented  # packed sequences
        if dropout and training:
            return NotImplemented
        states = hx if isinstance(hx, list | tuple) else (hx,)
        x = x.transpose(0, 1) if batch_first else x
        each = 4 if has_biases else 2
        last: list[tuple[Tensor, ...]] = []
        for layer in range(num_layers):
            outputs = []
            for direction in range(1 + bidirectional):
                place = layer * (1 + bidirectional) + direction
                weights = (*flat[place * each : (place + 1) * each], None, None)[:4]
                state = tuple(value[place] for value in states)
                output, state = _scanned(step, cell, x, state, weights, reverse=direction == 1)
                outputs.append(output)
                hidden = step("last_state", last_state, state[0], output)
                last.append((hidden, *state[1:]))
            x = torch.cat(outputs, -1)
        final = [torch.stack(parts) for parts in zip(*last, strict=True)]
        return (x.transpose(0, 1) if batch_first else x, *final)

    return run


def _scanned(
    step: Step, cell: Any, x: Tensor, state: Any, weights: Any, *, reverse: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    outputs = []
    given = step("in_time", in_time, x, reverse)
    for place in range(len(given)):
        state = cell(step, given.select(0, place), state, weights)
        outputs.append(state[0])
    return step("sequence", sequence, outputs, reverse), state


def in_time(x: Tensor, reverse: bool) -> Tensor:
    """Put a sequence into the order in which it is read."""
    return x.flip(0) if reverse else x.clone()


def sequence(outputs: list[Tensor], reverse: bool) -> Tensor:
    """Put what was read into the order of the sequence."""
    return torch.stack(outputs[::-1] if reverse else outputs)


def last_state(state: Tensor, _: Tensor) -> Tensor:
    """Return the state after the last step; the second is the whole sequence of states."""
    return state.clone()
