"""Guesses at sums around sublayers, means over padding and whole modules compute what they say."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from parity.frameworks import torch_trace
from parity.mistakes.modules import module_mistakes
from tests.parity.test_mistakes_attention import answers, draw, equal, seen


def norm(x: np.ndarray) -> np.ndarray:
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-5)


def test_a_residual_that_is_added_after_the_norm() -> None:
    x = draw(2, 3, 4)
    call = seen("add", lambda: x + functional.layer_norm(x, (4,)).tanh())
    (ours,) = answers(call, "residual-after-norm")
    equal(ours, norm(x.numpy()) + np.tanh(norm(x.numpy())))


def test_a_sum_without_a_norm_has_no_such_residual() -> None:
    x = draw(2, 3, 4)
    assert not answers(seen("add", lambda: x + x.tanh()), "residual-after-norm")


def test_the_norm_of_one_term() -> None:
    x, y = draw(2, 3, 4), draw(2, 3, 4, seed=1)
    call = seen("layer_norm", lambda: functional.layer_norm(x + y, (4,)))
    first, second = answers(call, "norm-order")
    equal(first, norm(x.numpy()) + y.numpy())
    equal(second, x.numpy() + norm(y.numpy()))


def test_means_with_padding_and_other_pools() -> None:
    x, mask = draw(2, 3, 4), torch.tensor([[1.0, 1, 0], [1, 0, 0]]).double()[..., None]
    call = seen("div", lambda: (x * mask).sum(1) / mask.sum(1))
    every, counted = answers(call, "mean-over-padding")
    equal(every, x.numpy().mean(1))
    equal(counted, (x * mask).numpy().mean(1))
    total, first, last, greatest = answers(call, "pool-kind")
    equal(total, (x * mask).numpy().sum(1))
    equal(first, x.numpy()[:, 0])
    equal(last, x.numpy()[:, -1])
    equal(greatest, x.numpy().max(1))


class Change:
    """What a search gives to a run."""

    def __init__(self, change) -> None:
        self.change = change

    def __call__(self, call) -> object:
        return NotImplemented


@pytest.mark.parametrize("first", [True, False])
def test_norms_on_the_other_side_of_the_sublayers(first: bool) -> None:
    torch.manual_seed(0)
    layers = [
        nn.TransformerEncoderLayer(8, 2, 16, norm_first=side, batch_first=True).double().eval()
        for side in (first, not first)
    ]
    layers[1].load_state_dict(layers[0].state_dict())
    path, guess = next(iter(module_mistakes(layers[0])))
    inputs = {"0": draw(2, 3, 8).numpy()}
    run = torch_trace.run(layers[0], inputs, rewrites=[Change(guess.change)])
    assert (path, guess.code) == ("", "norm-order")
    assert layers[0].norm_first == first
    theirs: Tensor = torch_trace.run(layers[1], inputs).outputs["output"]
    assert torch.equal(run.outputs["output"], theirs)


def test_a_module_that_has_no_such_choice_has_no_guess() -> None:
    assert not [*module_mistakes(nn.Linear(2, 2))]
    assert not [*module_mistakes(torch.tanh)]
    assert [guess.code for _, guess in module_mistakes(nn.GRU(2, 2))] == ["axes-swapped"]
