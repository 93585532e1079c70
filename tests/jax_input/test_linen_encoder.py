from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from jax_input.attention import dot_product_attention, multi_head_attention
from jax_input.config import EncoderConfig
from jax_input.initial import encoder_params
from jax_input.inputs import transformer_input
from jax_input.layers import encoder_layer
from jax_input.linen import Encoder, EncoderLayer, MultiHeadAttention
from jax_input.masks import causal_mask, padding_mask
from jax_input.sinusoidal import MARIAN, PAPER, sinusoidal_table
from jax_input.stack import encoder

pytestmark = pytest.mark.usefixtures("programs_run_once")

CONFIG = EncoderConfig(
    num_layers=2, d_model=8, num_heads=2, d_ff=16, norm="pre", final_norm=True, dropout_rate=0.5
)
IDS = jnp.asarray([[5, 3, 1, 7, 0, 0], [2, 2, 9, 4, 6, 0]])
IS_TOKEN = padding_mask(IDS != 0)
PARAMS = encoder_params(jax.random.key(0), CONFIG)
X = jax.random.normal(jax.random.key(9), (2, 6, 8))
RNGS = {"dropout": jax.random.key(1)}
ON_VECTORS = [MultiHeadAttention, EncoderLayer, Encoder]


def build(**options):
    """Return a model and variables of it, without the time that its own ``init`` takes."""
    options = {"config": CONFIG, "vocab_size": 10, "max_len": 50, "padding_idx": 0, **options}
    embedding = jax.random.normal(jax.random.key(2), (10, 8)).at[0].set(0)
    table = sinusoidal_table(50, 8, sinusoid=options.get("sinusoid", PAPER))
    params = {"embedding": embedding, **PARAMS}
    return Encoder(**options), {"params": params, "constants": {"position_table": table}}


def params_of(module):
    """Return parameters of a module without a vocabulary."""
    layer = jax.tree.map(lambda leaf: leaf[0], PARAMS["layers"])
    return {MultiHeadAttention: layer["attention"], EncoderLayer: layer, Encoder: PARAMS}[module]


def init(module, inputs, **options):
    """Return the shapes of new variables."""
    model = module(**{"config": CONFIG, **options}, deterministic=True)
    return jax.eval_shape(model.init, jax.random.key(0), inputs)


def one_layer(key, config=CONFIG):
    stacked = encoder_params(key, replace(config, num_layers=1))
    return jax.tree.map(lambda leaf: leaf[0], stacked["layers"])


def keys_of(model, stream, number):
    """Return the keys that a module draws one after the other."""

    def draw(module):
        return [module.make_rng(stream) for _ in range(number)]

    return model.apply({}, rngs={stream: jax.random.key(1)}, method=draw)


def doubled(query, key, value, **options):
    result = dot_product_attention(query, key, value, **options)
    return (2 * result[0], result[1]) if options.get("return_weights") else 2 * result


# What the variables hold.


@pytest.mark.parametrize("options", [{}, {"final_norm": False}, {"use_bias": False}])
def test_params_hold_the_embedding_beside_the_layers_and_constants_the_table(options):
    config = replace(CONFIG, **options)
    variables = init(Encoder, IDS, config=config, vocab_size=10, max_len=50)
    drawn = encoder_params(jax.random.key(0), config)
    assert jax.tree.map(jnp.shape, variables) == {
        "params": {"embedding": (10, 8), **jax.tree.map(jnp.shape, drawn)},
        "constants": {"position_table": (50, 8)},
    }


def test_without_a_vocabulary_there_is_neither_embedding_nor_table():
    variables = init(Encoder, X)
    assert jax.tree.map(jnp.shape, variables) == {"params": jax.tree.map(jnp.shape, PARAMS)}


@pytest.mark.parametrize(
    ("module", "draw"),
    [
        (MultiHeadAttention, lambda key: one_layer(key)["attention"]),
        (EncoderLayer, one_layer),
        (Encoder, lambda key: encoder_params(key, CONFIG)),
    ],
)
def test_the_parameters_are_drawn_by_encoder_params(module, draw):
    model = module(config=CONFIG)
    params = model.init(jax.random.key(1), X, None, True)["params"]
    names = sorted(params)
    for name, key in zip(names, keys_of(model, "params", len(names)), strict=True):
        jax.tree.map(np.testing.assert_array_equal, params[name], draw(key)[name])


@pytest.mark.parametrize(
    ("dtype", "param_dtype", "expected"),
    [
        (None, jnp.float32, jnp.float32),
        (None, jnp.bfloat16, jnp.bfloat16),
        (jnp.bfloat16, jnp.float32, jnp.bfloat16),
        (jnp.float32, jnp.float16, jnp.float32),
    ],
)
def test_the_result_has_the_dtype_of_the_config_or_else_of_its_parameters(
    dtype, param_dtype, expected
):
    config = replace(CONFIG, dtype=dtype, param_dtype=param_dtype)
    model = Encoder(config=config, vocab_size=10, max_len=50, deterministic=True)
    result, variables = jax.eval_shape(model.init_with_output, jax.random.key(0), IDS)
    assert {leaf.dtype for leaf in jax.tree.leaves(variables["params"])} == {jnp.dtype(param_dtype)}
    assert variables["constants"]["position_table"].dtype == expected
    assert result.dtype == expected


# What is computed.


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [True, False])
def test_the_encoder_is_the_pure_functions(deterministic):
    model, variables = build(scale=2.0, sinusoid=MARIAN, attention_fn=doubled)
    params, positions = variables["params"], jnp.arange(6) + 3
    mask = IS_TOKEN & causal_mask(6)
    keys = (None, None) if deterministic else keys_of(model, "dropout", 2)
    got = model.apply(variables, IDS, mask, deterministic, positions, True, True, rngs=RNGS)
    x = transformer_input(
        IDS,
        params["embedding"],
        sinusoidal_table(50, 8, sinusoid=MARIAN),
        positions=positions,
        scale=2.0,
        padding_idx=0,
        dropout_rate=0.5,
        dropout_key=keys[0],
    )
    expected = encoder(
        x,
        {name: params[name] for name in ("layers", "final_norm")},
        CONFIG,
        mask=mask,
        dropout_key=keys[1],
        attention_fn=doubled,
        return_taps=True,
        return_weights=True,
    )
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    assert "attention_weights" in got[1]


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [True, False])
def test_attention_layer_and_encoder_of_vectors_are_the_pure_functions(deterministic):
    attend = partial(multi_head_attention, dropout_rate=0.5, attention_fn=doubled)
    go = partial(encoder_layer, config=CONFIG, attention_fn=doubled, return_taps=True)
    pass_on = partial(encoder, config=CONFIG, attention_fn=doubled, return_taps=True)
    functions = (attend, go, pass_on)
    for module, function in zip(ON_VECTORS, functions, strict=True):
        model = module(config=CONFIG, attention_fn=doubled)
        variables = {"params": params_of(module)}
        flags = {} if module is MultiHeadAttention else {"return_taps": True}
        key = None if deterministic else keys_of(model, "dropout", 1)[0]
        options = {"return_weights": True}
        got = model.apply(variables, X, IS_TOKEN, deterministic, **flags, **options, rngs=RNGS)
        expected = function(X, variables["params"], mask=IS_TOKEN, dropout_key=key, **options)
        jax.tree.map(np.testing.assert_array_equal, got, expected)


def test_the_precision_and_the_rate_of_the_config_reach_attention():
    config, seen = replace(CONFIG, matmul_precision="highest"), {}

    def spy(query, key, value, **options):
        seen.update(options)
        return dot_product_attention(query, key, value, **options)

    model = MultiHeadAttention(config=config, attention_fn=spy, deterministic=False)
    model.apply({"params": params_of(MultiHeadAttention)}, X, rngs=RNGS)
    assert (seen["matmul_precision"], seen["dropout_rate"]) == ("highest", 0.5)


def test_layers_one_after_the_other_are_the_encoder():
    config = replace(CONFIG, scan=False, final_norm=False)
    params = {"layers": PARAMS["layers"]}
    expected = Encoder(config=config, deterministic=True).apply({"params": params}, X, IS_TOKEN)

    class Stack(nn.Module):
        @nn.compact
        def __call__(self, x, mask):
            for index in range(2):
                layer = EncoderLayer(config=config, deterministic=True, name=f"layer_{index}")
                x = layer(x, mask)
            return x

    layers = {
        f"layer_{index}": jax.tree.map(lambda leaf, index=index: leaf[index], params["layers"])
        for index in range(2)
    }
    # Compiled, as the encoder is: a compiler may contract what stands alone outside of jit.
    actual = jax.jit(Stack().apply)({"params": layers}, X, IS_TOKEN)
    np.testing.assert_array_equal(actual, expected)


def test_params_alone_give_the_same_bits():
    model, variables = build()
    expected = model.apply(variables, IDS, IS_TOKEN, True)
    got = model.apply({"params": variables["params"]}, IDS, IS_TOKEN, True)
    np.testing.assert_array_equal(got, expected)


def test_padding_is_hidden_by_a_mask_and_not_by_padding_idx():
    model, variables = build(deterministic=True)
    apply = jax.jit(partial(model.apply, variables))
    other, kept = jnp.where(IDS == 0, 8, IDS), np.asarray(IDS != 0)
    for mask, is_hidden in ((IS_TOKEN, True), (None, False)):
        same = apply(IDS, mask)[kept] == apply(other, mask)[kept]
        assert same.all() == is_hidden


def test_an_initialiser_of_the_embedding_is_used_and_its_padding_row_zero():
    options = {"vocab_size": 10, "max_len": 50, "padding_idx": 0, "deterministic": True}
    model = Encoder(config=CONFIG, embedding_init=nn.initializers.ones, **options)
    embedding = model.init(jax.random.key(0), IDS)["params"]["embedding"]
    np.testing.assert_array_equal(embedding, np.where(np.arange(10)[:, None] == 0, 0, np.ones(8)))


# Dropout.


@pytest.mark.parametrize("module", ON_VECTORS)
def test_dropout_needs_a_key_and_differs_between_keys(module):
    model = module(config=CONFIG)
    variables = {"params": params_of(module)}
    with pytest.raises(Exception, match="dropout"):
        model.apply(variables, X, None, False)

    @jax.jit
    def drop(key):
        return model.apply(variables, X, None, False, rngs={"dropout": key})

    first, again, other = (drop(jax.random.key(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("module", ON_VECTORS)
@pytest.mark.parametrize(("attribute", "argument"), [(None, None), (True, True), (True, False)])
def test_deterministic_given_nowhere_or_twice_raises(module, attribute, argument):
    model = module(config=CONFIG, deterministic=attribute)
    with pytest.raises(ValueError, match="deterministic"):
        model.apply({"params": params_of(module)}, X, None, argument)


def test_the_input_part_and_the_layers_draw_apart():
    """With one key for both, what is dropped of the input would be dropped there again."""
    config = replace(CONFIG, norm="post", num_layers=1)
    model, variables = build(config=config)
    one = jax.tree.map(lambda leaf: leaf[:1], PARAMS["layers"])
    variables["params"]["layers"] = one
    first, second = keys_of(model, "dropout", 2)
    assert (jax.random.key_data(first) != jax.random.key_data(second)).any()
    got = model.apply(variables, IDS, None, False, rngs=RNGS)
    table = variables["constants"]["position_table"]
    options = {"padding_idx": 0, "dropout_rate": 0.5}
    params = dict(variables["params"])
    x = transformer_input(IDS, params.pop("embedding"), table, dropout_key=first, **options)
    assert (x == 0).any()
    np.testing.assert_array_equal(got, encoder(x, params, config, dropout_key=second))
    assert (got != encoder(x, params, config, dropout_key=first)).any()


# Transformations and training.


@pytest.mark.slow
def test_remat_changes_no_bit_of_the_output_or_the_gradient():
    model, variables = build()
    remat = nn.remat(Encoder, static_argnums=(3,))(
        config=CONFIG, vocab_size=10, max_len=50, padding_idx=0
    )

    def loss(params, module):
        variables_ = {"params": params, "constants": variables["constants"]}
        return (module.apply(variables_, IDS, IS_TOKEN, False, rngs=RNGS) ** 2).sum()

    gradient = jax.jit(jax.value_and_grad(loss), static_argnums=1)
    expected, got = (gradient(variables["params"], module) for module in (model, remat))
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    assert expected[1]["embedding"].any()


def test_models_side_by_side_share_one_table():
    many = nn.vmap(
        Encoder,
        variable_axes={"params": 0, "constants": None},
        split_rngs={"params": True},
        in_axes=None,
        axis_size=3,
    )(config=CONFIG, vocab_size=10, max_len=50, deterministic=True)
    variables = jax.eval_shape(many.init, jax.random.key(0), IDS)
    assert variables["params"]["embedding"].shape == (3, 10, 8)
    assert variables["constants"]["position_table"].shape == (50, 8)
    kernels = variables["params"]["layers"]["attention"]["query"]["kernel"]
    assert kernels.shape == (3, 2, 8, 2, 4)


@pytest.mark.slow
def test_two_steps_of_adam_move_every_kernel_and_leave_the_table():
    model, variables = build()
    params, constants = variables["params"], variables["constants"]
    optimizer = optax.adam(0.1)
    state = optimizer.init(params)
    before = np.asarray(constants["position_table"]).tobytes()

    @jax.jit
    def step(params, state, key):
        def loss(params):
            kept = {"params": params, "constants": constants}
            y = model.apply(kept, IDS, IS_TOKEN, False, rngs={"dropout": key})
            return (y**2 * jnp.arange(8.0)[None, None]).sum()

        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    for key in jax.random.split(jax.random.key(2)):
        params, state = step(params, state, key)
    assert np.asarray(constants["position_table"]).tobytes() == before
    moved = jax.tree.map(lambda new, old: (new != old).any(), params, variables["params"])
    still = [path for path, leaf in jax.tree.leaves_with_path(moved) if not leaf]
    # A bias of keys adds the same to all scores of a query, so its gradient is rounding alone.
    assert [path for path in still if jax.tree_util.keystr(path[-2:]) != "['key']['bias']"] == []
    assert not params["embedding"][0].any()


# What is refused.


@pytest.mark.parametrize("module", ON_VECTORS)
def test_a_config_of_another_kind_is_refused(module):
    with pytest.raises(TypeError, match=r"`config` must be a jax_input\.EncoderConfig, got int"):
        module(config=8, deterministic=True).init(jax.random.key(0), X)


@pytest.mark.parametrize("module", ON_VECTORS)
def test_options_are_given_by_name(module):
    with pytest.raises(TypeError, match="positional argument"):
        module(CONFIG)


@pytest.mark.parametrize(
    ("options", "arguments", "error", "message"),
    [
        ({"padding_idx": 0}, (X,), ValueError, "`padding_idx` is given, but .* no `vocab_size`"),
        ({}, (X, None, None, [0] * 6), ValueError, "`positions` is given, but .* no `vocab_size`"),
        ({}, (IDS,), TypeError, "`inputs` holds int32, but the module has no `vocab_size`"),
        ({"vocab_size": 10}, (X,), TypeError, "`token_ids` must hold integers, got float32"),
        ({"vocab_size": 5}, (IDS,), ValueError, r"`token_ids` holds 5 at \[0, 0\]"),
        ({"vocab_size": 10, "max_len": 5}, (IDS,), ValueError, "has max_len 5"),
        ({}, (X, jnp.zeros((2, 1, 1, 6))), TypeError, "`mask` must be boolean with True = may"),
    ],
)
def test_what_does_not_fit_is_refused(options, arguments, error, message):
    model = Encoder(config=CONFIG, deterministic=True, **options)
    with pytest.raises(error, match=message):
        jax.eval_shape(lambda: model.init(jax.random.key(0), *arguments))


def test_parameters_of_another_config_are_refused():
    params = encoder_params(jax.random.key(0), replace(CONFIG, d_ff=32))
    with pytest.raises(nn.module.errors.ScopeParamShapeError, match="layers"):
        Encoder(config=CONFIG, deterministic=True).apply({"params": params}, X)
