"""Every call that a reference makes is seen, and can be answered otherwise."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from parity.frameworks import torch_trace
from parity.frameworks.torch_calls import is_rounded

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(2, 3, 8)).astype(np.float32)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        y = functional.gelu(self.inner(self.norm(x)))
        y += x
        return y.mean(1)


def run(reference, *inputs, **options):
    return torch_trace.run(reference, {str(k): x for k, x in enumerate(inputs)}, **options)


def test_calls_have_module_name_and_what_they_came_from():
    found = run(Block(), X).results
    assert list(found) == [*("norm:layer_norm#1", "inner:linear#1", ":gelu#1", ":add#1", ":mean#1")]
    assert found["norm:layer_norm#1"].call.sources[0] == "inputs/0"
    assert found["inner:linear#1"].call.sources[1:] == (
        "weights/inner.weight",
        "weights/inner.bias",
    )
    assert found[":add#1"].call.sources == (":gelu#1", "inputs/0")


def test_a_value_is_what_it_was_before_it_was_changed_in_place():
    found = run(Block(), X).results
    assert not torch.equal(found[":gelu#1"].value, found[":add#1"].value)


def test_outputs_are_those_of_the_reference_and_know_their_step():
    torch.manual_seed(0)
    model = Block()
    found = run(model, X)
    expected = model.double()(torch.from_numpy(X).double())
    assert torch.equal(found.outputs["output"], expected)
    assert found.ends == {"output": ":mean#1"}


def test_a_reference_is_left_as_it_is():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout()).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    run(model, X, training=True, cotangents={})
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_default_dtype() == torch.float32


def test_a_call_is_answered_otherwise():
    def no_gelu(call):
        return call.places[0].clone() if call.name == "gelu" else NotImplemented

    model = Block()
    changed = run(model, X, rewrites=[no_gelu])
    plain = run(model, X)
    assert torch.equal(changed.results[":gelu#1"].value, plain.results["inner:linear#1"].value)
    assert not torch.equal(changed.outputs["output"], plain.outputs["output"])
    assert list(changed.results) == list(plain.results)


def test_what_asks_for_a_narrow_format_gets_float64():
    def narrow(x):
        y = functional.softmax(x, dim=-1, dtype=torch.float32)
        z = x.to(torch.bfloat16).float() + torch.zeros(8, dtype=torch.float32)
        return y + z

    found = run(narrow, X)
    assert found.outputs["output"].dtype == torch.float64
    wide = torch.from_numpy(X).double()
    assert torch.equal(found.outputs["output"], wide.softmax(-1) + wide)


def test_noise_sees_calls_and_moves_those_that_round():
    def raised(call, value):
        return value + 1 if is_rounded(call) else value

    found = run(Block(), X, noise=raised)
    assert found.results["norm:layer_norm#1"].value.mean() > 0.9
    moved = run(lambda x: x.transpose(0, 1).reshape(-1), X, noise=raised)
    assert np.array_equal(moved.outputs["output"].detach(), X.transpose(1, 0, 2).reshape(-1))


def test_dropout_that_is_off_is_a_step_all_the_same():
    found = run(nn.Sequential(nn.Dropout(), nn.Linear(8, 2)).eval(), X)
    assert list(found.results) == ["0:dropout#1", "1:linear#1"]
    assert found.results["1:linear#1"].call.sources[0] == "0:dropout#1"


def test_gradients_are_of_outputs_times_cotangents():
    cotangents = {"cotangents/output": RANDOM.normal(size=(2, 8))}
    model = Block()
    found = run(model, X, cotangents=cotangents)
    wide = model.double()
    x = torch.from_numpy(X).double().requires_grad_()
    (wide(x) * torch.from_numpy(cotangents["cotangents/output"])).sum().backward()
    assert torch.equal(found.gradients["inputs/0"], x.grad)
    assert torch.equal(found.gradients["inner.weight"], wide.inner.weight.grad)
    assert found.results["inner:linear#1"].tensor.grad is not None


def test_statistics_are_those_after_the_run():
    model = nn.BatchNorm1d(3)
    found = run(model, X, training=True, cotangents={})
    assert found.statistics == ("running_mean", "running_var")
    assert not torch.equal(found.weights["running_mean"], torch.zeros(3).double())
