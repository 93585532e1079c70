"""Arrays of NumPy or JAX, ranks never promoted: the same bits."""

import jax
import jax.numpy as jnp
import pytest

from tests.catalogue import EXAMPLES, same_bits


def test_promotion_of_ranks_raises_in_these_tests():
    with pytest.raises(ValueError, match="promot"):
        jnp.zeros((2, 3)) + jnp.zeros(3)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_arrays_of_the_host_give_the_bits_of_those_of_the_device(example):
    ours = [jnp.asarray(argument) for argument in example.arguments]
    same_bits(example.call(*ours), example.call(*example.arguments))
    with jax.numpy_rank_promotion("allow"):
        same_bits(example.call(*ours), example.call(*example.arguments))
