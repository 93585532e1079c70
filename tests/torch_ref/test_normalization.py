"""Normalised vectors, beside their formulas and PyTorch's own."""

import re

import pytest
import torch
from torch import nn

from tests.torch_ref.peers import (
    WIDTH,
    assert_near,
    random,
    randomized,
)
from torch_ref.normalization import layer_norm
from torch_ref.torch_layout import norm_params

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
    ("call", "message"),
    [
        (lambda: layer_norm(torch.ones(4), {"bias": 0}), "`params` lacks 'scale'"),
        (lambda: layer_norm(torch.ones(3), ONES), "`params['scale']` must have shape [3], got [4]"),
        (lambda: layer_norm(torch.ones(4), ONES, eps=0), "`eps` must be above 0 and below 1"),
        (lambda: layer_norm(torch.ones(4), ONES, form="rms"), "`form` must be 'standard' or 'anno"),
        (lambda: layer_norm(torch.ones(2, 0), ONES), "`x` must have an entry in its last axis"),
        (lambda: layer_norm(torch.tensor(1.0), ONES), "an entry in its last axis, got []"),
        (lambda: layer_norm(torch.ones(1), ONES, form="annotated"), "`x` must have two entries"),
    ],
)
def test_what_cannot_be_normalised_is_refused(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
