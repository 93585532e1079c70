"""Multi-head attention: linear layers around attention, and the attention it is given."""

import re

import jax
import numpy as np
import pytest

from jax_input.attention import dot_product_attention, multi_head_attention
from jax_input.dense import dense
from jax_input.masks import causal_mask
from tests.jax_input import encoder_float64 as exact
from tests.jax_input.encoder_float64 import draw

MASK = np.random.default_rng(9).random((2, 3, 5, 5)) < 0.6


@pytest.mark.parametrize("bias", [True, False])
def test_multi_head_attention_is_four_linear_layers_around_attention(bias):
    x, params = draw((2, 5, 12)), parameters(bias)
    mask = MASK
    y, weights = multi_head_attention(x, params, mask=mask, return_weights=True)
    projected = (dense(x, params[name]) for name in ("query", "key", "value"))
    heads, expected_weights = dot_product_attention(*projected, mask=mask, return_weights=True)
    np.testing.assert_array_equal(y, dense(heads, params["out"], 2))
    np.testing.assert_array_equal(weights, expected_weights)


def parameters(bias=True, dtype=np.float32):
    shapes = dict.fromkeys(("query", "key", "value"), (12, 3, 4)) | {"out": (3, 4, 12)}
    params = {
        name: {"kernel": draw(shape, dtype, seed=seed)}
        for seed, (name, shape) in enumerate(shapes.items())
    }
    if bias:
        for seed, (name, leaves) in enumerate(params.items()):
            leaves["bias"] = draw((12,) if name == "out" else (3, 4), dtype, seed=seed + 4)
    return params


@pytest.mark.parametrize("bias", [True, False])
def test_multi_head_attention_is_its_formula_in_float64(bias):
    mask = MASK
    with jax.enable_x64(True):
        x, params = draw((2, 5, 12), np.float64), parameters(bias, np.float64)
        y, weights = multi_head_attention(x, params, mask=mask, return_weights=True)
        expected, expected_weights = exact.multi_head_attention(x, params, mask)
    # Exponents of up to 100 or so, each from 16 terms: what is wrong in them is wrong in weights.
    bound = 16 * 100 * 2**-52
    np.testing.assert_allclose(weights, expected_weights, rtol=0, atol=bound)
    np.testing.assert_allclose(y, expected, rtol=0, atol=bound * np.abs(expected).max() * 12)


def test_another_attention_gets_the_options_that_are_used_alone():
    x, params, seen = draw((2, 5, 12)), parameters(), []

    def plain(query, key, value, **options):
        seen.append(options)
        return jax.nn.dot_product_attention(query, key, value)

    y = multi_head_attention(x, params, dropout_rate=0.5, attention_fn=plain)
    mask, key = causal_mask(5), jax.random.key(0)
    options = {"mask": mask, "dropout_key": key, "matmul_precision": "highest"}
    multi_head_attention(x, params, **options, dropout_rate=0.5, attention_fn=plain)
    assert seen == [{}, {**options, "dropout_rate": 0.5}]
    # Both average five values of up to 10 or so.
    ours = multi_head_attention(x, params)
    np.testing.assert_allclose(y, ours, rtol=0, atol=40 * 2**-23 * np.abs(ours).max())


@pytest.mark.parametrize("function", ["dot_product_attention", "multi_head_attention"])
def test_the_precision_reaches_every_product_and_its_gradients(function):
    if function == "dot_product_attention":
        inputs, call = [draw((2, 5, 3, 4))] * 3, dot_product_attention
    else:
        inputs, call = [draw((2, 5, 12)), parameters()], multi_head_attention

    def loss(*given):
        return call(*given, matmul_precision="highest").sum()

    text = str(jax.make_jaxpr(jax.grad(loss, argnums=tuple(range(len(inputs)))))(*inputs))
    assert text.count("dot_general[") > 6
    assert text.count("precision=(Precision.HIGHEST, Precision.HIGHEST)") == text.count(
        "dot_general["
    )


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"query": None},
            TypeError,
            "`params['query']` must be a dict of parameters, got NoneType",
        ),
        ({"other": 1}, ValueError, "`params` has 'other'; it must hold query, key, value, out."),
        ({"key": {}}, ValueError, "`params['key']` lacks 'kernel'; it must hold kernel, bias"),
        (
            {"out": {"kernel": np.ones((4, 3, 12), np.float32)}},
            ValueError,
            "`params['out']['kernel']` has shape [4, 3, 12], but must begin with the last 2 axes "
            "of what it multiplies, [3, 4], and end with its outputs.",
        ),
        (
            {"query": {"kernel": np.ones((12, 4, 3), np.float32)}},
            ValueError,
            "got [2, 5, 4, 3], [2, 5, 3, 4], [2, 5, 3, 4].",
        ),
    ],
)
def test_parameters_that_do_not_fit_are_refused(change, error, message):
    with pytest.raises(error, match=re.escape(message)):
        multi_head_attention(draw((2, 5, 12)), parameters() | change)


def test_missing_parameters_and_other_ranks_of_x_are_refused():
    with pytest.raises(ValueError, match="`params` lacks 'query' and lacks 'key' and lacks 'valu"):
        multi_head_attention(draw((2, 5, 12)), {"out": {}})
    message = "`x` must have shape [batch, seq_len, d_model], got [5, 12]."
    with pytest.raises(ValueError, match=re.escape(message)):
        multi_head_attention(draw((5, 12)), parameters())
    with pytest.raises(TypeError, match=r"`return_weights` must be True or False, .* got int"):
        multi_head_attention(draw((2, 5, 12)), parameters(), return_weights=1)
