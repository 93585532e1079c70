"""Recurrent layers that are taken apart compute what PyTorch's own do, in float64."""

import pytest
import torch
from torch import Tensor, nn

from parity.frameworks.torch_tracer import Tracer

BATCH, LENGTH, FEATURES, WIDTH = 3, 5, 6, 4
KINDS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *places, **named: nn.RNN(*places, nonlinearity="relu", **named),
}
CELLS = {
    "lstm": nn.LSTMCell,
    "gru": nn.GRUCell,
    "tanh": nn.RNNCell,
    "relu": lambda *places, **named: nn.RNNCell(*places, nonlinearity="relu", **named),
}


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def apart(module: nn.Module, *places):
    tracer = Tracer()
    with tracer.following(module), tracer:
        result = module(*places)
    return result, [found.call.name for found in tracer.results.values()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"bias": False}])
def test_layers(kind: str, layers: int, both: bool, options: dict) -> None:
    torch.manual_seed(0)
    module = KINDS[kind](
        FEATURES, WIDTH, layers, bidirectional=both, dtype=torch.float64, **options
    )
    x = draw(BATCH, LENGTH, FEATURES)
    lanes = BATCH if options.get("batch_first") else LENGTH
    start = draw(layers * (1 + both), lanes, WIDTH, seed=1)
    state = (start, start / 2) if kind == "lstm" else start
    for given in ((x,), (x, state)):
        ours, names = apart(module, *given)
        torch.testing.assert_close(ours, module(*given), rtol=0, atol=1e-13)
        assert names.count("in_time") == names.count("sequence") == layers * (1 + both)


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("bias", [True, False])
def test_cells(kind: str, bias: bool) -> None:
    torch.manual_seed(0)
    module = CELLS[kind](FEATURES, WIDTH, bias=bias, dtype=torch.float64)
    x, start = draw(BATCH, FEATURES), draw(BATCH, WIDTH, seed=1)
    state = (start, start / 2) if kind == "lstm" else start
    for given in ((x,), (x, state)):
        ours, names = apart(module, *given)
        torch.testing.assert_close(ours, module(*given), rtol=0, atol=1e-13)
        assert "hidden_projection" in names


def test_packed_sequences_are_left_whole() -> None:
    module = nn.LSTM(FEATURES, WIDTH, dtype=torch.float64)
    packed = nn.utils.rnn.pack_padded_sequence(draw(LENGTH, BATCH, FEATURES), [5, 3, 2])
    ours, names = apart(module, packed)
    torch.testing.assert_close(ours[0].data, module(packed)[0].data, rtol=0, atol=0)
    assert "in_time" not in names
