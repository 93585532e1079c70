"""The feed-forward network: its values, its dropout, and what it refuses."""

import jax
import numpy as np
import pytest

from jax_input.ffn import feed_forward
from jax_input.inputs import dropout
from tests.jax_input import encoder_float64 as exact
from tests.jax_input.encoder_float64 import FLOATS, accumulation, draw, half_ulp, wide

X = draw((2, 5, 12))


def feed_forward_params(bias=True, dtype=np.float32):
    params = {
        "in": {"kernel": draw((12, 20), dtype, 1), "bias": draw((20,), dtype, 2)},
        "out": {"kernel": draw((20, 12), dtype, 3), "bias": draw((12,), dtype, 4)},
    }
    return params if bias else {name: {"kernel": p["kernel"]} for name, p in params.items()}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_feed_forward_network_is_its_formula(dtype, activation, bias):
    x, params = draw((2, 5, 12), dtype), feed_forward_params(bias, dtype)
    y = feed_forward(x, params, activation=activation)
    assert y.dtype == dtype
    before = exact.dense(x, params["in"])
    hidden = exact.activate(before, activation)
    # No slope is above 1.13; erf and tanh are within 8 ulp of 1, times what they are multiplied by.
    unit, half = accumulation(dtype), half_ulp(dtype)
    off = 1.13 * exact.dense_bound(x, params["in"]) + 8 * unit * np.abs(before)
    off += half * (np.abs(hidden) + off)
    kernel = {"kernel": np.abs(wide(params["out"]["kernel"]))}
    bound = exact.dense(off, kernel) * (1 + half)
    bound += exact.dense_bound(hidden.astype(dtype), params["out"]) * (1 + 2 * half)
    assert (np.abs(wide(y) - exact.dense(hidden, params["out"])) <= bound).all()


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        ("relu", [1, 0, 2.2]),
        ("gelu", [0.841344746, -0.158655254, 2.169412374]),
        ("gelu_tanh", [0.841192007, -0.158807993, 2.169678450]),
    ],
)
def test_known_values_by_activation(activation, expected):
    unit = {"kernel": np.eye(3, dtype=np.float32)}
    x = np.array([1, -1, 2.2], np.float32)
    y = feed_forward(x, {"in": unit, "out": unit}, activation=activation)
    np.testing.assert_allclose(y, expected, rtol=0, atol=4 * 2.2 * 2**-23)


def test_hidden_elements_are_dropped_after_the_activation():
    params, key = feed_forward_params(), jax.random.key(0)
    y = feed_forward(X, params, activation="gelu", dropout_rate=0.5, dropout_key=key)
    unit = {"kernel": np.eye(20, dtype=np.float32)}
    hidden = feed_forward(X, {"in": params["in"], "out": unit}, activation="gelu")
    kept = dropout(hidden, 0.5, key=key)
    assert 0.3 < np.mean(np.asarray(kept) == 0) < 0.7
    expected = exact.dense(kept, params["out"])
    bound = 2 * exact.dense_bound(np.asarray(kept), params["out"])
    assert (np.abs(y - expected) <= bound).all()
    np.testing.assert_array_equal(
        feed_forward(X, params, dropout_rate=0.5), feed_forward(X, params)
    )


def test_what_the_feed_forward_network_refuses():
    params = feed_forward_params()
    with pytest.raises(ValueError, match='`activation` must be "relu" or "gelu" or "gelu_tanh", g'):
        feed_forward(X, params, activation="silu")
    with pytest.raises(ValueError, match="`params` lacks 'out'; it must hold in, out"):
        feed_forward(X, {"in": params["in"]})
    with pytest.raises(ValueError, match=r"`params\['in'\]\['kernel'\]` has shape \[20, 12\]"):
        feed_forward(X, {"in": {"kernel": params["out"]["kernel"]}, "out": params["out"]})
    with pytest.raises(ValueError, match=r"`dropout_rate` must be from 0 to 1"):
        feed_forward(X, params, dropout_rate=-1)
