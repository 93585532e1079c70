"""Faults that checkers of ports have had (public reports): none of them passes here, or unsaid."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from parity import check

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
pytestmark = pytest.mark.usefixtures("ports_may_broadcast")

CANCELLING = np.zeros((3, 4), np.float32)
CANCELLING[0, :2] = 1, -1


def report(port, reference, x=X, **options):
    return check(port, reference, x, raises=False, **options)


@pytest.mark.parametrize(
    ("port", "reference", "x", "said"),
    [
        (lambda x: jnp.tanh(x) + CANCELLING, torch.tanh, X, "off by 1.0e+00"),
        (lambda x: jnp.tanh(x) - 1e-3, torch.tanh, X, "off by 1.0e-03"),
        (jnp.log, torch.log, X, "NaN on both sides"),
        (lambda x: jnp.log(jnp.abs(x)), torch.log, X, "NaN on one side"),
        (lambda x: x.mean(0, keepdims=True), lambda x: x * 1, X, "shape [1, 4], torch has [3, 4]"),
        (lambda x: x.astype(jnp.bfloat16), lambda x: x * 1, X, "dtype bfloat16"),
        (jnp.tanh, torch.tanh, X[:0], "nothing is compared"),
    ],
    ids=["signed", "max of signed", "nan", "one nan", "broadcast", "dtype", "empty"],
)
def test_what_other_checkers_let_pass_fails(port, reference, x, said):
    found = report(port, reference, x)
    assert not found.passed
    assert said in str(found).splitlines()[0]


def test_zeros_on_both_sides_are_told():
    assert "output is zero everywhere" in report(lambda x: x * 0, lambda x: x * 0).told


def test_a_tolerance_scales_with_the_reference_whatever_comes_first():
    ours, theirs = (lambda x: x * 0 + 1.09), (lambda x: x * 0 + 1.0)
    assert not report(ours, theirs, rtol=0.085, grad=False).passed  # 0.085 * 1.09 would be enough
    with pytest.raises(TypeError, match="The port comes first"):
        report(nn.Linear(4, 4), lambda x: x)


def test_ids_that_hide_every_position_are_no_pass():
    """Rotary angles are all zero at position 0: any frequency gives the same."""

    class Rotary(nn.Module):
        def __init__(self):
            super().__init__()
            self.frequency = nn.Parameter(torch.tensor([1.0, 0.1]))

        def forward(self, x, positions):
            angles = positions[..., None] * self.frequency
            first, second = x.chunk(2, -1)
            cos, sin = angles.cos(), angles.sin()
            return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def port(params, x, positions):
        angles = positions[..., None] * params["frequency"] * 3
        first, second = jnp.split(x, 2, -1)
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    params = {"frequency": np.array([1.0, 0.1], np.float32)}
    places = np.arange(3, dtype=np.float32)
    blind = report(port, Rotary(), (X, 0 * places), params=params)
    assert blind.outputs[0].passed
    assert not blind.passed
    assert blind.blind == ("frequency",)
    assert not report(port, Rotary(), (X, places), params=params).outputs[0].passed


def test_a_permutation_for_the_other_rotary_layout_is_not_a_small_error():
    """Halves for interleaved pairs move a language model's loss by millionths only."""
    torch.manual_seed(0)
    linear = nn.Linear(4, 8)
    columns = [0, 2, 1, 3, 4, 6, 5, 7]
    kernel = linear.weight.detach().numpy().T
    params = {"kernel": kernel[:, columns], "bias": linear.bias.detach().numpy()}
    found = report(lambda p, x: x @ p["kernel"] + p["bias"], linear, params=params)
    assert not found.passed
    assert [cause.code for cause in found.causes] == ["interleaved-halves"]
