"""All values of a port, without a change of its code."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from parity.frameworks.jax_trace import gradients, trace

X = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)), jnp.float32)


class Layered(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Dense(4)(x)
        return nn.LayerNorm()(x)


def names(function, *arguments):
    return [value.name for value in trace(function, *arguments).values]


def test_values_have_modules_primitives_and_the_line_of_the_port():
    module = Layered()
    found = trace(module.apply, module.init(jax.random.key(0), X), X)
    first = found.values[0]
    assert first.name == "Layered/Dense_0/dot_general"
    assert first.line.startswith("test_jax_trace.py:")
    assert found.values[-1].name.startswith("Layered/LayerNorm_0/")
    np.testing.assert_array_equal(found.values[-1].value, found.outputs)


def test_the_outputs_are_those_of_the_function():
    module = Layered()
    variables = module.init(jax.random.key(0), X)
    found = trace(module.apply, variables, X)
    np.testing.assert_allclose(found.outputs, module.apply(variables, X), rtol=0, atol=1e-6)


def test_jit_and_remat_are_followed():
    inner = jax.jit(lambda x: jnp.sin(x) + 1)
    assert [n.rpartition("/")[2] for n in names(lambda x: inner(x) * 2, X)] == ["sin", "add", "mul"]
    assert [n.rpartition("/")[2] for n in names(jax.checkpoint(jnp.sin), X)] == ["sin"]


def test_scans_are_unrolled_forward_and_in_reverse():
    for reverse in (False, True):

        def run(x, reverse=reverse):
            return jax.lax.scan(lambda c, row: (c + row, c * 2), x[0], x, reverse=reverse)

        found = trace(run, X)
        assert len([v for v in found.values if v.name.endswith("add")]) == 3
        given = [v.value for v in found.values if v.name.endswith("scan")]
        np.testing.assert_array_equal(given, X[::-1] if reverse else X)
        jax.tree.map(np.testing.assert_array_equal, found.outputs, run(X))


def test_a_scan_has_the_names_around_it_once():
    def run(x):
        with jax.named_scope("layers"):
            return jax.lax.scan(lambda c, row: (jnp.sin(c + row), None), x[0], x)[0]

    inside = {name for name in names(run, X) if name.startswith("layers/")}
    assert inside >= {"layers/scan", "layers/add", "layers/sin"}
    assert not any(name.startswith("layers/layers") for name in inside)


def test_branches_and_loops_are_one_value():
    def run(x):
        y = jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)
        return jax.lax.fori_loop(
            0, 2, lambda i, c: jax.lax.while_loop(lambda c: c.sum() < 0, abs, c), y
        )

    found = trace(run, X)
    np.testing.assert_array_equal(found.outputs, run(X))


def test_trees_come_back_as_they_were():
    found = trace(lambda tree: {"a": tree["x"] + 1, "b": (tree["x"], 2)}, {"x": X})
    assert found.outputs.keys() == {"a", "b"}
    np.testing.assert_array_equal(found.outputs["a"], X + 1)


def test_a_value_that_is_put_in_is_what_follows_sees():
    found = trace(lambda x: jnp.sin(x) * 2, X, forced={0: np.ones(X.shape)})
    np.testing.assert_array_equal(found.outputs, np.full(X.shape, 2.0, np.float32))


def test_gradients_at_values_on_the_way():
    found = gradients(lambda x: (jnp.sin(x) * 3).sum(), X, places=[0, 1])
    np.testing.assert_array_equal(found[0], np.full(X.shape, 3.0, np.float32))
    np.testing.assert_array_equal(found[1], np.ones(X.shape, np.float32))


def test_a_derivative_of_its_own_is_kept():
    @jax.custom_jvp
    def square(x):
        return x * x

    square.defjvp(lambda primals, tangents: (square(*primals), 7 * tangents[0]))
    found = gradients(lambda x: square(jnp.sin(x)).sum(), X, places=[0])
    np.testing.assert_array_equal(found[0], np.full(X.shape, 7.0, np.float32))
