"""Modules of nnx as ports (parity.frameworks.nnx_port)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from parity.frameworks.jax_ports import port_of

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def made(port, params=None, places=(X,), named=None, training=False):
    return port_of(port, params, places, named or {}, training=training)


class Net(nnx.Module):
    def __init__(self, rngs):
        self.second = nnx.Linear(3, 5, rngs=rngs)
        self.norm = nnx.BatchNorm(5, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.first = nnx.Linear(5, 2, rngs=rngs)
        self.calls = nnx.Variable(jnp.zeros((), jnp.int32))

    def __call__(self, x):
        self.calls[...] += 1
        return self.first(self.drop(self.norm(self.second(x))))


def contents(module):
    """Every array of a module, those of its random state too."""
    return {
        path: np.asarray(_plain(variable.get_value()))
        for path, variable in nnx.to_flat_state(nnx.state(module))
    }


def _plain(value):
    return jax.random.key_data(value) if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) else value


@pytest.fixture
def net():
    """A module in training mode, and what it holds."""
    module = Net(nnx.Rngs(0))
    module.train()
    return module


def test_the_leaves_are_those_of_the_module_in_order_of_creation(net):
    port = made(net)
    assert (port.kind, port.given) == ("nnx", False)
    layers = [path for path in port.leaves if not path.startswith("norm")]
    assert layers == ["second/kernel", "second/bias", "first/kernel", "first/bias"]
    assert list(port.leaves)[2:4] == ["norm/mean", "norm/var"]
    np.testing.assert_array_equal(port.leaves["first/kernel"], net.first.kernel[...])


def test_inference_is_set_on_a_copy_and_told(net):
    before = contents(net)
    port = made(net)
    outputs, changed = port.call(port.leaves, X)
    assert (changed, port.told) == ({}, ("model.eval()",))
    assert not net.drop.deterministic
    for path, array in contents(net).items():
        np.testing.assert_array_equal(array, before[path], strict=True)
    expected = nnx.clone(net)
    expected.eval()
    np.testing.assert_array_equal(outputs, expected(X))


def test_training_returns_the_statistics_that_it_changed(net):
    net.eval()
    before = contents(net)
    port = made(net, training=True)
    outputs, changed = port.call(port.leaves, X)
    expected = nnx.clone(net)
    expected.train()
    np.testing.assert_array_equal(outputs, expected(X))
    assert list(changed) == ["norm/mean", "norm/var"]
    np.testing.assert_array_equal(changed["norm/var"], expected.norm.var[...])
    np.testing.assert_array_equal(port.call(port.leaves, X)[0], outputs)
    assert port.told[0] == "model.train()"
    assert net.drop.deterministic
    for path, array in contents(net).items():
        np.testing.assert_array_equal(array, before[path], strict=True)


def test_arrays_of_numpy_are_not_changed_in_place(net):
    port = made(net, training=True)
    leaves = {path: np.array(leaf) for path, leaf in port.leaves.items()}
    _, changed = port.call(leaves, X)
    np.testing.assert_array_equal(leaves["norm/var"], np.ones(5))
    np.testing.assert_array_equal(changed["norm/var"], port.call(port.leaves, X)[1]["norm/var"])


@pytest.mark.parametrize(
    "kind", [nnx.state, lambda net: nnx.to_pure_dict(nnx.state(net)), nnx.clone]
)
def test_parameters_that_are_given_are_used(net, kind):
    other = Net(nnx.Rngs(1))
    port = made(net, kind(other))
    other.eval()
    assert port.given
    np.testing.assert_array_equal(port.call(port.leaves, X)[0], other(X))


def test_statistics_that_are_not_given_are_those_of_the_module(net):
    net.norm.mean[...] = jnp.ones(5)
    port = made(net, nnx.state(Net(nnx.Rngs(1)), nnx.Param))
    np.testing.assert_array_equal(port.leaves["norm/mean"], np.ones(5))


def test_a_mode_in_the_call_is_set_and_told():
    class Flagged(nnx.Module):
        def __call__(self, x, *, deterministic):
            return x if deterministic else 2 * x

    port = made(Flagged())
    assert port.told == ("model.eval()", "deterministic=True")
    np.testing.assert_array_equal(port.call({}, X)[0], X)


def test_attention_that_was_not_told_does_not_decode():
    module = nnx.MultiHeadAttention(1, 3, rngs=nnx.Rngs(0))
    port = made(module, places=(X[None],))
    assert port.told == ("model.eval()", "decode=False", "deterministic=True")
    assert module.decode is None
    expected = module(X[None], decode=False, deterministic=True)
    np.testing.assert_array_equal(port.call(port.leaves, X[None])[0], expected)


def test_bfloat16_and_float64_stay():
    half = made(nnx.Linear(3, 2, param_dtype=jnp.bfloat16, rngs=nnx.Rngs(0)))
    assert half.leaves["kernel"].dtype == jnp.bfloat16
    assert half.call(half.leaves, jnp.asarray(X, jnp.bfloat16))[0].dtype == jnp.bfloat16
    with jax.enable_x64(True):
        double = nnx.Linear(3, 2, param_dtype=jnp.float64, rngs=nnx.Rngs(0))
        port = made(double)
        assert port.call(port.leaves, X.astype(np.float64))[0].dtype == np.float64


@pytest.mark.parametrize("training", [False, True])
def test_the_call_can_be_jitted_and_differentiated_with_jit_inside(training):
    class Inner(nnx.Module):
        def __init__(self, rngs):
            self.net = Net(rngs)

        def __call__(self, x):
            return nnx.jit(lambda net, x: net(x))(self.net, jax.jit(jnp.tanh)(x))

    port = made(Inner(nnx.Rngs(0)), training=training)

    def loss(leaves):
        outputs, changed = port.call(leaves, X)
        return outputs.sum(), changed

    gradients, changed = jax.jit(jax.grad(loss, has_aux=True))(port.leaves)
    np.testing.assert_allclose(gradients["net/first/bias"], 4.0)
    assert set(changed) == ({"net/norm/mean", "net/norm/var"} if training else set())
    assert not any(isinstance(leaf, jax.core.Tracer) for leaf in port.leaves.values())


def test_parameters_that_do_not_fit_are_refused_by_their_paths(net):
    params = nnx.to_pure_dict(nnx.state(net, nnx.Param))
    params["third"] = params.pop("second")
    with pytest.raises(ValueError, match="`params` lacks `second/kernel`, `second/bias` and has"):
        made(net, params)


def test_inputs_that_the_module_can_not_take_are_refused(net):
    port = made(net)
    with pytest.raises(
        ValueError, match=r"`model\(float32\[4, 3\], float32\[4, 3\]\)` raised TypeE"
    ):
        port.call(port.leaves, X, X)
