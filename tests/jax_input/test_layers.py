"""A layer: its formula in float64, its parts, where it drops, and blocks of its vectors."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from jax_input.attention import multi_head_attention
from jax_input.config import EncoderConfig
from jax_input.ffn import feed_forward
from jax_input.initial import encoder_params
from jax_input.inputs import dropout
from jax_input.layers import encoder_layer
from jax_input.masks import causal_mask, padding_mask
from jax_input.normalization import layer_norm
from tests.jax_input import encoder_float64 as exact
from tests.jax_input.encoder_float64 import draw

CONFIG = EncoderConfig(num_layers=1, d_model=12, num_heads=3, d_ff=20, dropout_rate=0.25)
X = draw((2, 5, 12))
MASK = padding_mask(np.arange(5) < [[5], [3]]) & causal_mask(5)


def layer_params(config=CONFIG):
    """Return parameters none of which is 0 or 1."""
    params = jax.tree.map(lambda leaf: leaf[0], encoder_params(jax.random.key(0), config)["layers"])
    return jax.tree.map(lambda leaf: leaf + draw(leaf.shape).astype(leaf.dtype) / 8, params)


def by_parts(x, params, config, keys, mask=None):
    """Return the layer made of its functions, with the key of each of the four places."""
    steps = {
        "attention": lambda x, key: multi_head_attention(
            x, params["attention"], mask=mask, dropout_rate=config.dropout_rate, dropout_key=key
        ),
        "feed_forward": lambda x, key: feed_forward(
            x,
            params["feed_forward"],
            activation=config.activation,
            dropout_rate=config.dropout_rate,
            dropout_key=key,
        ),
    }
    for index, (name, step) in enumerate(steps.items()):
        norm = params[f"{name}_norm"]
        y = layer_norm(x, norm, eps=config.eps) if config.norm == "pre" else x
        x = x + dropout(step(y, keys[2 * index]), config.dropout_rate, key=keys[2 * index + 1])
        x = layer_norm(x, norm, eps=config.eps) if config.norm == "post" else x
    return x


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_entries_are_dropped_in_four_places_each_by_a_key_of_its_own(norm):
    config, params, key = replace(CONFIG, norm=norm, eps=1e-3), layer_params(), jax.random.key(1)
    keys = jax.random.split(key, 4)
    y = encoder_layer(X, params, config, mask=MASK, dropout_key=key)
    np.testing.assert_array_equal(y, by_parts(X, params, config, keys, MASK))
    for place in range(4):  # every place counts
        others = [None if index == place else each for index, each in enumerate(keys)]
        assert (y != by_parts(X, params, config, others, MASK)).any()
    for options in ({}, {"dropout_key": None}):
        plain = encoder_layer(X, params, config, mask=MASK, **options)
        np.testing.assert_array_equal(plain, by_parts(X, params, config, [None] * 4, MASK))


@pytest.mark.slow
@pytest.mark.parametrize("norm_form", ["standard", "annotated"])
@pytest.mark.parametrize(("norm", "activation"), [("post", "gelu"), ("pre", "relu")])
def test_the_layer_is_its_formula_in_float64(norm, activation, norm_form):
    with jax.enable_x64(True):
        config = replace(CONFIG, norm=norm, activation=activation, norm_form=norm_form, eps=1e-3)
        config = replace(config, param_dtype=np.float64)
        params, x = layer_params(config), draw((2, 5, 12), np.float64)
        y = encoder_layer(x, params, config, mask=MASK)
    expected = exact.encoder_layer(x, params, config, MASK)
    # Six sums of at most 20 terms one after the other; numbers stay below 100.
    np.testing.assert_allclose(y, expected, rtol=0, atol=6 * 20 * 100 * 2**-52)


@pytest.mark.parametrize("shape", [(1, 1_201, 12), (0, 5, 12)])
def test_padded_blocks_give_the_same_steps_and_the_same_gradients(shape):
    """1,201 vectors are three blocks, and two vectors more, which are to count for nothing."""
    x, params, cotangent = draw(shape), layer_params(), draw(shape, seed=1)

    @partial(jax.jit, static_argnums=2)
    def results(params, x, remat):
        config, key = replace(CONFIG, remat=remat), jax.random.key(0, impl="rbg")

        def loss(params, x):
            y, taps = encoder_layer(x, params, config, dropout_key=key, return_taps=True)
            return (y * cotangent).sum(), (y, taps)

        return jax.grad(loss, has_aux=True)(params, x)

    (slopes, same), (expected_slopes, expected) = (results(params, x, r) for r in ("full", None))
    jax.tree.map(np.testing.assert_array_equal, same, expected)
    # Sums of so many terms in another order; one vector more or less is a thousand times that.
    bound = shape[1] * np.finfo(np.float32).eps * 8
    jax.tree.map(partial(np.testing.assert_allclose, rtol=0, atol=bound), slopes, expected_slopes)
