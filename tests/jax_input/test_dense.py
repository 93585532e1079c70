"""The linear layer: its values, its sums, and what it refuses."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_input.dense import dense, require_names, require_vectors
from tests.jax_input.encoder_float64 import FLOATS, dense_bound, draw
from tests.jax_input.encoder_float64 import dense as by_formula

# The axes of x, of the kernel, and how many are contracted.
SHAPES = [
    ((2, 5, 24), (24, 7), 1),
    ((2, 5, 24), (24, 3, 4), 1),
    ((2, 5, 3, 8), (3, 8, 7), 2),
    ((24,), (24, 7), 1),
]


def drawn(shapes, dtype=np.float32, bias=True):
    of_x, of_kernel, axes = shapes
    params = {"kernel": draw(of_kernel, dtype, seed=1)}
    if bias:
        params["bias"] = draw(of_kernel[axes:], dtype, seed=2)
    return draw(of_x, dtype), params, axes


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shapes", SHAPES)
def test_values_are_those_of_the_formula_rounded_once(shapes, dtype, bias):
    x, params, axes = drawn(shapes, dtype, bias)
    y = dense(x, params, axes)
    assert y.dtype == dtype
    expected = by_formula(x, params, axes)
    assert y.shape == expected.shape
    assert (np.abs(np.asarray(y, np.float64) - expected) <= dense_bound(x, params, axes)).all()


def test_float64_is_summed_in_float64():
    with jax.enable_x64(True):
        x, params, axes = drawn(SHAPES[0], np.float64)
        y = dense(x, params, axes)
        assert y.dtype == np.float64
    # Twice the bound, since the formula is rounded as well.
    difference = np.abs(np.asarray(y) - by_formula(x, params, axes))
    assert (difference <= 2 * dense_bound(x, params, axes)).all()


def test_the_kernel_is_cast_to_the_dtype_of_x_and_the_bias_added_before_it_is_rounded():
    x, params, axes = drawn(SHAPES[0])
    x = x.astype(jnp.bfloat16)
    narrow = {"kernel": params["kernel"].astype(jnp.bfloat16)}
    np.testing.assert_array_equal(
        dense(x, {"kernel": params["kernel"]}, axes), dense(x, narrow, axes)
    )
    # Rounded to bfloat16 before, the bias would be 1.
    params = {"kernel": np.full((1, 1), -1, np.float32), "bias": np.full(1, 1 + 2**-9, np.float32)}
    assert dense(jnp.ones((1, 1), jnp.bfloat16), params).tolist() == [[2**-9]]


def test_a_bias_of_none_is_no_bias():
    x, params, _ = drawn(SHAPES[0])
    np.testing.assert_array_equal(
        dense(x, {**params, "bias": None}), dense(x, {"kernel": params["kernel"]})
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_of_4096_ones_are_4096(dtype):
    """Summed in 16 bits, bfloat16 would stop at 256 and float16 at 2,048."""
    ones = jnp.ones((1, 4_096), dtype)
    assert float(dense(ones, {"kernel": ones.T})[0, 0]) == 4_096
    tokens = jnp.ones((8, 512, 4), dtype)
    params = {"kernel": jnp.ones((4, 3), dtype), "bias": jnp.zeros(3, dtype)}
    gradient = jax.grad(lambda params: dense(tokens, params).astype(np.float32).sum())(params)
    assert {leaf.dtype for leaf in gradient.values()} == {np.dtype(dtype)}
    assert gradient["bias"].tolist() == [4_096] * 3
    assert gradient["kernel"].tolist() == [[4_096] * 3] * 4


def test_the_precision_reaches_the_product_and_its_gradients():
    x, params, _ = drawn(SHAPES[0])

    def loss(x, params):
        return dense(x, params, matmul_precision="highest").sum()

    text = str(jax.make_jaxpr(jax.grad(loss, argnums=(0, 1)))(x, params))
    products = text.count("dot_general[")
    assert products >= 3
    assert text.count("precision=(Precision.HIGHEST, Precision.HIGHEST)") == products


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"bias": np.ones(2)}, "`the` lacks 'kernel'; it must hold kernel, bias (optional)."),
        (
            {"kernel": np.ones((3, 2)), "weight": 1},
            "`the` has 'weight'; it must hold kernel, bias (optional).",
        ),
        (
            {"weight": np.ones((3, 2))},
            "`the` lacks 'kernel' and has 'weight'; it must hold kernel, bias (optional).",
        ),
        (
            {"kernel": np.ones((2, 3), np.float32)},
            "`the['kernel']` has shape [2, 3], but must begin with the last axis of what it "
            "multiplies, [3], and end with its outputs. "
            "A PyTorch weight is [out, in]: transpose it.",
        ),
        ({"kernel": np.ones(3, np.float32)}, "[3], and end with its outputs. A PyTorch weight is"),
        (
            {"kernel": np.ones((3, 2), np.float32), "bias": np.ones(3, np.float32)},
            "`the['bias']` must have the shape of the kernel's outputs, [2], got [3].",
        ),
    ],
)
def test_parameters_that_do_not_fit_are_refused(params, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        dense(jnp.ones((1, 3)), params, name="the")


def test_two_contracted_axes_are_named():
    message = "begin with the last 2 axes of what it multiplies, [2, 3], and"
    with pytest.raises(ValueError, match=re.escape(message)):
        dense(jnp.ones((1, 2, 3)), {"kernel": jnp.ones((3, 2, 4))}, 2)


def test_what_are_no_floats_and_no_parameters_is_refused():
    with pytest.raises(TypeError, match=r"`params\['kernel'\]` must hold float32, .*, got int32"):
        dense(jnp.ones((1, 3)), {"kernel": np.ones((3, 2), np.int32)})
    with pytest.raises(TypeError, match=r"`params\['bias'\]` must hold float32, .*, got bool"):
        dense(jnp.ones((1, 3)), {"kernel": jnp.ones((3, 2)), "bias": np.ones(2, bool)})
    with pytest.raises(TypeError, match="`params` must be a dict of parameters, got list"):
        require_names("params", [1], ("kernel",))


def test_vectors_have_three_axes_and_the_width_asked_for():
    assert require_vectors(np.ones((1, 2, 3), np.float16), 3).dtype == np.float16
    message = "`x` must have shape [batch, seq_len, d_model], got [2, 3]."
    with pytest.raises(ValueError, match=re.escape(message)):
        require_vectors(jnp.ones((2, 3)))
    message = "`x` must have shape [batch, seq_len, d_model 4], got [1, 2, 3]."
    with pytest.raises(ValueError, match=re.escape(message)):
        require_vectors(jnp.ones((1, 2, 3)), 4)
    with pytest.raises(TypeError, match=r"`x` must hold float32, .*, got int32"):
        require_vectors(np.ones((1, 2, 3), np.int32))
