"""Computed again in the backward pass: the same bits, values and gradients."""

import jax
import pytest

from tests.catalogue import EXAMPLES, SMOOTH


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_remat_gives_the_same_bits(example):
    expected = example.call(*example.arguments)
    example.agree(jax.checkpoint(example.call)(*example.arguments), expected)
    example.agree(jax.jit(jax.checkpoint(example.call))(*example.arguments), expected)


@pytest.mark.parametrize("example", SMOOTH, ids=str)
def test_remat_gives_gradients_of_the_same_bits(example):
    def pull(call, *arguments):
        def of_smooth(*given):
            places = dict(zip(example.smooth, given, strict=True))
            return call(*(places.get(i, argument) for i, argument in enumerate(arguments)))

        result, pullback = jax.vjp(of_smooth, *(arguments[i] for i in example.smooth))
        return pullback(result)

    expected = jax.jit(lambda *given: pull(example.call, *given))(*example.arguments)
    actual = jax.jit(lambda *given: pull(jax.checkpoint(example.call), *given))(*example.arguments)
    for ours, theirs in zip(actual, expected, strict=True):
        example.agree(ours, theirs, times=3)  # forward, and two products back
