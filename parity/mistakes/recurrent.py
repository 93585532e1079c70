"""PyTorch: recurrent layers with gates in another order, another cell, state or direction."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from parity.frameworks.torch_calls import Call
from parity.mistakes.guess import Guess

_GATES = "ifgo"
_ROWS = "rows of weight_ih and weight_hh: input, forget, cell, output"
Gate = Callable[[Tensor], Tensor]


def recurrent_mistakes(call: Call) -> Iterator[Guess]:
    """Yield mistakes of an LSTM, a GRU or a plain recurrent layer."""
    if call.name == "lstm_gates":
        yield from _order(call)
    elif call.name == "cell":
        yield from _cell(call)
    elif call.name == "gru":
        yield from _gru(call)
    elif call.name in ("in_time", "sequence"):
        yield from _direction(call)
    elif call.name == "last_state":
        yield from _last(call)
    elif call.name == "zeros":
        ones = "the port starts from a state of ones, torch from zeros"
        yield Guess(
            "initial-state", ones, "jnp.zeros for the carry", partial(torch.ones_like, call())
        )


def _order(call: Call) -> Iterator[Guess]:
    gates = call()
    for order in itertools.islice(itertools.permutations(range(4)), 1, None):
        told = ", ".join(_GATES[place] for place in order)
        cause = f"the gates are taken in the order {told} in the port, i, f, g, o in torch"
        yield Guess("gate-order", cause, _ROWS, partial(_taken, gates, order))


def _taken(gates: tuple[Tensor, ...], order: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(gates[place].clone() for place in order)


def _cell(call: Call) -> Iterator[Guess]:
    i, f, g, o, c = call.places
    cause = "the port adds 1 to the forget gate"
    yield Guess("forget-bias", cause, "leave out forget_bias", partial(call, i, f + 1, g, o, c))
    cause = "input and forget gate are tied in the port"
    yield Guess("gates-tied", cause, _ROWS, partial(call, i, -i, g, o, c))
    state = partial(_lstm, i, f, g, o, c)
    for name, changed in {
        "of the cell gate": {"candidate": torch.clone},
        "of the cell state": {"output": torch.clone},
    }.items():
        cause = f"the port leaves out the tanh {name}"
        yield Guess("activation-missing", cause, "nn.tanh", partial(state, **changed))
    kinds: dict[str, Gate] = {
        "hard_sigmoid": functional.hardsigmoid,
        "hard_sigmoid of 0.2 x + 0.5": _hard_sigmoid,
        "tanh": torch.tanh,
        "relu": torch.relu,
    }
    for name, gate in kinds.items():
        cause = f"the gates are {name} in the port, sigmoid in torch"
        yield Guess("wrong-activation", cause, "gate_fn=nn.sigmoid", partial(state, gate=gate))
    for name, squash in {"relu": torch.relu, "sigmoid": torch.sigmoid}.items():
        cause = f"the cell is squashed by {name} in the port, tanh in torch"
        answer = partial(state, candidate=squash, output=squash)
        yield Guess("wrong-activation", cause, "activation_fn=nn.tanh", answer)


def _lstm(
    i: Tensor,
    f: Tensor,
    g: Tensor,
    o: Tensor,
    c: Tensor,
    *,
    gate: Gate = torch.sigmoid,
    candidate: Gate = torch.tanh,
    output: Gate = torch.tanh,
) -> tuple[Tensor, Tensor]:
    c = gate(f) * c + gate(i) * candidate(g)
    return gate(o) * output(c), c


def _hard_sigmoid(x: Tensor) -> Tensor:
    return (0.2 * x + 0.5).clamp(0, 1)


def _gru(call: Call) -> Iterator[Guess]:
    inner, outer, h, w_hh, b_hh = call.places
    (r_i, z_i, n_i), (r_h, z_h, n_h) = inner.chunk(3, -1), outer.chunk(3, -1)
    r, z = (r_i + r_h).sigmoid(), (z_i + z_h).sigmoid()
    w_n = w_hh.chunk(3)[2]
    b_n = b_hh.chunk(3)[2] if b_hh is not None else torch.zeros_like(n_h[0])
    new = n_i + r * n_h
    fix, rows = "n = tanh(in(x) + r * hn(h))", "rows of weight_ih and weight_hh: reset, update, new"
    told = [
        ("reset-gate", "the reset gate acts before the hidden projection in the port, after it "
         "in torch", fix, n_i + functional.linear(r * h, w_n, b_n), z),
        ("reset-gate", "the hidden bias of the new gate is outside the reset gate in the port",
         fix, n_i + r * (n_h - b_n) + b_n, z),
        ("reset-gate", "the port has no reset gate", fix, n_i + n_h, z),
        ("update-gate", "z and 1 - z have changed places in the port",
         "h = (1 - z) * n + z * h", new, 1 - z),
        ("gate-order", "the gates are taken in the order z, r, n in the port, r, z, n in torch",
         rows, n_i + z * n_h, r),
        ("bias-missing", "the port leaves out the hidden bias of the new gate",
         "use_bias=True in hn", n_i + r * (n_h - b_n), z),
    ]  # fmt: skip
    for code, cause, line, before, share in told:
        yield Guess(code, cause, line, partial(_mixed, before.tanh(), share, h))
    missing = "the port leaves out the tanh of the new gate"
    yield Guess("activation-missing", missing, fix, partial(_mixed, new, z, h))
    relu = "the new gate is relu in the port, tanh in torch"
    yield Guess("wrong-activation", relu, fix, partial(_mixed, new.relu(), z, h))


def _mixed(new: Tensor, share: Tensor, h: Tensor) -> Tensor:
    return (1 - share) * new + share * h


def _direction(call: Call) -> Iterator[Guess]:
    """Yield a sequence that is read, or put together, in the opposite order."""
    given, reverse = call.places
    told = {False: "reads the sequence from its end", True: "does not reverse the second direction"}
    fix = "nn.RNN(reverse=True, keep_order=True) for the second direction alone"
    answer = partial(call, given, not reverse)
    yield Guess("reversed-time", f"the port {told[reverse]}", fix, answer)
    if call.name == "sequence":
        cause = "the port leaves a reversed sequence in the order in which it was read"
        yield Guess("reversed-order", cause, "nn.RNN(keep_order=True)", answer)
        keys = {id(result.tensor): key for key, result in call.results.items()}
        cells = [call.results.get(keys.get(id(h), "").replace("[0]", "[1]")) for h in given]
        if all(cell is not None and cell.call.name == "cell" for cell in cells):
            cause = "the port gives out the cell states, torch the hidden states"
            answer = partial(call, [cell.value for cell in cells if cell is not None], reverse)
            yield Guess("wrong-input", cause, "the second of (c, h) is the output", answer)


def _last(call: Call) -> Iterator[Guess]:
    """Yield the state at another step than that which was read last."""
    state, states = call.places
    fix = "of the reversed direction, the state after its last step is at time 0"
    if torch.equal(state, states[-1]):
        fix = "the state after the last step: outputs[:, -1]"
    for place, word in ((-1, "last"), (0, "first")):
        cause = f"the port takes the {word} step of the sequence, torch the one that was read last"
        yield Guess("last-step", cause, fix, states[place].clone)
