"""Functions as ports, and what is said of ports of any kind (parity.frameworks.jax_ports)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

from parity.frameworks.jax_ports import port_of

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def linear(params, x, scale=1.0, *, training=None):
    return {"y": x @ params["kernel"] * scale, "training": training}


def made(port, params=None, places=(X,), named=None, training=False):
    return port_of(port, params, places, named or {}, training=training)


def test_a_function_is_called_with_its_parameters_and_inputs():
    params = {"kernel": np.ones((3, 2), np.float32)}
    port = made(lambda params, x: x @ params["kernel"], params)
    assert (port.kind, port.given, port.told) == ("function", True, ())
    assert port.leaves == params
    outputs, changed = port.call({"kernel": 2 * params["kernel"]}, X)
    np.testing.assert_array_equal(outputs, 2 * X @ params["kernel"])
    assert changed == {}


def test_a_function_without_parameters_is_called_with_its_inputs():
    port = made(lambda x, *, mask: x * mask, named={"mask": X})
    assert (port.leaves, port.given) == ({}, False)
    np.testing.assert_array_equal(port.call({}, X, mask=X)[0], X * X)


@pytest.mark.parametrize("training", [False, True])
def test_a_function_is_told_the_mode(training):
    port = made(linear, {"kernel": np.ones((3, 2))}, training=training)
    assert port.told == (f"training={training}",)
    assert port.call(port.leaves, X)[0]["training"] is training


def test_a_mode_that_the_caller_gave_is_left_alone():
    port = made(linear, {"kernel": np.ones((3, 2))}, named={"training": "half"})
    assert port.told == ()
    assert port.call(port.leaves, X, training="half")[0]["training"] == "half"


def test_a_mode_given_by_position_is_left_alone():
    port = made(lambda x, train: x * train, places=(X, 3))
    assert port.told == ()
    np.testing.assert_array_equal(port.call({}, X, 3)[0], X * 3)


def test_a_switch_at_its_default_is_not_passed_into_jit():
    @jax.jit
    def port(x, train=False):
        return x + 1 if train else x

    np.testing.assert_array_equal(made(port).call({}, X)[0], X)


def test_a_function_without_a_signature_is_a_port():
    assert made(max, places=(2, 3)).call({}, 2, 3)[0] == 3


def test_too_many_inputs_are_said_by_the_call():
    port = made(lambda x: x, places=(X, X))
    with pytest.raises(
        ValueError, match=r"`port\(float32\[2, 3\], float32\[2, 3\]\)` raised TypeE"
    ):
        port.call({}, X, X)


def test_a_partial_function_is_a_port():
    port = made(functools.partial(linear, scale=2.0), {"kernel": np.eye(3, dtype=np.float32)})
    np.testing.assert_array_equal(port.call(port.leaves, X)[0]["y"], 2 * X)


def test_a_module_of_equinox_that_wraps_a_function_is_one():
    eqx = pytest.importorskip("equinox")
    port = made(eqx.filter_jit(lambda params, x: x @ params["w"]), {"w": np.eye(3, 2)})
    assert port.kind == "function"
    np.testing.assert_array_equal(port.call(port.leaves, X)[0], X[:, :2])


def test_a_port_can_be_jitted_and_differentiated():
    params = {"kernel": np.ones((3, 2), np.float32)}
    port = made(jax.jit(lambda params, x: x @ params["kernel"]), params)
    gradient = jax.jit(jax.grad(lambda leaves: port.call(leaves, X)[0].sum()))(port.leaves)
    np.testing.assert_array_equal(gradient["kernel"], X.sum(0)[:, None] * jnp.ones((1, 2)))


@pytest.mark.parametrize("kind", [nn.Dense, nnx.Linear, dict])
def test_a_class_is_refused(kind):
    name = kind.__name__
    with pytest.raises(TypeError, match=rf"`port` is the class {name}. Give an instance: {name}\("):
        made(kind)


class Encoder(nn.Module):
    """It has `encode` only."""

    def encode(self, x):
        return x


@pytest.mark.parametrize("port", [{"kernel": X}, Encoder()])
def test_what_can_not_be_called_is_refused(port):
    name = type(port).__name__
    with pytest.raises(
        TypeError, match=rf"`port` must be a module .* or a function .*; got {name}"
    ):
        made(port)


def test_a_module_of_torch_is_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="must be written in JAX, got the PyTorch module Linear"):
        made(torch.nn.Linear(3, 2))


def test_what_a_port_raises_is_chained_to_the_call_and_its_shapes():
    port = made(linear, {"kernel": np.ones((4, 2))})
    shown = r"float32\[2, 3\], scale=2\.0, training=dict\(int32\[1\]\)"
    expected = rf"`port\(params, {shown}\)` raised TypeError"
    named = {"scale": 2.0, "training": {"ids": jnp.zeros(1, jnp.int32)}}
    with pytest.raises(ValueError, match=expected) as caught:
        port.call(port.leaves, jnp.asarray(X), **named)
    assert isinstance(caught.value.__cause__, TypeError)


def test_leaves_of_another_structure_are_refused():
    port = made(linear, {"kernel": np.ones((3, 2))})
    with pytest.raises(ValueError, match=r"`leaves` lacks `kernel` and has the unexpected `w`"):
        port.call({"w": X}, X)
