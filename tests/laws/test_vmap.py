"""Mapped over a new axis: the bits of one call after another."""

import jax
import jax.numpy as jnp
import pytest

from tests.catalogue import EXAMPLES, stacked, variants

WITH_ARGUMENTS = [example for example in EXAMPLES if example.arguments]


@pytest.mark.parametrize("example", WITH_ARGUMENTS, ids=str)
def test_vmap_gives_the_bits_of_a_loop(example):
    rows = variants(example)
    expected = jnp.stack([example.call(*row) for row in rows])
    actual = jax.jit(jax.vmap(example.call, out_axes=-1))(*stacked(rows))
    example.agree(jnp.moveaxis(actual, -1, 0), expected)


@pytest.mark.parametrize("example", WITH_ARGUMENTS, ids=str)
def test_vmap_over_each_argument_alone_gives_the_bits_of_a_loop(example):
    rows = variants(example)
    for place, column in enumerate(stacked(rows)):
        arguments = list(example.arguments)
        arguments[place] = column
        axes = [0 if other == place else None for other in range(len(arguments))]
        actual = jax.jit(jax.vmap(example.call, in_axes=axes))(*arguments)
        for index, row in enumerate(rows):
            arguments[place] = row[place]
            example.agree(actual[index], example.call(*arguments))
