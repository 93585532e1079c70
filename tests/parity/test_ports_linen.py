"""Modules of linen as ports (parity.frameworks.linen_port)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax.core import FrozenDict

from parity.frameworks.jax_ports import port_of

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def made(port, params=None, places=(X,), named=None, training=False):
    return port_of(port, params, places, named or {}, training=training)


def init(module, *places, **named):
    return module.init(jax.random.key(1), *(places or (X,)), **named)


class Deep(nn.Module):
    """Twelve layers, so that sorted is not in order; a normalisation and dropout."""

    rate: float = 0.5

    @nn.compact
    def __call__(self, x, train: bool = True):
        for _ in range(12):
            x = nn.Dense(3)(x)
        x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(x)
        return nn.Dropout(self.rate, deterministic=not train)(x)


class Nested(nn.Module):
    """Set up, in an order that is not that of the names."""

    def setup(self):
        self.second = nn.Dense(2)
        self.first = nn.Sequential([nn.Dense(5), nn.relu, nn.Dense(4)])

    def __call__(self, x):
        return self.second(self.first(x))


class Scanned(nn.Module):
    """Three layers in one, each leaf with an axis of layers."""

    @nn.compact
    def __call__(self, x):
        layers = nn.scan(
            lambda module, x, _: (nn.Dense(3, name="dense")(x), None),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=3,
        )
        return layers(self, x, None)[0]


def test_parameters_are_initialised_abstractly_in_order_of_creation():
    port = made(Deep())
    names = [f"Dense_{index}/{name}" for index in range(12) for name in ("kernel", "bias")]
    norm = [f"BatchNorm_0/{name}" for name in ("scale", "bias", "mean", "var")]
    assert list(port.leaves) == [*names, *norm]
    assert (port.kind, port.given) == ("linen", False)
    abstract = {p for p, leaf in port.leaves.items() if isinstance(leaf, jax.ShapeDtypeStruct)}
    assert abstract == {*names, *norm[:2]}
    np.testing.assert_array_equal(port.leaves["BatchNorm_0/var"], np.ones(3))


@pytest.mark.parametrize("freeze", [dict, FrozenDict])
def test_the_outputs_are_those_of_apply(freeze):
    variables = init(Deep())
    port = made(Deep(), freeze(variables))
    outputs, changed = port.call(port.leaves, X)
    np.testing.assert_array_equal(outputs, Deep().apply(variables, X, train=False))
    assert (port.given, changed, port.told) == (True, {}, ("train=False",))
    assert list(port.leaves) == list(made(Deep()).leaves)


def test_parameters_alone_get_the_other_collections():
    variables = init(Deep())
    port = made(Deep(), variables["params"])
    np.testing.assert_array_equal(port.leaves["BatchNorm_0/mean"], np.zeros(3))
    outputs, _ = port.call(port.leaves, X)
    np.testing.assert_array_equal(outputs, Deep().apply(variables, X, train=False))


def test_training_returns_the_statistics_that_it_changed():
    variables = init(Deep())
    port = made(Deep(), variables, training=True)
    key = jax.random.key(0)
    outputs, changed = port.call(port.leaves, X)
    expected, updated = Deep().apply(
        variables, X, train=True, rngs={"dropout": key}, mutable=["batch_stats"]
    )
    np.testing.assert_array_equal(outputs, expected)
    assert set(changed) == {"BatchNorm_0/mean", "BatchNorm_0/var"}
    for name in ("mean", "var"):
        theirs = updated["batch_stats"]["BatchNorm_0"][name]
        np.testing.assert_array_equal(changed[f"BatchNorm_0/{name}"], theirs)
    assert port.told == ("train=True", "dropout key 0")
    np.testing.assert_array_equal(port.call(port.leaves, X)[0], outputs)


def test_a_mode_that_is_a_field_is_left_alone():
    module = nn.Dropout(0.5, deterministic=True)
    port = made(module, training=True)
    assert port.told == ("dropout key 0",)
    np.testing.assert_array_equal(port.call({}, X)[0], X)


def test_a_mode_that_is_a_field_of_none_is_given_in_the_call():
    port = made(nn.Dropout(0.5))
    assert port.told == ("deterministic=True",)
    np.testing.assert_array_equal(port.call({}, X)[0], X)


@pytest.mark.parametrize("training", [False, True])
def test_a_module_that_drops_where_it_has_a_key_has_one_in_training(training):
    class Keyed(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dropout(0.5, deterministic=not self.has_rng("dropout"))(x)

    outputs, _ = made(Keyed(), training=training).call({}, X)
    assert np.array_equal(outputs, X) is not training


def test_a_module_that_draws_in_every_mode_is_given_a_key():
    outputs, _ = made(nn.Dropout(0.5, deterministic=False)).call({}, X)
    assert (outputs == 0).any()


def test_a_mode_that_the_caller_gave_is_left_alone():
    port = made(Deep(rate=0.0), named={"train": True}, training=False)
    assert port.told == ()


def test_nested_modules_that_are_set_up_are_in_order_of_their_calls():
    variables = init(Nested())
    port = made(Nested(), variables)
    layers = ("first/layers_0", "first/layers_2", "second")
    assert list(port.leaves) == [f"{layer}/{n}" for layer in layers for n in ("kernel", "bias")]
    np.testing.assert_array_equal(port.call(port.leaves, X)[0], Nested().apply(variables, X))


def test_leaves_that_a_scan_stacks_have_its_axis():
    variables = init(Scanned())
    port = made(Scanned(), variables)
    assert {p: leaf.shape for p, leaf in port.leaves.items()} == {
        "dense/kernel": (3, 3, 3),
        "dense/bias": (3, 3),
    }
    np.testing.assert_array_equal(port.call(port.leaves, X)[0], Scanned().apply(variables, X))


def test_boxed_parameters_take_plain_arrays():
    init_fn = nn.with_partitioning(nn.initializers.ones, ("in", "out"))
    module = nn.Dense(2, kernel_init=init_fn)
    port = made(module)
    assert port.leaves["kernel"].shape == (3, 2)
    leaves = {"kernel": jnp.full((3, 2), 2.0), "bias": jnp.zeros(2)}
    np.testing.assert_allclose(port.call(leaves, X)[0], 2 * X @ np.ones((3, 2)), rtol=1e-6)
    assert made(module, init(module)).leaves["kernel"].shape == (3, 2)


def test_bfloat16_and_float64_stay():
    half = nn.Dense(2, param_dtype=jnp.bfloat16, dtype=jnp.bfloat16)
    port = made(half, init(half))
    assert port.leaves["kernel"].dtype == jnp.bfloat16
    assert port.call(port.leaves, X)[0].dtype == jnp.bfloat16
    with jax.enable_x64(True):
        double = nn.Dense(2, param_dtype=jnp.float64)
        port = made(double, places=(X.astype(np.float64),))
        assert port.leaves["kernel"].dtype == np.float64
        leaves = {"kernel": np.ones((3, 2)), "bias": np.full(2, 1e-12)}
        outputs, _ = port.call(leaves, X.astype(np.float64))
        assert outputs.dtype == np.float64


def test_constants_come_from_the_module_and_are_leaves_but_counters_are_not():
    class Table(nn.Module):
        @nn.compact
        def __call__(self, x):
            table = self.variable("constants", "table", jnp.arange, 3.0)
            self.variable("constants", "count", jnp.zeros, (), jnp.int32)
            return x + self.param("shift", nn.initializers.ones, (1, 1)) + table.value[None]

    port = made(Table(), {"shift": np.zeros((1, 1), np.float32)})
    assert list(port.leaves) == ["shift", "table"]
    np.testing.assert_array_equal(
        port.call(port.leaves, X)[0], X + np.arange(3, dtype=np.float32)[None]
    )


def test_a_module_without_variables_is_a_port():
    port = made(nn.Dropout(0.5), {}, training=False)
    assert (port.leaves, port.given) == ({}, True)


def test_the_call_can_be_jitted_and_differentiated_with_jit_inside():
    class Inner(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.jit(nn.Dense)(2)(jax.jit(jnp.tanh)(x))

    variables = init(Inner())
    port = made(Inner(), variables)

    def loss(leaves):
        return port.call(leaves, X)[0].sum()

    with jax.checking_leaks():
        gradients = jax.jit(jax.grad(loss))(port.leaves)
    expected = jax.grad(lambda v: Inner().apply(v, X).sum())(variables)["params"]
    for (path, ours), theirs in zip(
        sorted(gradients.items()), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, err_msg=path)


def test_running_statistics_are_returned_under_jit():
    port = made(Deep(), init(Deep()), training=True)
    _, changed = jax.jit(port.call)(port.leaves, X)
    assert set(changed) == {"BatchNorm_0/mean", "BatchNorm_0/var"}


def test_parameters_that_do_not_fit_are_refused_by_their_paths():
    params = init(Nested())["params"]
    params["third"] = params.pop("second")
    with pytest.raises(ValueError, match="`params` lacks `second/kernel`, `second/bias` and has"):
        made(Nested(), params)


def test_parameters_that_are_no_dict_are_refused():
    with pytest.raises(TypeError, match=r"`params` must be the variables of linen .*, got list"):
        made(Nested(), [1])


def test_inputs_that_the_module_can_not_take_are_refused():
    with pytest.raises(ValueError, match=r"`module.init\(key, float32\[4, 3\], float32\[4, 3\]\)`"):
        made(Nested(), places=(X, X))
    port = made(Nested(), init(Nested()))
    with pytest.raises(ValueError, match=r"`module.apply\(variables, float32\[2, 5\]\)` raised Sc"):
        port.call(port.leaves, np.ones((2, 5), np.float32))
