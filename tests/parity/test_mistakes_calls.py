"""Each guess about a call computes what it says, where it applies."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from parity.frameworks import torch_trace
from parity.frameworks.torch_calls import Call
from parity.mistakes.catalogue import UNKNOWN, guesses
from parity.mistakes.guess import Guess


def calls(function, *inputs: torch.Tensor) -> list[Call]:
    """Return the calls that a function makes on inputs, in float64."""
    given = {str(place): x.detach().numpy() for place, x in enumerate(inputs)}
    return [result.call for result in torch_trace.run(function, given).results.values()]


def found(function, *inputs: torch.Tensor, code: str, words: str = "") -> list[Guess]:
    every = [guess for call in calls(function, *inputs) for guess in guesses(call)]
    return [guess for guess in every if guess.code == code and words in guess.cause]


def only(function, *inputs: torch.Tensor, code: str, words: str = "") -> torch.Tensor:
    """Return what the one guess of that code and cause gives."""
    (guess,) = found(function, *inputs, code=code, words=words)
    return guess.answer()


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


X = drawn(3, 4)
IMAGE, KERNEL = drawn(2, 4, 6, 6), drawn(4, 4, 3, 3, seed=1)


def conv(x: torch.Tensor, **options) -> torch.Tensor:
    return functional.conv2d(x, KERNEL, **options)


def test_gelu_is_the_other_form():
    expected = 0.5 * X * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (X + 0.044715 * X**3)))
    same(only(functional.gelu, X, code="gelu-kind", words="tanh"), expected)


def test_activation_is_left_out_or_another():
    same(only(torch.relu, X, code="activation-missing"), X)
    same(only(torch.relu, X, code="wrong-activation", words="is silu"), X / (1 + (-X).exp()))
    same(only(torch.tanh, X, code="activation-twice"), X.tanh().tanh())


@pytest.mark.parametrize(
    ("own", "kind"),
    [("relu", "leaky_relu"), ("elu", "relu"), ("elu", "gelu"), ("tanh", "hardtanh")],
)
def test_an_activation_is_another_whose_name_ends_alike(own, kind):
    theirs, ours = (getattr(functional, name) for name in (own, kind))
    same(only(theirs, X, code="wrong-activation", words=f"is {kind} in"), ours(X))


def test_activation_in_place_is_seen_as_it_was():
    same(only(lambda x: torch.relu_(x * 1.0), X, code="activation-missing"), X)


def test_eps_is_another():
    def function(x):
        return functional.layer_norm(x, (4,), eps=1e-5)

    centred = X - X.mean(-1, keepdim=True)
    expected = centred / (X.var(-1, keepdim=True, correction=0) + 1e-3).sqrt()
    same(only(function, X, code="eps", words="is 0.001 in"), expected)


def test_variance_is_of_a_sample():
    expected = (X - X.mean(-1, keepdim=True)) / (X.var(-1, keepdim=True) + 1e-5).sqrt()

    def function(x):
        return functional.layer_norm(x, (4,))

    same(only(function, X, code="variance-form", words="n - 1 in the port, by n"), expected)
    same(only(lambda x: x.std(0), X, code="variance-form", words="by n in"), X.std(0, correction=0))


def test_batch_norm_takes_the_statistics_of_its_batch():
    mean, var = drawn(4, seed=2), drawn(4, seed=3).abs()

    def given(x):
        return functional.batch_norm(x, mean, var)

    expected = (X - X.mean(0)) / (X.var(0, correction=0) + 1e-5).sqrt()
    same(only(given, X, code="train-mode"), expected)
    fresh = only(given, X, code="running-statistics", words="never set")
    same(fresh, X / (1 + 1e-5) ** 0.5)


def test_norm_comes_before_the_activation_that_it_follows():
    def function(x):
        return torch.relu(functional.layer_norm(x, (4,)))

    same(only(function, X, code="norm-order"), functional.layer_norm(X.relu(), (4,)))


def test_linear_is_turned_or_without_bias():
    weight, bias = drawn(4, 4, seed=1), drawn(4, seed=2)

    def function(x):
        return functional.linear(x, weight, bias)

    same(only(function, X, code="untransposed-square"), X @ weight + bias)
    same(only(function, X, code="bias-missing"), X @ weight.T)
    same(only(function, X, code="sign", words="subtracts the bias"), X @ weight.T - bias)


def test_linear_that_is_not_square_is_not_turned():
    def function(x):
        return functional.linear(x, drawn(5, 4))

    assert not found(function, X, code="untransposed-square")
    assert not found(function, X, code="bias-missing")


def test_another_layer_of_the_same_shape_is_applied():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).double()
    expected = functional.linear(X, model[1].weight, model[1].bias)
    same(only(model, X, code="layers-swapped", words="1 where torch applies 0"), expected)


def test_same_padding_is_uneven_under_a_stride():
    def function(x):
        return conv(x, stride=2, padding=1)

    expected = conv(functional.pad(IMAGE, (0, 1, 0, 1)), stride=2)
    same(only(function, IMAGE, code="padding-mode", words='"SAME"'), expected)


def test_kernel_is_turned_or_its_channels_are_swapped():
    expected = functional.conv2d(IMAGE, KERNEL.transpose(0, 1))
    same(only(conv, IMAGE, code="untransposed-square"), expected)
    expected = functional.conv2d(IMAGE, KERNEL.transpose(2, 3))
    same(only(conv, IMAGE, code="kernel-turned"), expected)


@pytest.mark.parametrize(("kind", "other"), [("max", "avg"), ("avg", "max")])
def test_pool_is_of_the_other_kind(kind, other):
    expected = getattr(functional, f"{other}_pool2d")(IMAGE, 2)

    def function(x):
        return getattr(functional, f"{kind}_pool2d")(x, 2)

    same(only(function, IMAGE, code="pool-kind", words=f"takes the {other}"), expected)


def test_image_is_flattened_with_its_channels_last():
    expected = IMAGE.permute(0, 2, 3, 1).flatten(1)

    def function(x):
        return torch.flatten(x, 1)

    same(only(function, IMAGE, code="nchw-flatten", words="channels last"), expected)


def test_sum_loses_a_term_or_changes_its_sign():
    other = drawn(3, 4, seed=1)

    def function(x, y):
        return x + y

    same(only(function, X, other, code="residual-missing", words="second"), X)
    same(only(function, X, other, code="sign"), X - other)


def test_mean_is_the_greatest():
    def function(x):
        return x.mean((1, 2))

    expected = IMAGE.amax((1, 2))
    same(only(function, IMAGE, code="reduction", words="takes the max"), expected)


def test_dropout_that_is_off_scales():
    def function(x):
        return functional.dropout(x, 0.25, training=False)

    same(only(function, X, code="dropout-scale", words="multiplies"), X * 0.75)


def test_parts_are_joined_in_the_opposite_order():
    def function(x):
        return torch.cat([x, 2 * x], -1)

    expected = torch.cat([2 * X, X], -1)
    same(only(function, X, code="concat-order", words="opposite"), expected)


def test_result_is_rounded():
    expected = (X @ X.T).bfloat16().double()

    def function(x):
        return x @ x.T

    assert any(
        torch.equal(guess.answer(), expected)
        for guess in found(function, X, code="dtype-cast", words="the result of matmul")
    )


FUNCTIONS = {
    "layer_norm": lambda x: functional.layer_norm(x, (6,)),
    "group_norm": lambda x: functional.group_norm(x, 2),
    "conv": lambda x: conv(x, stride=2, padding=1, bias=drawn(4)),
    "conv_transpose": lambda x: functional.conv_transpose2d(x, KERNEL, stride=2, padding=1),
    "max_pool": lambda x: functional.max_pool2d(x, 2, padding=1),
    "interpolate": lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
    "pad": lambda x: functional.pad(x, (1, 2, 0, 1), mode="reflect"),
    "mean": lambda x: x.mean(1),
    "index": lambda x: x[:, 0, 1:3],
    "flatten": lambda x: x.flatten(1),
    "loss": lambda x: functional.mse_loss(x, 2 * x),
    "chunk": lambda x: x.chunk(2, 1)[0],
    "residual": lambda x: torch.relu(torch.tanh(x[..., :5]) + x[..., :5]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_guesses_about_one_call_have_names_of_their_own(name):
    made = calls(FUNCTIONS[name], IMAGE)
    assert made
    for call in made:
        names = [guess.name for guess in guesses(call)]
        assert names
        assert len(names) == len(set(names))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_guesses_leave_what_the_call_was_given_as_it_is(name):
    for call in calls(FUNCTIONS[name], IMAGE):
        before = [x.clone() for x in call.places if isinstance(x, torch.Tensor)]
        for guess in guesses(call):
            try:
                guess.answer()
            except UNKNOWN:
                continue  # it can't be made of this call
        after = [x for x in call.places if isinstance(x, torch.Tensor)]
        assert all(np.array_equal(x, y) for x, y in zip(before, after, strict=True))
