"""Inside a scan: the bits of one call after another, forward and back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.catalogue import EXAMPLES, SMOOTH, stacked, variants


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e.arguments], ids=str)
def test_scan_gives_the_bits_of_a_loop(example):
    rows = variants(example)

    def step(carry, row):
        return carry, example.call(*row)

    _, actual = jax.lax.scan(step, None, stacked(rows))
    example.agree(actual, jnp.stack([example.call(*row) for row in rows]))


@pytest.mark.parametrize("example", SMOOTH, ids=str)
def test_gradient_of_a_scan_is_the_sum_over_its_steps(example):
    place, rows = example.smooth[0], variants(example)

    def loss(argument, row):
        row = [argument if other == place else given for other, given in enumerate(row)]
        return jnp.sum(jnp.sin(example.call(*row)))

    def scanned(argument):

        def step(total, row):
            return total + loss(argument, row), None

        return jax.lax.scan(step, jnp.float32(0), stacked(rows))[0]

    argument = jnp.asarray(example.arguments[place])
    expected = sum(jax.grad(loss)(argument, row) for row in rows)
    # The two add the same three float32 terms in another order.
    slack = 3 * np.finfo(np.float32).eps + 3 * example.slack(np.float32)
    bound = slack * np.abs(expected).max()
    np.testing.assert_allclose(jax.grad(scanned)(argument), expected, rtol=0, atol=bound)
