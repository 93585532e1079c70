"""Normalised vectors: by their formula in float64, at known values, and what is refused."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_input.normalization import layer_norm
from tests.jax_input import encoder_float64 as exact
from tests.jax_input.encoder_float64 import FLOATS, accumulation, draw, half_ulp, wide

NORM = {"scale": draw((24,), seed=1), "bias": draw((24,), seed=2)}
ONES = {"scale": np.ones(4, np.float32), "bias": np.zeros(4, np.float32)}
X = draw((2, 5, 12))


def norm_bound(x, params):
    """Return how far off a normalised vector may be.

    The mean is off by its sum, what is left of a mean by that and a rounding; the variance by its
    own sum and twice what each term is off; and the root of it by half as much and 4 ulp.
    """
    unit, x = accumulation(x.dtype), wide(x)
    size, bare = x.shape[-1], {"scale": np.ones(x.shape[-1])}
    centred = x - x.mean(axis=-1, keepdims=True)
    off = (size + 1) * unit * np.abs(x).mean(axis=-1, keepdims=True) + unit * np.abs(centred)
    variance = (centred**2).mean(axis=-1, keepdims=True) + 1e-5
    of_variance = (size + 2) * unit + 2 * off.max(axis=-1, keepdims=True) / np.sqrt(variance)
    y = np.abs(exact.layer_norm(x, bare))
    relative = of_variance / 2 + 8 * unit
    scale, bias = np.abs(wide(params["scale"])), np.abs(wide(params.get("bias", 0)))
    return (off / np.sqrt(variance) + y * relative) * scale + (y * scale + bias) * 2 * unit


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mean", [0, 1_000])
@pytest.mark.parametrize("params", [NORM, {"scale": NORM["scale"]}])
def test_normalised_vectors_are_those_of_the_formula(params, mean, dtype):
    x = (draw((3, 4, 24)) + mean).astype(dtype)
    y = layer_norm(x, params)
    assert y.dtype == dtype
    expected = exact.layer_norm(x, params)
    bound = norm_bound(x, params)
    bound += half_ulp(dtype) * (np.abs(expected) + bound)
    assert (np.abs(wide(y) - expected) <= bound).all()


def test_the_annotated_form_has_d_model_minus_1_and_eps_beside_the_deviation():
    with jax.enable_x64(True):
        x = draw((3, 24), np.float64)
        for eps in (1e-6, 0.5):
            y = layer_norm(x, NORM, form="annotated", eps=eps)
            expected = exact.layer_norm(x, NORM, eps, "annotated")
            # Sums of 24 terms, values below 10.
            np.testing.assert_allclose(y, expected, rtol=0, atol=2 * 24 * 10 * 2**-52)


@pytest.mark.parametrize(
    ("eps", "expected"),
    [({}, [0.282843, 0.565685]), ({"eps": 1e-6}, [0.534522, 1.069045])],
)
def test_known_values_by_eps(eps, expected):
    x = np.array([1e-3, -1e-3, 2e-3, -2e-3], np.float32)
    y = layer_norm(x, ONES, **eps)
    signed = [expected[0], -expected[0], expected[1], -expected[1]]
    # Half of the last digit given, and the roundings.
    np.testing.assert_allclose(y, signed, rtol=0, atol=5e-7 + 1e-6)


@pytest.mark.parametrize("form", ["standard", "annotated"])
def test_a_constant_vector_gives_the_bias_and_a_finite_gradient(form):
    def loss(x):
        return (layer_norm(x, NORM, form=form) ** 2).sum()

    x = np.full((2, 24), 3, np.float32)
    np.testing.assert_array_equal(
        layer_norm(x, NORM, form=form), np.broadcast_to(NORM["bias"], (2, 24))
    )
    assert np.isfinite(jax.grad(loss)(x)).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_gradient_of_the_bias_over_4096_ones_is_4096(dtype):
    params = {"scale": jnp.ones(4, dtype), "bias": jnp.zeros(4, dtype)}
    x = jnp.asarray(draw((8, 512, 4), dtype))
    gradient = jax.grad(lambda p: layer_norm(x, p).astype(np.float32).sum())(params)
    assert gradient["bias"].tolist() == [4_096] * 4
    assert gradient["bias"].dtype == dtype


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: layer_norm(X, NORM), ValueError, "the last axis of `x`, [12], got [24]."),
        (lambda: layer_norm(X, {"scale": None}), TypeError, "`params['scale']` must be an array"),
        (lambda: layer_norm(X, {}), ValueError, "`params` lacks 'scale'; it must hold scale, bias"),
        (lambda: layer_norm(X, NORM, form="x"), ValueError, '"standard" or "annotated", got \'x\''),
        (
            lambda: layer_norm(X, NORM, eps=0),
            ValueError,
            "`eps` must be above 0 and below 1, got 0.",
        ),
        (
            lambda: layer_norm(X, NORM, eps="1"),
            TypeError,
            "`eps` must be a Python number above 0, ",
        ),
        (lambda: layer_norm(X[..., :0], NORM), ValueError, "must have one element at least along"),
        (lambda: layer_norm(np.float32(1), NORM), ValueError, "its last axis, got []."),
        (
            lambda: layer_norm(X[..., :1], NORM, form="annotated"),
            ValueError,
            "`x` must have two elements at least along its last axis, got [2, 5, 1].",
        ),
        (lambda: layer_norm([1, 2], NORM), TypeError, "`x` must hold float32, bfloat16"),
    ],
)
def test_what_cannot_be_normalised_is_refused(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()
