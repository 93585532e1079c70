"""Norm and feed-forward network, beside their formulas and PyTorch's own."""

import re

import pytest
import torch
from torch import nn

from tests.torch_ref.peers import (
    INNER,
    WIDTH,
    assert_near,
    random,
    randomized,
)
from torch_ref.layers import feed_forward
from torch_ref.normalization import layer_norm
from torch_ref.torch_layout import linear_params, norm_params

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
ONES = {"scale": torch.ones(4), "bias": torch.zeros(4)}


@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm_and_its_gradients_are_those_of_torch(bias):
    results = []
    for dtype, is_peer in ((torch.float64, False), (torch.float64, True), (torch.float32, False)):
        module = randomized(nn.LayerNorm(WIDTH, bias=bias, dtype=dtype))
        x = (random(3, 5, WIDTH, dtype=dtype) * 0.01 + 1).requires_grad_()
        y = module(x) if is_peer else layer_norm(x, norm_params(module))
        cotangent = random(3, 5, WIDTH, seed=5, dtype=dtype)
        results.append([y, *torch.autograd.grad(y, [x, *module.parameters()], cotangent)])
    for ours, peer, coarse in zip(*results, strict=True):
        assert_near(ours, peer, coarse)


@pytest.mark.parametrize(
    ("eps", "small", "large"), [(1e-5, 0.282843, 0.565685), (1e-6, 0.534522, 1.069045)]
)
def test_eps_is_seen_in_small_vectors(eps, small, large):
    x = torch.tensor([1e-3, -1e-3, 2e-3, -2e-3])
    y = layer_norm(x, ONES, eps=eps)
    # Given to six places: half of the last, and five roundings of numbers below 2.
    expected = torch.tensor([small, -small, large, -large], dtype=torch.float64)
    assert ((y.double() - expected).abs() <= 5e-7 + 5 * 2.0**-23).all()
    assert torch.equal(layer_norm(x, ONES), layer_norm(x, ONES, eps=1e-5))


def test_the_variance_is_taken_about_the_mean():
    x = (random(8, 256, seed=3) + 4096).float()
    params = {"scale": torch.ones(256)}
    exact = layer_norm(x.double(), params)
    # The mean of 256 numbers near 4,096 is off by half an ulp (2**-12) at most and 256 roundings
    # of what pairwise sums add, 8 deep: 9 * 2**-12. Mean of squares less square of mean: off by 1.
    assert (layer_norm(x, params).double() - exact).abs().max() <= 9 * 2.0**-12


def test_the_annotated_form_divides_by_the_unbiased_deviation_and_eps():
    x, scale, bias = random(3, 6), random(6, seed=1), random(6, seed=2)
    params = {"scale": scale, "bias": bias}
    y = layer_norm(x, params, eps=0.01, form="annotated")
    expected = scale * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 0.01) + bias
    assert_near(y, expected, layer_norm(x.float(), params, eps=0.01, form="annotated"))
    assert torch.autograd.gradcheck(
        lambda x: layer_norm(x, params, form="annotated"), x.requires_grad_()
    )


@pytest.mark.parametrize("form", ["standard", "annotated"])
def test_a_constant_vector_gives_the_bias_and_finite_gradients(form):
    x = torch.full((2, 4), 3.0, requires_grad=True)
    y = layer_norm(x, {"scale": torch.ones(4), "bias": torch.arange(4.0)}, form=form)
    assert y.tolist() == [[0, 1, 2, 3]] * 2
    y[0, 0].backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["standard", "annotated"])
def test_layer_norm_is_float32_inside_and_rounded_once(dtype, form):
    x = (random(4, 64) * 300).to(dtype)  # squares beyond float16
    params = {"scale": random(64, seed=1).float(), "bias": random(64, seed=2).float()}
    y = layer_norm(x, params, form=form)
    assert y.dtype == dtype
    exact = layer_norm(x.double(), params, form=form)
    # Half an ulp of the result; some 20 roundings of numbers below 16.
    unit = 2.0**-53 if dtype == torch.float64 else 2.0**-24
    bound = torch.finfo(dtype).eps / 2 * exact.abs() + 20 * 16 * unit
    assert ((y.double() - exact).abs() <= bound).all()


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layer_norm(torch.ones(4), {"bias": 0}), "`params` lacks 'scale'"),
        (lambda: layer_norm(torch.ones(3), ONES), "`params['scale']` must have shape [3], got [4]"),
        (lambda: layer_norm(torch.ones(4), ONES, eps=0), "`eps` must be above 0 and below 1"),
        (lambda: layer_norm(torch.ones(4), ONES, form="rms"), "`form` must be 'standard' or 'anno"),
        (lambda: layer_norm(torch.ones(2, 0), ONES), "`x` must have an entry in its last axis"),
        (lambda: layer_norm(torch.tensor(1.0), ONES), "an entry in its last axis, got []"),
        (lambda: layer_norm(torch.ones(1), ONES, form="annotated"), "`x` must have two entries"),
        (lambda: feed_forward(torch.ones(4), {"in": {}}), "`params` lacks 'out'"),
    ],
)
def test_what_does_not_fit_a_part_is_refused(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_what_does_not_fit_feed_forward_is_refused():
    params = {name: {"kernel": torch.eye(2)} for name in ("in", "out")}
    with pytest.raises(ValueError, match="`activation` must be 'relu' or 'gelu' or 'gelu_tanh'"):
        feed_forward(torch.ones(2), params, activation="silu")
    with pytest.raises(ValueError, match=re.escape("`dropout_mask` must have shape [1, 2], got")):
        feed_forward(torch.ones(1, 2), params, dropout_mask=torch.ones(2, dtype=torch.bool))
