"""How far off a right port may be (parity.frameworks.torch_steps): derived, sharp, and finite."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from parity.evidence import TIMES, one_ulp
from parity.frameworks.torch_steps import hold

UNIT = 2.0**-24


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def held(reference, *inputs, cotangent=None):
    return hold(
        reference,
        {str(k): x for k, x in enumerate(inputs)},
        training=False,
        seed=0,
        cotangents=None if cotangent is None else {"cotangents/output": cotangent},
    )


def apart(ours, exact):
    return float((ours - exact).detach().abs().max())


def test_what_rounds_nothing_may_be_off_by_ulps_at_the_root_mean_square_alone():
    x = drawn(4, 6)
    found = held(lambda x: torch.cat([x.t(), x.t()]), x)
    assert found.errors["outputs/output"] == 0
    assert found.limits["outputs/output"] == TIMES * one_ulp(x.astype(np.float64), "float32")


def test_one_function_may_be_off_by_its_units_times_a_factor():
    x = drawn(2000)
    found = held(torch.tanh, x)
    limit, top = found.limits["outputs/output"], np.abs(np.tanh(x)).max()
    # Of two thousand elements some near the greatest is moved by nearly two units.
    assert 1.5 < limit / (TIMES * UNIT * top) < 2.5


@pytest.mark.parametrize("seed", range(3))
def test_an_eps_of_a_tenth_is_further_off_than_the_limit_of_a_layer_norm(seed):
    x, norm = drawn(32, 512, seed=seed), torch.nn.LayerNorm(512)
    found = held(norm, x)
    wrong = functional.layer_norm(torch.from_numpy(x).double(), (512,), eps=1e-6)
    assert apart(wrong, found.exact.outputs["output"]) > 3 * found.limits["outputs/output"]


@pytest.mark.parametrize("seed", range(3))
def test_tanh_for_exact_gelu_is_further_off_than_the_limit_of_a_feed_forward(seed):
    torch.manual_seed(seed)
    layers = torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)
    found = held(torch.nn.Sequential(*layers), x := drawn(8, 64, seed=seed))
    first, _, last = (layer.double() for layer in layers)
    with torch.no_grad():
        wrong = last(functional.gelu(first(torch.from_numpy(x).double()), approximate="tanh"))
    assert apart(wrong, found.exact.outputs["output"]) > 10 * found.limits["outputs/output"]


def test_a_coarse_buffer_makes_no_layer_before_it_coarse():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(16, 16)
            self.register_buffer("shift", torch.ones(16, dtype=torch.bfloat16))

        def forward(self, x):
            return self.fc(x) + self.shift

    found = held(Model(), drawn(4, 16))
    assert found.dtype == "bfloat16"
    assert found.limits["fc:linear#1"] < 100 * UNIT
    assert found.limits["outputs/output"] < 100 * UNIT


def test_what_is_cast_to_a_half_format_is_rounded_to_it():
    """These values are of that format, so that PyTorch's own cast is exact."""
    x = np.full(100, 1.75, np.float32)
    found = held(lambda x: x.to(torch.bfloat16).to(torch.float32), x)
    assert found.errors["outputs/output"] == 0
    assert found.limits["outputs/output"] > 1.5 * TIMES * 2.0**-7


def test_an_overflow_of_the_reference_leaves_the_limit_finite():
    x = drawn(8).astype(np.float16) + np.float16(300)
    found = held(lambda x: x * x, x)
    assert found.own.outputs["output"].isinf().any()
    assert np.isfinite(found.limits["outputs/output"])


def test_gradients_that_cancel_on_their_way_back_may_be_off_by_what_they_round():
    """Forward nothing is rounded, and of these terms PyTorch's own sum is exact."""
    x = drawn(16)
    big = np.full((2, 16), 1024, np.float32)
    big[1] = 1 - big[1]
    found = held(lambda x: x.expand(2, 16), x, cotangent=big)
    assert found.errors["gradients/inputs/0"] == 0
    assert found.limits["gradients/inputs/0"] > TIMES * 1024 * UNIT


def test_limits_are_the_same_again_and_the_reference_is_left_alone():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Softmax(-1))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    first, again = (held(model, drawn(3, 4), cotangent=drawn(3, 4, seed=1)) for _ in range(2))
    assert first.limits == again.limits
    assert all(limit > 0 for limit in first.limits.values())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
