from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jax_input.attention import dot_product_attention, multi_head_attention
from jax_input.checkpoints import restore
from jax_input.config import EncoderConfig
from jax_input.initial import encoder_params
from jax_input.inputs import transformer_input
from jax_input.layers import encoder_layer
from jax_input.masks import causal_mask, padding_mask
from jax_input.nnx import Constant, Encoder, EncoderLayer, MultiHeadAttention
from jax_input.sinusoidal import MARIAN, sinusoidal_table
from jax_input.stack import encoder

pytestmark = pytest.mark.usefixtures("programs_run_once")

CONFIG = EncoderConfig(
    num_layers=2, d_model=8, num_heads=2, d_ff=16, norm="pre", final_norm=True, dropout_rate=0.5
)
IDS = jnp.asarray([[5, 3, 1, 7, 0, 0], [2, 2, 9, 4, 6, 0]])
IS_TOKEN = padding_mask(IDS != 0)
X = jax.random.normal(jax.random.key(9), (2, 6, 8))
ON_VECTORS = [MultiHeadAttention, EncoderLayer, Encoder]


def build(seed=0, **options):
    options = {"config": CONFIG, "vocab_size": 10, "max_len": 50, "padding_idx": 0, **options}
    return Encoder(**options, rngs=nnx.Rngs(seed))


def params_of(model):
    return nnx.to_pure_dict(nnx.state(model, nnx.Param))


def one_layer(key, config=CONFIG):
    stacked = encoder_params(key, replace(config, num_layers=1))
    return jax.tree.map(lambda leaf: leaf[0], stacked["layers"])


def doubled(query, key, value, **options):
    result = dot_product_attention(query, key, value, **options)
    return (2 * result[0], result[1]) if options.get("return_weights") else 2 * result


# What the variables hold.


@pytest.mark.parametrize("options", [{}, {"final_norm": False}, {"use_bias": False}])
def test_params_are_those_of_encoder_params_and_the_table_is_a_constant(options):
    config = replace(CONFIG, **options)
    model = build(config=config)
    drawn = encoder_params(jax.random.key(0), config)
    assert jax.tree.map(jnp.shape, params_of(model)) == {
        "embedding": (10, 8),
        **jax.tree.map(jnp.shape, drawn),
    }
    constants = nnx.to_pure_dict(nnx.state(model, Constant))
    assert jax.tree.map(jnp.shape, constants) == {"position_table": (50, 8)}


@pytest.mark.parametrize(
    ("module", "draw"),
    [
        (MultiHeadAttention, lambda key: one_layer(key)["attention"]),
        (EncoderLayer, one_layer),
        (Encoder, lambda key: encoder_params(key, CONFIG)),
    ],
)
def test_the_parameters_are_drawn_by_encoder_params(module, draw):
    model = module(config=CONFIG, rngs=nnx.Rngs(params=3, dropout=4))
    expected = draw(nnx.Rngs(3).params())
    jax.tree.map(np.testing.assert_array_equal, params_of(model), expected)
    assert nnx.to_pure_dict(nnx.state(model, Constant)) == {}


@pytest.mark.parametrize(
    ("dtype", "param_dtype", "expected"),
    [
        (None, jnp.bfloat16, jnp.bfloat16),
        (jnp.bfloat16, jnp.float32, jnp.bfloat16),
        (jnp.float32, jnp.float16, jnp.float32),
    ],
)
def test_the_result_has_the_dtype_of_the_config_or_else_of_its_parameters(
    dtype, param_dtype, expected
):
    model = build(config=replace(CONFIG, dtype=dtype, param_dtype=param_dtype))
    assert {leaf.dtype for leaf in jax.tree.leaves(params_of(model))} == {jnp.dtype(param_dtype)}
    assert model.position_table.dtype == expected
    assert jax.eval_shape(lambda: model(IDS, deterministic=True)).dtype == expected


# What is computed.


@pytest.mark.parametrize("deterministic", [True, False])
def test_the_encoder_is_the_pure_functions(deterministic):
    model = build(scale=2.0, sinusoid=MARIAN, attention_fn=doubled, deterministic=deterministic)
    params, positions, key = params_of(model), jnp.arange(6) + 3, jax.random.key(5)
    mask = IS_TOKEN & causal_mask(6)
    keys = (None, None) if deterministic else jax.random.split(key)
    got = model(IDS, mask, positions=positions, rngs=key, return_taps=True, return_weights=True)
    x = transformer_input(
        IDS,
        params.pop("embedding"),
        sinusoidal_table(50, 8, sinusoid=MARIAN),
        positions=positions,
        scale=2.0,
        padding_idx=0,
        dropout_rate=0.5,
        dropout_key=keys[0],
    )
    expected = encoder(
        x,
        params,
        CONFIG,
        mask=mask,
        dropout_key=keys[1],
        attention_fn=doubled,
        return_taps=True,
        return_weights=True,
    )
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    assert "attention_weights" in got[1]


@pytest.mark.parametrize("deterministic", [True, False])
def test_attention_layer_and_encoder_of_vectors_are_the_pure_functions(deterministic):
    attend = partial(multi_head_attention, dropout_rate=0.5, attention_fn=doubled)
    go = partial(encoder_layer, config=CONFIG, attention_fn=doubled, return_taps=True)
    # The key is split for the input part, though there is none here.
    pass_on = partial(encoder, config=CONFIG, attention_fn=doubled, return_taps=True)
    for module, function in zip(ON_VECTORS, (attend, go, pass_on), strict=True):
        model = module(
            config=CONFIG, attention_fn=doubled, deterministic=deterministic, rngs=nnx.Rngs(0)
        )
        flags = {} if module is MultiHeadAttention else {"return_taps": True}
        key = jax.random.key(5)
        got = model(X, IS_TOKEN, rngs=key, return_weights=True, **flags)
        used = jax.random.split(key)[1] if module is Encoder else key
        expected = function(
            X,
            params_of(model),
            mask=IS_TOKEN,
            dropout_key=None if deterministic else used,
            return_weights=True,
        )
        jax.tree.map(np.testing.assert_array_equal, got, expected)


def test_the_precision_and_the_rate_of_the_config_reach_attention():
    config, seen = replace(CONFIG, matmul_precision="highest"), {}

    def spy(query, key, value, **options):
        seen.update(options)
        return dot_product_attention(query, key, value, **options)

    model = MultiHeadAttention(config=config, attention_fn=spy, rngs=nnx.Rngs(0))
    jax.eval_shape(lambda: model(X, rngs=jax.random.key(0)))
    assert (seen["matmul_precision"], seen["dropout_rate"]) == ("highest", 0.5)


def test_padding_is_hidden_by_a_mask_and_not_by_padding_idx():
    model = build(deterministic=True)
    apply = nnx.jit(lambda model, ids, mask: model(ids, mask))
    other, kept = jnp.where(IDS == 0, 8, IDS), np.asarray(IDS != 0)
    for mask, is_hidden in ((IS_TOKEN, True), (None, False)):
        same = apply(model, IDS, mask)[kept] == apply(model, other, mask)[kept]
        assert same.all() == is_hidden


def test_an_initialiser_of_the_embedding_is_used_and_its_padding_row_zero():
    model = build(embedding_init=nnx.initializers.ones)
    np.testing.assert_array_equal(
        model.embedding[...], np.where(np.arange(10)[:, None] == 0, 0, np.ones(8))
    )


# Dropout.


@pytest.mark.parametrize("module", ON_VECTORS)
def test_train_and_eval_set_dropout_and_calls_draw_anew(module):
    model = module(config=CONFIG, rngs=nnx.Rngs(0))
    call = nnx.jit(lambda model: model(X))
    first, second = call(model), call(model)
    assert (first != second).any()
    model.eval()
    assert model.deterministic is True
    expected = call(model)
    np.testing.assert_array_equal(call(model), expected)
    model.train()
    assert (call(model) != expected).any()
    never = nnx.jit(lambda model: model(X, deterministic=True))
    np.testing.assert_array_equal(never(model), expected)


@pytest.mark.parametrize("module", ON_VECTORS)
def test_dropout_without_randomness_raises(module):
    model = module(config=replace(CONFIG, dropout_rate=0.0), rngs=nnx.Rngs(0))
    assert model.rngs is None
    model.config = CONFIG
    message = r"`rngs` is None, but `dropout_rate` is 0\.5 and `deterministic` is False"
    with pytest.raises(ValueError, match=message):
        model(X)


# Transformations, training, checkpoints.


def test_splitting_and_merging_compiling_and_remat_change_no_bit():
    model = build(deterministic=True)
    graph, state = nnx.split(model)
    # Compiled sums differ from others in their last bits, so compiled ones are compared.
    expected = jax.jit(lambda state: nnx.merge(graph, state)(IDS, IS_TOKEN))(state)
    for transform in (lambda call: call, nnx.remat):
        call = transform(lambda model: model(IDS, IS_TOKEN))
        np.testing.assert_array_equal(nnx.jit(call)(model), expected)


@pytest.mark.slow
def test_two_steps_of_adam_move_every_kernel_and_leave_the_table():
    model = build()
    optimizer = nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)
    before, start = np.asarray(model.position_table[...]).tobytes(), params_of(model)

    def loss(model):
        return (model(IDS, IS_TOKEN) ** 2 * jnp.arange(8.0)[None, None]).sum()

    step = nnx.jit(lambda model, optimizer: optimizer.update(model, nnx.grad(loss)(model)))
    for _ in range(2):
        step(model, optimizer)
    assert np.asarray(model.position_table[...]).tobytes() == before
    moved = jax.tree.map(lambda new, old: (new != old).any(), params_of(model), start)
    still = [path for path, leaf in jax.tree.leaves_with_path(moved) if not leaf]
    # A bias of keys adds the same to all scores of a query, so its gradient is rounding alone.
    assert [path for path in still if jax.tree_util.keystr(path[-2:]) != "['key']['bias']"] == []
    assert not model.embedding[0].any()


def test_a_model_built_from_shapes_alone_is_filled_by_restore():
    saved = build(deterministic=True)
    model = nnx.eval_shape(lambda: build(1, deterministic=True))
    wanted = nnx.state(model, (nnx.Param, Constant))
    restored, notes = restore(nnx.state(saved, nnx.Param), wanted)
    nnx.update(model, restored)
    assert notes == ()
    jax.tree.map(np.testing.assert_array_equal, params_of(model), params_of(saved))
    np.testing.assert_array_equal(model.position_table[...], sinusoidal_table(50, 8))


# What is refused.


@pytest.mark.parametrize("module", ON_VECTORS)
def test_a_config_or_rngs_of_another_kind_is_refused(module):
    with pytest.raises(TypeError, match=r"`config` must be a jax_input\.EncoderConfig, got int"):
        module(config=8, rngs=nnx.Rngs(0))
    with pytest.raises(TypeError, match=r"`rngs` must be nnx\.Rngs, got int"):
        module(config=CONFIG, rngs=0)
    with pytest.raises(TypeError, match="positional argument"):
        module(CONFIG, rngs=nnx.Rngs(0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": None}, "`padding_idx` is given, but the module has no `vocab_size`"),
        ({"padding_idx": 10}, "`padding_idx` must be from 0 to 9"),
        ({"scale": float("nan")}, "`scale` must be finite in float32, got nan"),
        ({"max_len": 0}, "`max_len` must be at least 1"),
    ],
)
def test_bad_options_are_refused_where_they_are_given(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)


@pytest.mark.parametrize(
    ("options", "arguments", "given", "error", "message"),
    [
        ({}, (X,), {"positions": [0] * 6}, ValueError, "`positions` is given, but .* `vocab_size`"),
        ({}, (IDS,), {}, TypeError, "`inputs` holds int32, but the module has no `vocab_size`"),
        ({"vocab_size": 10}, (X,), {}, TypeError, "`token_ids` must hold integers, got float32"),
        ({"vocab_size": 5}, (IDS,), {}, ValueError, r"`token_ids` holds 5 at \[0, 0\]"),
        ({"vocab_size": 10, "max_len": 5}, (IDS,), {}, ValueError, "has max_len 5"),
        ({}, (X, jnp.zeros((2, 1, 1, 6))), {}, TypeError, "`mask` must be boolean with True = may"),
    ],
)
def test_what_does_not_fit_is_refused(options, arguments, given, error, message):
    model = Encoder(config=CONFIG, deterministic=True, **options, rngs=nnx.Rngs(0))
    with pytest.raises(error, match=message):
        jax.eval_shape(lambda: model(*arguments, **given))


def test_a_table_that_is_not_its_own_is_refused():
    model = build(deterministic=True)
    model.position_table[...] = jnp.zeros((50, 8))
    with pytest.raises(ValueError, match="`position_table` is neither"):
        model(IDS)
