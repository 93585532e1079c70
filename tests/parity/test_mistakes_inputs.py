"""Guesses about a call that is left out, or given something else."""

import torch
from torch.nn import functional

from tests.parity.test_mistakes_calls import drawn, found, only, same

X, OTHER, WEIGHT = drawn(3, 4), drawn(3, 4, seed=1), drawn(4, 4, seed=2)
MEAN = drawn(4, seed=3)


def test_a_product_is_left_out():
    same(only(lambda x: x @ WEIGHT, X, code="step-missing"), X)


def test_a_constant_is_reversed():
    same(only(lambda x: x - MEAN, X, code="reversed"), X - MEAN.flip(0))


def test_a_layer_is_given_what_comes_before_the_norm():
    def routed(x):
        return functional.linear(functional.layer_norm(x, (4,)), WEIGHT)

    same(only(routed, X, code="wrong-input", words="linear of input 1"), X @ WEIGHT.T)


def test_a_part_of_what_is_joined_is_another():
    def joined(x, y):
        return torch.cat([x.tanh(), y.sin()], -1)

    answer = only(joined, X, OTHER, code="wrong-input", words="cat of input 1, torch of tanh")
    same(answer, torch.cat([X, OTHER.sin()], -1))


def test_only_what_was_there_before_is_taken():
    def late(x):
        return x.tanh().sin()

    causes = [guess.cause for guess in found(late, X, code="wrong-input")]
    assert causes == ["the port takes sin of input 1, torch of tanh"]


def test_a_result_is_what_it_was_before_it_was_changed_in_place():
    def changed(x):
        y = x.tanh()
        y.add_(1)
        return y.sin()

    causes = [g.cause for g in found(changed, X, code="wrong-input") if "sin" in g.cause]
    assert causes == [f"the port takes sin of {name}, torch of add" for name in ("tanh", "input 1")]
    same(only(changed, X, code="wrong-input", words="sin of tanh"), X.tanh().sin())


def test_calls_of_one_function_are_told_by_their_number():
    def repeated(x):
        for _ in range(12):
            x = x.tanh()
        return x.sin()

    words = "sin of tanh#11, torch of tanh#12"
    assert len(found(repeated, X, code="wrong-input", words=words)) == 1


def test_the_nearest_of_all_layers_is_taken_first():
    first, second = (torch.nn.Linear(4, 4) for _ in range(2))
    ends = torch.nn.Tanh(), torch.nn.Softsign()
    model = torch.nn.Sequential(first, torch.nn.ReLU(), second, *ends)
    causes = [
        guess.cause for guess in found(model, X.float(), code="wrong-input", words="softsign")
    ]
    names = [cause.partition(",")[0].rpartition(" of ")[2] for cause in causes]
    assert names == ["* linear", "* relu", "input 1"]


def test_an_activation_of_a_product():
    def gated(x, y):
        return functional.silu(x) * y

    words = "silu to the product"
    same(only(gated, X, OTHER, code="activation-order", words=words), functional.silu(X * OTHER))
    words = "silu to the second factor"
    same(only(gated, X, OTHER, code="activation-order", words=words), X * functional.silu(OTHER))


def test_a_packed_axis_is_read_by_head():
    packed = drawn(2, 24)
    words = "[4 heads, 3, width]"
    guess, *_ = found(lambda x: x.chunk(3, -1), packed, code="qkv-permuted", words=words)
    theirs = packed.reshape(2, 4, 3, 2)
    for number, part in enumerate(guess.answer()):
        same(part, theirs[:, :, number].reshape(2, 8))


def test_a_mean_is_over_one_more():
    words = "divides by n + 1"
    same(only(lambda x, y: x / y, X, OTHER, code="shift", words=words), X / (OTHER + 1))


def test_relative_positions_of_the_other_sign():
    table, ids = drawn(5, 2), torch.tensor([[2, 1, 0], [3, 2, 1], [4, 3, 2]])
    (guess,) = found(
        lambda table: functional.embedding(ids, table), table, code="reversed", words="transposed"
    )
    same(guess.answer(), table[ids.T])
