"""What a layer and the encoder show of their steps, and what a layer refuses."""

import re
from dataclasses import replace

import jax
import numpy as np
import pytest

from jax_input.attention import multi_head_attention
from jax_input.ffn import feed_forward
from jax_input.layers import encoder_layer
from jax_input.normalization import layer_norm
from tests.jax_input.test_layers import CONFIG, MASK, X, layer_params

pytestmark = pytest.mark.usefixtures("programs_run_once")

POST = [
    *("attention", "attention_sum", "attention_norm"),
    *("feed_forward_hidden", "feed_forward", "feed_forward_sum", "feed_forward_norm"),
]
PRE = [
    *("attention_norm", "attention", "attention_sum"),
    *("feed_forward_norm", "feed_forward_hidden", "feed_forward", "feed_forward_sum"),
]


@pytest.mark.parametrize(("norm", "order"), [("post", POST), ("pre", PRE)])
def test_taps_come_in_the_order_of_the_steps_and_hold_them(norm, order):
    config, params = replace(CONFIG, norm=norm), layer_params()
    y, taps = encoder_layer(X, params, config, mask=MASK, return_taps=True)
    assert list(taps) == order
    np.testing.assert_array_equal(y, encoder_layer(X, params, config, mask=MASK))
    np.testing.assert_array_equal(y, taps[order[-1]])

    given = taps["attention_norm"] if norm == "pre" else X
    attended = multi_head_attention(given, params["attention"], mask=MASK)
    np.testing.assert_array_equal(taps["attention"], attended)
    np.testing.assert_array_equal(taps["attention_sum"], X + attended)
    given = X if norm == "pre" else taps["attention_sum"]
    normal = layer_norm(given, params["attention_norm"])
    np.testing.assert_array_equal(taps["attention_norm"], normal)
    residual = taps["attention_sum"] if norm == "pre" else normal
    given = taps["feed_forward_norm"] if norm == "pre" else residual
    forward = feed_forward(given, params["feed_forward"])
    np.testing.assert_array_equal(taps["feed_forward"], forward)
    np.testing.assert_array_equal(taps["feed_forward_sum"], residual + forward)
    hidden = taps["feed_forward_hidden"]
    assert hidden.shape == (2, 5, 20)
    unit = {"kernel": np.eye(20, dtype=np.float32)}
    shown = feed_forward(given, {"in": params["feed_forward"]["in"], "out": unit})
    np.testing.assert_array_equal(hidden, shown)


def test_weights_are_a_tap_before_what_is_made_of_them():
    _, taps = encoder_layer(X, layer_params(), CONFIG, mask=MASK, return_weights=True)
    assert list(taps) == ["attention_weights", *POST]
    assert taps["attention_weights"].shape == (2, 3, 5, 5)
    _, weights = multi_head_attention(
        X, layer_params()["attention"], mask=MASK, return_weights=True
    )
    np.testing.assert_array_equal(taps["attention_weights"], weights)


def test_taps_of_sublayers_are_those_before_their_dropout_and_sums_after_it():
    key = jax.random.key(0)
    _, taps = encoder_layer(X, layer_params(), CONFIG, dropout_key=key, return_taps=True)
    for name, residual in (("attention", X), ("feed_forward", taps["attention_norm"])):
        assert (taps[name] != 0).all()
        assert 0.05 < np.mean(np.asarray(taps[f"{name}_sum"] == residual)) < 0.5


def test_the_result_has_the_dtype_of_x():
    for dtype in (np.float16, np.float32):
        y, taps = encoder_layer(X.astype(dtype), layer_params(), CONFIG, return_taps=True)
        assert {y.dtype, *(tap.dtype for tap in taps.values())} == {np.dtype(dtype)}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"other": {}}, ValueError, "`params` has 'other'; it must hold attention, attention_norm"),
        ({"attention": {}}, ValueError, "`params['attention']` lacks 'query' and lacks 'key' and"),
        ({"feed_forward_norm": {}}, ValueError, "`params['feed_forward_norm']` lacks 'scale'"),
        (
            {"attention": 3},
            TypeError,
            "`params['attention']` must be a dict of parameters, got int",
        ),
    ],
)
def test_parameters_that_do_not_fit_are_refused(change, error, message):
    with pytest.raises(error, match=re.escape(message)):
        encoder_layer(X, layer_params() | change, CONFIG)


def test_another_number_of_heads_and_a_missing_kernel_are_refused():
    params = layer_params()
    message = (
        "`params['attention']['query']['kernel']` must have shape [12, 6, 2] (d_model, num_heads, "
        "head_dim of `config`), got [12, 3, 4]."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        encoder_layer(X, params, replace(CONFIG, num_heads=6))
    params["attention"]["query"] = {}
    with pytest.raises(
        ValueError, match=re.escape("`params['attention']['query']` lacks 'kernel'")
    ):
        encoder_layer(X, params, CONFIG)


def test_another_size_of_the_hidden_layer_is_refused():
    message = (
        "`params['feed_forward']['in']['kernel']` must have shape [12, 24] (d_model, d_ff of "
        "`config`), got [12, 20]."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        encoder_layer(X, layer_params(), replace(CONFIG, d_ff=24))


@pytest.mark.parametrize(("part", "sizes"), [("attention", (3, 4)), ("feed_forward", (20,))])
def test_a_width_of_one_that_would_be_broadcast_is_refused(part, sizes):
    params = layer_params()
    params[part]["out"] = {"kernel": np.ones((*sizes, 1), np.float32)}
    message = f"`params['{part}']['out']['kernel']` must have shape {[*sizes, 12]}"
    with pytest.raises(ValueError, match=re.escape(message)):
        encoder_layer(X, params, CONFIG)


def test_x_keys_and_flags_are_checked():
    params = layer_params()
    message = "`x` must have shape [batch, seq_len, d_model 12], got [2, 5, 11]."
    with pytest.raises(ValueError, match=re.escape(message)):
        encoder_layer(X[..., 1:], params, CONFIG)
    with pytest.raises(TypeError, match=r"`key` \(`dropout_key`\) must be one key"):
        encoder_layer(X, params, CONFIG, dropout_key=3)
    for flag in ("return_taps", "return_weights"):
        with pytest.raises(TypeError, match=f"`{flag}` must be True or False"):
            encoder_layer(X, params, CONFIG, **{flag: 1})
