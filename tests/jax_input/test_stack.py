"""The encoder: layers one after the other."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_input.config import EncoderConfig
from jax_input.initial import encoder_params
from jax_input.layers import encoder_layer
from jax_input.mask_conventions import mask_from_key_padding
from jax_input.masks import padding_mask
from jax_input.normalization import layer_norm
from jax_input.stack import encoder
from tests.jax_input import encoder_float64 as exact
from tests.jax_input.encoder_float64 import draw, wide

pytestmark = pytest.mark.usefixtures("programs_run_once")

CONFIG = EncoderConfig(
    num_layers=3, d_model=12, num_heads=3, d_ff=20, final_norm=True, norm="pre", dropout_rate=0.25
)
X = draw((2, 5, 12))
MASK = padding_mask(np.arange(5) < [[5], [3]])
# Of three layers, six sums of at most 20 terms each one after the other; numbers below 100.
IN_FLOAT64 = 3 * 6 * 20 * 100 * 2**-52


def params_of(config=CONFIG):
    """Return parameters none of which is 0 or 1."""
    params = encoder_params(jax.random.key(0), config)
    return jax.tree.map(lambda leaf: leaf + draw(leaf.shape).astype(leaf.dtype) / 8, params)


def layer_of(params, index):
    return jax.tree.map(lambda leaf: leaf[index], params["layers"])


def by_layers(x, params, config, keys=(None,) * 3):
    for index, key in enumerate(keys):
        x = encoder_layer(x, layer_of(params, index), config, mask=MASK, dropout_key=key)
    return layer_norm(x, params["final_norm"], eps=config.eps)


@pytest.mark.slow
def test_the_encoder_is_its_layers_and_its_formula_in_float64():
    with jax.enable_x64(True):
        config = replace(CONFIG, param_dtype=np.float64)
        params, x = params_of(config), draw(X.shape, np.float64)
        key = jax.random.key(1, impl="rbg")  # which compiles five times as fast
        keys = list(jax.random.split(key, 3))

        def both(x, params, key, scan):
            scanned = replace(config, scan=scan)
            plain = encoder(x, params, scanned, mask=MASK)
            return plain, encoder(x, params, scanned, mask=MASK, dropout_key=key)

        call = jax.jit(both, static_argnums=3)
        results = [call(x, params, key, scan) for scan in (True, False)]
        layers = jax.jit(lambda x, params, keys: by_layers(x, params, config, keys))
        expected_dropped = layers(x, params, keys)
        same_key = layers(x, params, keys[:1] * 3)
    expected = x
    for index in range(3):
        expected = exact.encoder_layer(expected, layer_of(params, index), config, MASK)
    expected = exact.layer_norm(expected, params["final_norm"])
    for y, dropped in results:
        np.testing.assert_allclose(y, expected, rtol=0, atol=IN_FLOAT64)
        np.testing.assert_allclose(dropped, expected_dropped, rtol=0, atol=IN_FLOAT64)
    # No two layers share a key.
    assert np.abs(wide(expected_dropped) - wide(same_key)).max() > 0.01


def test_scanned_and_unrolled_layers_have_the_same_gradients():
    params = params_of()
    gradient = jax.jit(
        jax.grad(lambda params, config: (encoder(X, params, config, mask=MASK) ** 2).sum()),
        static_argnums=1,
    )
    slopes, unrolled = (gradient(params, replace(CONFIG, scan=scan)) for scan in (True, False))
    # Sums in another order: of 3 layers, 12 products of at most 20 terms each way.
    scale = 3 * 12 * 20 * np.finfo(np.float32).eps
    for ours, theirs in zip(jax.tree.leaves(unrolled), jax.tree.leaves(slopes), strict=True):
        bound = scale * max(np.abs(theirs).max(), 1)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound)


def test_taps_are_those_of_every_layer_and_the_final_norm():
    params = params_of()
    y, taps = encoder(X, params, CONFIG, mask=MASK, return_weights=True)
    plain = encoder(X, params, CONFIG, mask=MASK, return_taps=True)[1]
    assert set(taps) == {*plain, "attention_weights"}
    assert taps["attention_weights"].shape == (3, 2, 3, 5, 5)
    np.testing.assert_array_equal(taps["final_norm"], y)
    x = X
    for index in range(3):
        _, expected = encoder_layer(
            x, layer_of(params, index), CONFIG, mask=MASK, return_weights=True
        )
        for name, tap in expected.items():
            # Compiled otherwise: sums of at most 20 terms, three one after the other, below 10.
            np.testing.assert_allclose(
                taps[name][index], tap, rtol=0, atol=3 * 20 * 10 * 2**-23, err_msg=name
            )
        x = taps["feed_forward_sum"][index]
    unrolled = encoder(X, params, replace(CONFIG, scan=False), mask=MASK, return_taps=True)[1]
    assert jax.tree.map(jnp.shape, unrolled) == jax.tree.map(jnp.shape, plain)


def test_there_is_no_final_norm_unless_the_config_has_one():
    config = replace(CONFIG, final_norm=False, norm="post", num_layers=1)
    params = encoder_params(jax.random.key(0), config)
    y, taps = encoder(X, params, config, return_taps=True)
    assert "final_norm" not in params | taps
    np.testing.assert_array_equal(y, taps["feed_forward_norm"][0])


def test_the_config_decides_the_dtype():
    params, config = params_of(), replace(CONFIG, dtype=jnp.bfloat16)
    y, taps = encoder(X, params, config, return_taps=True)
    assert {y.dtype, *(tap.dtype for tap in taps.values())} == {np.dtype(jnp.bfloat16)}
    np.testing.assert_array_equal(y, encoder(X.astype(jnp.bfloat16), params, CONFIG))
    assert encoder(X.astype(np.float16), params, CONFIG).dtype == np.float16


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_ids_at_masked_positions_do_not_matter_at_the_others(dtype):
    params, embedding = params_of(), draw((10, 12), dtype)
    ids, other_ids = np.array([[5, 6, 0, 0]]), np.array([[5, 6, 9, 3]])
    call = jax.jit(lambda x, mask: encoder(x, params, CONFIG, mask=mask)[:, :2])
    mask = mask_from_key_padding(ids == 0)
    y = call(embedding[ids], mask)
    np.testing.assert_array_equal(y, call(embedding[other_ids], mask))
    with pytest.warns(UserWarning, match="True = token here"):
        inverted = padding_mask(ids == 0)
    assert np.abs(wide(call(embedding[ids], inverted)) - wide(y)).max() > 0.1


@pytest.mark.parametrize("scan", [True, False])
def test_the_precision_reaches_every_product(scan):
    config = replace(CONFIG, matmul_precision="highest", scan=scan, num_layers=1)
    params = params_of(config)
    loss = jax.grad(lambda params, x: encoder(x, params, config).sum())
    text = str(jax.make_jaxpr(loss)(params, X))
    assert text.count("dot_general[") > 12
    assert text.count("precision=(Precision.HIGHEST, Precision.HIGHEST)") == text.count(
        "dot_general["
    )


@pytest.mark.slow
def test_without_a_rate_or_a_key_nothing_is_dropped():
    config, call = replace(CONFIG, num_layers=1), jax.jit(encoder, static_argnames="config")
    params = params_of(config)
    y = call(X, params, config=config)
    quiet = call(X, params, config=replace(config, dropout_rate=0), dropout_key=jax.random.key(0))
    np.testing.assert_array_equal(quiet, y)
    words, typed = (
        call(X, params, config=config, dropout_key=key)
        for key in (jax.random.PRNGKey(3), jax.random.key(3))
    )
    np.testing.assert_array_equal(words, typed)
    assert (words != y).any()


def test_what_does_not_fit_is_refused():
    params = params_of()
    message = (
        "`params['layers']['attention']['key']['bias']` must have a leading axis of num_layers, 4, "
        "got shape [3, 3, 4]. Stack the layers with"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        encoder(X, params, replace(CONFIG, num_layers=4))
    with pytest.raises(ValueError, match="`params` lacks 'final_norm'; it must hold layers, final"):
        encoder(X, {"layers": params["layers"]}, CONFIG)
    with pytest.raises(ValueError, match="`params` lacks 'attention'"):
        encoder(X, {**params, "layers": {}}, CONFIG)
    with pytest.raises(ValueError, match="`params` has 'final_norm'; it must hold layers"):
        encoder(X, params, replace(CONFIG, final_norm=False))
    with pytest.raises(ValueError, match=re.escape("d_model 12], got [2, 5, 11].")):
        encoder(X[..., 1:], params, CONFIG)
    with pytest.raises(TypeError, match=r"`key` \(`dropout_key`\) must be one key"):
        encoder(X, params, CONFIG, dropout_key=3)
    for flag in ("return_taps", "return_weights"):
        with pytest.raises(TypeError, match=f"`{flag}` must be True or False"):
            encoder(X, params, CONFIG, **{flag: 1})
