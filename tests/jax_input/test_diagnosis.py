from functools import partial
from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_input.attention import dot_product_attention, multi_head_attention
from jax_input.config import EncoderConfig
from jax_input.diagnosis import gradient_report
from jax_input.ffn import feed_forward
from jax_input.initial import encoder_params
from jax_input.masks import padding_mask
from jax_input.normalization import layer_norm
from jax_input.stack import encoder

pytestmark = pytest.mark.usefixtures("programs_run_once")

BATCH, SEQ_LEN, D_MODEL = 3, 12, 16
LENGTHS = np.array([12, 7, 9])
IS_TOKEN = np.arange(SEQ_LEN) < LENGTHS[:, None]


def make_config(num_layers=3, norm="post", **options):
    return EncoderConfig(
        num_layers=num_layers,
        d_model=D_MODEL,
        num_heads=2,
        d_ff=32,
        norm=norm,
        **{"final_norm": norm == "pre", "dropout_rate": 0.0, **options},
    )


def draw(config, scale=1.0):
    params = encoder_params(jax.random.key(0), config)
    x = scale * jax.random.normal(jax.random.key(1), (BATCH, SEQ_LEN, D_MODEL))
    return params, x


def unscaled(query, key, value, *, mask=None, return_weights=False, **options):
    """The published fault: scores as they come, in the dtype of the query."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key)
    hidden = jnp.finfo(scores.dtype).min
    scores = jnp.where(jnp.broadcast_to(mask, scores.shape), scores, hidden)
    weights = jax.nn.softmax(scores, axis=-1)
    y = jnp.einsum("bhqk,bkhd->bqhd", weights, value)
    return (y, weights.astype(jnp.float32)) if return_weights else y


def without_residual(x, params, config, **options):
    """The published fault: layers of sublayers alone."""
    every = []
    for index in range(config.num_layers):
        of_layer = jax.tree.map(itemgetter(index), params["layers"])
        taps = {}
        for name, sublayer in (("attention", multi_head_attention), ("feed_forward", feed_forward)):
            normed = partial(layer_norm, params=of_layer[f"{name}_norm"])
            if config.norm == "pre":
                x = taps[f"{name}_norm"] = normed(x)
            x = taps[name] = taps[f"{name}_sum"] = sublayer(x, of_layer[name])
            if config.norm == "post":
                x = taps[f"{name}_norm"] = normed(x)
        every.append(taps)
    return x, jax.tree.map(lambda *each: jnp.stack(each), *every)


@partial(jax.jit, static_argnames=("config", "attend"))
def differentiate(params, x, key, *, config, attend):
    """The loss on sequences shifted by one, what is inside, and the gradients; compiled once."""

    def loss(params):
        y, taps = encoder(
            x,
            params,
            config,
            mask=padding_mask(IS_TOKEN),
            dropout_key=key,
            attention_fn=attend,
            return_taps=True,
            return_weights=True,
        )
        error = jnp.square(y.astype(jnp.float32) - jnp.roll(x, 1, axis=1))
        return jnp.mean(jnp.where(IS_TOKEN[..., None], error, 0)), taps

    return jax.value_and_grad(loss, has_aux=True)(params)


def look(config, params, x, *, steps=0, optimizer=None, attend=dot_product_attention, key=None):
    """Train, and report on the last step."""
    optimizer = optimizer or optax.adam(1e-3)
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    for _ in range(steps):
        _, gradients = differentiate(params, x, key, config=config, attend=attend)
        updates, state = update(gradients, state, params)
        params = optax.apply_updates(params, updates)
    (loss, taps), gradients = differentiate(params, x, key, config=config, attend=attend)
    updates, _ = update(gradients, state, params)
    mask = padding_mask(IS_TOKEN)
    return gradient_report(params, gradients, updates, taps, mask=mask, loss=loss)


def codes(report):
    return {finding.code for finding in report.findings}


def by_code(report, code):
    (found,) = [finding for finding in report.findings if finding.code == code]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("num_layers", [2, 12])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_nothing_is_found_in_a_healthy_encoder(num_layers, norm, activation):
    config = make_config(num_layers, norm, activation=activation)
    params, x = draw(config)
    for steps, rate in ((0, 1e-3), (40, 1e-2)):
        report = look(config, params, x, steps=steps, optimizer=optax.adam(rate))
        assert report.findings == (), str(report)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"use_bias": False}, {"activation": "gelu"}])
@pytest.mark.parametrize("scale", [0.02, 5.0])
def test_nothing_is_found_on_small_and_large_inputs(options, scale):
    config = make_config(2, "pre", **options)
    assert look(config, *draw(config, scale)).findings == ()


@pytest.mark.slow
def test_nothing_is_found_with_dropout_and_plain_gradient_descent():
    config = make_config(2, dropout_rate=0.3)
    params, x = draw(config)
    options = {"optimizer": optax.sgd(1e-2), "key": jax.random.key(2)}
    assert look(config, params, x, steps=3, **options).findings == ()


def scaled(params, path, factor, layer=slice(None)):
    """Parameters with the leaf at a path multiplied, in one layer or all."""
    first, *rest = path.split(".")
    own = params[first]
    if rest:
        return {**params, first: scaled(own, ".".join(rest), factor, layer)}
    return {**params, first: own.at[layer].multiply(factor)}


@pytest.mark.parametrize("optimizer", [optax.adam(1e-3), optax.sgd(1e-2)])
def test_a_gamma_near_zero_is_named_where_updates_below_it_are_tiny(optimizer):
    config = make_config(2)
    params, x = draw(config)
    params = scaled(params, "layers.feed_forward_norm.scale", 1e-18, 1)
    report = look(config, params, x, optimizer=optimizer)
    found = by_code(report, "update_ratio")
    assert report.findings[0] == found
    assert found.place == "layers[1].feed_forward_norm.scale"
    assert found.value < 1e-6
    assert " and 3 more, below 1e-06" in found.symptom
    assert "gamma) layers[1].feed_forward_norm.scale is 1.0e-18" in found.cause
    assert by_code(report, "layer_norm_scale").place == found.place


def test_tiny_updates_with_sound_gammas_name_the_gamma_of_each_layer_and_the_rate():
    config = make_config(2)
    report = look(config, *draw(config), optimizer=optax.adam(1e-9))
    found = [finding for finding in report.findings if finding.code == "update_ratio"]
    assert {finding.place for finding in found} == {
        f"layers[{layer}].{block}_norm.scale"
        for layer in (0, 1)
        for block in ("attention", "feed_forward")
    }
    assert all("is 1 here" in finding.cause for finding in found)
    assert all("learning rate" in finding.cause for finding in found)


def test_a_learning_rate_of_zero_is_no_fault_of_a_gamma():
    config = make_config(2)
    assert codes(look(config, *draw(config), optimizer=optax.sgd(0.0))) == {"no_update"}


@pytest.mark.slow
def test_scores_without_scale_are_named_where_they_overflow_in_float16():
    config = make_config(3, dtype=jnp.float16)
    params, x = draw(config)
    for name in ("query", "key"):
        params = scaled(
            params, f"layers.attention.{name}.kernel", np.array([50.0, 300, 1]).reshape(3, 1, 1, 1)
        )
    report = look(config, params, x, attend=unscaled)
    found = report.findings[0]
    assert (found.code, found.place) == ("not_finite", "layers[1].attention_weights")
    assert "the loss is nan" in found.symptom
    assert found.cause.startswith("Attention is not scaled by 1 / sqrt(head_dim)")
    assert "finite queries of layers[0] are saturated" in found.cause
    assert "saturated" in codes(report)


def test_nan_without_taps_still_names_what_is_published():
    params = {"w": jnp.ones(3)}
    report = gradient_report(params, params, loss=jnp.nan)
    assert (report.findings[0].place, codes(report)) == ("loss", {"not_finite"})
    assert "attention is not scaled" in report.findings[0].cause
    report = gradient_report(params, {"w": jnp.array([1, jnp.inf, 1])})
    assert report.findings[0].place == "w"
    report = gradient_report({"w": jnp.array([1, jnp.nan, 1])}, params)
    assert report.findings[0].cause == "An earlier step put it there."


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_residual_that_was_removed_is_named(norm):
    config = make_config(2, norm, final_norm=False)
    params, x = draw(config)
    _, taps = without_residual(x, params, config)
    report = gradient_report(params, params, taps=taps)
    found = by_code(report, "residual")
    assert (found.place, found.value) == ("layers[0].attention_sum", 4)
    assert found.cause.startswith("The residual was removed")


def test_outputs_of_zero_are_put_down_to_the_residual():
    config = make_config(2, "pre", final_norm=False)
    params, x = draw(config)
    for leaf in ("kernel", "bias"):
        params = scaled(params, f"layers.feed_forward.out.{leaf}", 0)
    _, taps = without_residual(x, params, config)
    report = gradient_report(params, params, taps=taps)
    assert report.findings[0].code == "zero_output"
    assert report.findings[0].place == "layers[1].feed_forward_sum"
    assert report.findings[0].cause.startswith("The residual was removed")


def test_a_sublayer_that_starts_at_zero_is_no_lost_residual():
    config = make_config(2, "pre")
    params, x = draw(config)
    for block in ("attention", "feed_forward"):
        for leaf in ("kernel", "bias"):
            params = scaled(params, f"layers.{block}.out.{leaf}", 0)
    assert not codes(look(config, params, x)) & {"residual", "zero_output"}


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.float16])
def test_a_lost_residual_is_seen_through_dropout_in_every_dtype(dtype):
    part = np.random.default_rng(0).standard_normal((1, 2, 5, 16)).astype(dtype)
    kept = np.random.default_rng(1).random(part.shape) < 0.7
    whole = np.where(kept, part / dtype(0.7), 0).astype(dtype)
    params = {"w": np.ones(1, np.float32)}
    for residual, expected in ((0, {"residual"}), (1, set())):
        taps = {"attention": part, "attention_sum": whole + dtype(residual)}
        assert codes(gradient_report(params, params, taps=taps)) == expected
