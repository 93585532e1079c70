"""The feed-forward network, beside its formula and PyTorch's own."""

import re

import pytest
import torch
from torch import nn

from tests.torch_ref.peers import INNER, WIDTH, assert_near, random, randomized
from torch_ref.ffn import feed_forward
from torch_ref.torch_layout import linear_params


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        ("gelu", [0.841344746, -0.158655254, 2.169412374]),
        ("gelu_tanh", [0.841192007, -0.158807993, 2.169678450]),
        ("relu", [1, 0, 2.2]),
    ],
)
def test_the_form_of_gelu_is_told(activation, expected):
    x = torch.tensor([1.0, -1.0, 2.2])
    params = {name: {"kernel": torch.eye(3)} for name in ("in", "out")}
    y = feed_forward(x, params, activation=activation)
    # The values given are float32's own: two ulps of 2.17 for each side.
    assert (y - torch.tensor(expected)).abs().max() <= 4 * 2.0**-22


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("activation", "peer"),
    [("relu", nn.ReLU()), ("gelu", nn.GELU()), ("gelu_tanh", nn.GELU(approximate="tanh"))],
)
def test_feed_forward_and_its_gradients_are_those_of_torch(bias, activation, peer):
    results = []
    for dtype, is_peer in ((torch.float64, False), (torch.float64, True), (torch.float32, False)):
        up = randomized(nn.Linear(WIDTH, INNER, bias=bias, dtype=dtype), 1)
        down = randomized(nn.Linear(INNER, WIDTH, bias=bias, dtype=dtype), 3)
        params = {"in": linear_params(up), "out": linear_params(down)}
        x = random(3, 5, WIDTH, dtype=dtype).requires_grad_()
        y = down(peer(up(x))) if is_peer else feed_forward(x, params, activation=activation)
        inputs = [x, *up.parameters(), *down.parameters()]
        cotangent = random(3, 5, WIDTH, seed=5, dtype=dtype)
        results.append([y, *torch.autograd.grad(y, inputs, cotangent)])
    for ours, theirs, coarse in zip(*results, strict=True):
        assert_near(ours, theirs, coarse)


def test_feed_forward_drops_after_the_activation():
    params = {
        "in": {"kernel": torch.eye(2), "bias": torch.ones(2)},
        "out": {"kernel": torch.eye(2), "bias": torch.ones(2)},
    }
    kept = torch.tensor([[True, False]])
    y = feed_forward(torch.ones(1, 2), params, dropout_rate=0.5, dropout_mask=kept)
    assert y.tolist() == [[5, 1]]
    assert feed_forward(torch.ones(1, 2), params, dropout_rate=0.5).tolist() == [[3, 3]]


def test_what_does_not_fit_feed_forward_is_refused():
    params = {name: {"kernel": torch.eye(2)} for name in ("in", "out")}
    with pytest.raises(ValueError, match="`params` lacks 'out'"):
        feed_forward(torch.ones(2), {"in": {}})
    with pytest.raises(ValueError, match="`activation` must be 'relu' or 'gelu' or 'gelu_tanh'"):
        feed_forward(torch.ones(2), params, activation="silu")
    with pytest.raises(ValueError, match=re.escape("`dropout_mask` must have shape [1, 2], got")):
        feed_forward(torch.ones(1, 2), params, dropout_mask=torch.ones(2, dtype=torch.bool))
