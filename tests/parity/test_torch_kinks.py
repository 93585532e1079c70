"""Gradients at a kink, where a right port may take either branch (torch_kinks)."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from parity.evidence import RATE
from parity.frameworks.torch_evidence import evidence
from tests.parity.test_limits import UNIT, drawn, held


def near(offset):
    """Return rows, of which the first has a sum near 0: off by parts of what a sum is off by."""
    x = drawn(4, 3)
    x[0] = (1.0, -1.0, offset * UNIT)
    return x


NEAR = near(0.01)


def at_a_kink(offset):
    one = np.ones(4, np.float32)
    limits = held(lambda x: torch.relu(x.sum(-1)), near(offset), cotangent=one).limits
    return limits["gradients/inputs/0"]


def jump(function, *inputs, shape=(4,), cotangent=1.0):
    cotangent = np.broadcast_to(np.float32(cotangent), shape)
    found = held(function, *inputs, cotangent=cotangent)
    return found.jumps.get("gradients/inputs/0", 0.0)


def test_a_port_may_take_either_side_of_a_kink_that_rounding_decides():
    # The slope is 0 on one side and 1 on the other.
    assert at_a_kink(0.01) > 1


def test_a_port_may_not_take_the_other_side_of_a_kink_that_is_further_off():
    assert at_a_kink(1e4) < 1e-5


def test_either_of_two_may_be_the_greatest_where_rounding_decides():
    x = drawn(1, 1, 4)
    x[0, 0, :2] = (2.0, 2.0 - 4 * UNIT)

    def pooled(x):
        return torch.max_pool1d(3 * x, 2)

    limits = held(pooled, x, cotangent=np.ones((1, 1, 2), np.float32)).limits
    assert limits["gradients/inputs/0"] > 3


@pytest.mark.parametrize(
    ("function", "least"),
    [
        (functional.selu, 0.7),
        (lambda x: functional.elu(x, alpha=2.0), 0.9),
        (lambda x: functional.l1_loss(x, torch.zeros(4), reduction="none"), 1.9),
    ],
)
def test_functions_whose_slope_jumps(function, least):
    assert least < jump(lambda x: function(x.sum(-1)), NEAR) < least + 0.2


def test_a_mean_over_many_jumps_by_little_and_jumps_all_the_same():
    def mean(x):
        return functional.l1_loss(x.sum(-1).expand(1000, 4), torch.zeros(1000, 4))

    assert 0.4 < jump(mean, NEAR, shape=()) < 0.6


@pytest.mark.parametrize("function", [functional.hardswish, functional.elu, functional.celu])
@pytest.mark.parametrize("at", [0.0, 1.0])
def test_a_slope_that_varies_has_no_jump(function, at):
    assert jump(lambda x: function(x.sum(-1) + at), NEAR) == 0


def test_what_cancels_where_all_is_moved_is_seen_where_some_is():
    def twice(x):
        return torch.relu(torch.stack([x.sum(-1), x.sum(-1)], -1))

    assert jump(twice, NEAR, shape=(4, 2), cotangent=[1.0, -1.0]) > 0.9


@pytest.mark.parametrize("first", [False, True])
def test_either_operand_may_be_what_is_off(first):
    def greatest(x, y):
        return torch.maximum(x.sum(-1), y) if first else torch.maximum(y, x.sum(-1))

    assert jump(greatest, NEAR, np.zeros(4, np.float32)) > 0.9


def test_kinks_are_seen_where_the_caller_infers():
    with torch.inference_mode():
        assert jump(lambda x: torch.relu(x.sum(-1)), NEAR) > 0.9


def test_gradients_of_steps_and_weights_after_steps_may_be_off_by_the_jump():
    model = torch.nn.Sequential(torch.nn.Linear(3, 1, bias=False), torch.nn.ReLU())
    torch.nn.init.ones_(model[0].weight)
    options = {"training": False, "grad": True, "seed": 0}
    found = evidence(model, {"0": NEAR}, steps=3, **options)
    size = abs(float(found.cotangents["output"][0, 0]))
    assert found.step_gradients["0:linear#1"][1] > 0.9 * size
    assert found.limits["updated/0.weight"] > 0.9 * 3 * RATE * size
