"""Modules of Equinox as ports (parity.frameworks.equinox_port)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.frameworks.jax_ports import port_of

eqx = pytest.importorskip("equinox")

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def made(port, params=None, places=(X,), named=None, training=False):
    return port_of(port, params, places, named or {}, training=training)


def mlp(seed=0, **options):
    return eqx.nn.MLP(3, 2, 5, depth=1, key=jax.random.key(seed), **options)


def test_a_module_for_one_example_is_mapped_and_that_is_told():
    port = made(mlp())
    assert (port.kind, port.given) == ("equinox", False)
    assert list(port.leaves) == [f"layers/{i}/{n}" for i in (0, 1) for n in ("weight", "bias")]
    assert port.told[-1] == "called under jax.vmap over the leading axis"
    outputs, changed = port.call(port.leaves, X)
    np.testing.assert_array_equal(outputs, jax.vmap(mlp())(X))
    assert changed == {}


def test_a_module_that_takes_the_inputs_is_called_directly():
    port = made(mlp(), places=(X[0],))
    assert port.told == ("eqx.nn.inference_mode(model, True)",)
    np.testing.assert_array_equal(port.call(port.leaves, X[0])[0], mlp()(X[0]))


def test_what_is_no_array_is_not_mapped():
    class Scaled(eqx.Module):
        linear: eqx.nn.Linear

        def __call__(self, x, *, shift, power):
            return self.linear(x) ** power + shift

    module = Scaled(eqx.nn.Linear(3, 2, key=jax.random.key(0)))
    named = {"shift": np.ones((4, 2), np.float32), "power": 2}
    port = made(module, named=named)
    expected = jax.vmap(module.linear)(X) ** 2 + 1
    np.testing.assert_allclose(port.call(port.leaves, X, **named)[0], expected, rtol=1e-6)


def test_parameters_that_are_given_are_used():
    port = made(mlp(0), mlp(1))
    assert port.given
    np.testing.assert_array_equal(port.call(port.leaves, X)[0], jax.vmap(mlp(1))(X))


def test_a_module_is_parameters_of_a_function():
    port = made(lambda model, x: jax.vmap(model)(x), mlp())
    assert (port.kind, "layers/1/bias" in port.leaves) == ("function", True)
    np.testing.assert_array_equal(port.call(port.leaves, X)[0], jax.vmap(mlp())(X))


def test_dropout_is_off_in_inference_and_has_a_key_in_training():
    module = eqx.nn.Dropout(0.5)
    np.testing.assert_array_equal(made(module).call({}, X)[0], X)
    port = made(module, training=True)
    assert port.told == ("eqx.nn.inference_mode(model, False)", "dropout key 0")
    expected = module(X, key=jax.random.key(0))
    np.testing.assert_array_equal(port.call({}, X)[0], expected)
    assert not module.inference


def test_bfloat16_and_float64_stay():
    port = made(mlp(dtype=jnp.bfloat16))
    assert port.leaves["layers/0/weight"].dtype == jnp.bfloat16
    assert port.call(port.leaves, jnp.asarray(X, jnp.bfloat16))[0].dtype == jnp.bfloat16
    with jax.enable_x64(True):
        port = made(mlp(dtype=jnp.float64))
        assert port.call(port.leaves, X.astype(np.float64))[0].dtype == np.float64
        assert port.leaves["layers/0/weight"].dtype == np.float64


def test_the_call_can_be_jitted_and_differentiated_with_jit_inside():
    class Inner(eqx.Module):
        mlp: eqx.nn.MLP

        def __call__(self, x):
            return eqx.filter_jit(self.mlp)(jax.jit(jnp.tanh)(x))

    port = made(Inner(mlp()))
    gradients = jax.jit(jax.grad(lambda leaves: port.call(leaves, X)[0].sum()))(port.leaves)
    np.testing.assert_allclose(gradients["mlp/layers/1/bias"], 4.0)


def test_parameters_that_do_not_fit_are_refused_by_their_paths():
    deeper = eqx.nn.MLP(3, 2, 5, depth=2, key=jax.random.key(0))
    expected = "`params` has the unexpected `layers/2/weight`, `layers/2/bias`."
    with pytest.raises(ValueError, match=expected):
        made(mlp(), deeper)


def test_inputs_that_the_module_can_not_take_are_refused():
    port = made(mlp(), places=(X[:, :2],))
    assert port.told == ("eqx.nn.inference_mode(model, True)",)
    with pytest.raises(ValueError, match=r"`model\(float32\[4, 2\]\)` raised TypeError"):
        port.call(port.leaves, X[:, :2])
