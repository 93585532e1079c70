"""Guesses at attention compute what they say, each against a formula of its own."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from parity.frameworks.torch_calls import Call
from parity.frameworks.torch_tracer import Tracer
from parity.mistakes.catalogue import guesses

BATCH, LENGTH, WIDTH, HEADS = 2, 5, 12, 3
HEAD_WIDTH = WIDTH // HEADS


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def seen(name: str, function: Callable[[], object], place: int = 0) -> Call:
    """Return a call of a name that a function makes."""
    with (tracer := Tracer()):
        function()
    calls = list(dict.fromkeys(r.call for r in tracer.results.values() if r.call.name == name))
    return calls[place]


def answers(call: Call, code: str, part: str = "") -> list:
    return [guess.answer() for guess in guesses(call) if guess.code == code and part in guess.cause]


def softmax(scores: np.ndarray, axis: int = -1) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def equal(ours: Tensor, theirs: np.ndarray) -> None:
    np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-12, atol=1e-12)


def attention(cross: bool = False, **masks) -> Callable[[], object]:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dtype=torch.float64)
    x = draw(BATCH, LENGTH, WIDTH)
    other = draw(BATCH, LENGTH, WIDTH, seed=1) if cross else x
    return lambda: module(x, other, other, **masks)


def test_interleaved_heads_take_every_nth_feature() -> None:
    call = seen("split_heads", attention())
    for ours, x in zip(answers(call, "heads-interleaved")[0], call.places, strict=False):
        theirs = np.stack([x.detach().numpy()[..., head::HEADS] for head in range(HEADS)], 1)
        equal(ours, theirs)


def test_mixed_heads_are_a_reshape_and_no_more() -> None:
    call = seen("split_heads", attention())
    for ours, x in zip(answers(call, "heads-mixed")[0], call.places, strict=False):
        equal(ours, x.detach().numpy().reshape(BATCH, HEADS, LENGTH, HEAD_WIDTH))


def test_query_key_and_value_in_all_five_other_orders() -> None:
    call = seen("split_heads", attention())
    found = answers(call, "qkv-permuted")
    assert len(found) == 5
    query, key, value = call()
    (ours,) = answers(call, "qkv-permuted", "key, value, query")
    for mine, theirs in zip(ours, (key, value, query), strict=True):
        equal(mine, theirs.detach().numpy())


@pytest.mark.parametrize("cross", [False, True])
def test_the_wrong_sequence_is_only_guessed_where_there_are_two(cross: bool) -> None:
    with (tracer := Tracer()):
        attention(cross)()
    names = {result.call.name for result in tracer.results.values()}
    assert ("attention_inputs" in names) == cross


def test_attention_to_the_queries_own_sequence() -> None:
    call = seen("attention_inputs", attention(cross=True))
    (ours,) = answers(call, "cross-attention", "own sequence")
    for mine in ours:
        equal(mine, call.places[0].numpy())


def written_out(mask: Tensor | None = None, scale: float = 0.5) -> Callable[[], object]:
    query, key = draw(BATCH, HEADS, LENGTH, 4), draw(BATCH, HEADS, LENGTH, 4, seed=1)

    def run() -> Tensor:
        scores = query @ key.mT * scale
        if mask is not None:
            scores = scores.masked_fill(mask, -math.inf)
        return torch.softmax(scores, -1)

    return run


@pytest.mark.parametrize(
    ("code", "factor"),
    [
        ("scale-missing", 1),
        ("scale-inverse", 2),
        ("scale-twice", 0.25),
        ("scale-width", 0.5 / math.sqrt(HEADS)),
    ],
)
def test_scales(code: str, factor: float) -> None:
    call = seen("mul", written_out())
    theirs = call.places[0].numpy() * factor
    assert any(np.allclose(ours.numpy(), theirs, rtol=1e-12) for ours in answers(call, code))


def test_a_factor_of_one_is_no_scale() -> None:
    call = seen("mul", written_out(scale=1))
    assert not answers(call, "scale-missing")


@pytest.mark.parametrize("axis", [-2, -3])
def test_softmax_over_another_axis(axis: int) -> None:
    call = seen("softmax", written_out())
    (ours,) = answers(call, "softmax-axis", f"over axis {axis} ")
    equal(ours, softmax(call.places[0].numpy(), axis))


def test_a_causal_mask_that_torch_has_not() -> None:
    call = seen("softmax", written_out())
    (ours,) = answers(call, "mask-causal")
    scores = np.where(np.tri(LENGTH, dtype=bool), call.places[0].numpy(), -np.inf)
    equal(ours, softmax(scores))


def test_heads_of_keys_that_are_tiled() -> None:
    x = draw(BATCH, 2, LENGTH, 4)
    call = seen("repeat_interleave", lambda: x.repeat_interleave(3, dim=1))
    (ours,) = answers(call, "kv-heads-tiled")
    equal(ours, np.tile(x.numpy(), (1, 3, 1, 1)))


def test_queries_and_keys_exchanged() -> None:
    call = seen("matmul", written_out())
    (ours,) = answers(call, "scores-transposed")
    query, key = (value.numpy() for value in (call.places[0], call.places[1].mT))
    equal(ours, np.einsum("bhqd,bhkd->bhkq", query, key))


def test_joined_heads_without_their_axis_moved() -> None:
    x = draw(BATCH, HEADS, LENGTH, 4)
    call = seen("flatten", lambda: x.transpose(1, 2).flatten(-2))
    (ours,) = answers(call, "heads-mixed")
    equal(ours, x.numpy().reshape(BATCH, LENGTH, -1))


def test_a_scale_that_torch_has_not() -> None:
    call = seen("matmul", written_out())
    (ours,) = answers(call, "scale-extra")
    equal(ours, call().numpy() / 2)  # four features
