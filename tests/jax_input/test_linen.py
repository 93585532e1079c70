import re
from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from jax_input.embedding import embed_tokens
from jax_input.inputs import transformer_input
from jax_input.linen import Embed, PositionalEncoding, TransformerInput
from jax_input.sinusoidal import DIFFUSERS, MARIAN, Sinusoid, sinusoidal_table

pytestmark = pytest.mark.usefixtures("programs_run_once")

IDS = jnp.asarray([[5, 0, 3, 0, 1, 7], [2, 2, 9, 4, 0, 0]])
FIXED = {"vocab_size": 10, "d_model": 8, "deterministic": True}


def build(**options):
    model = TransformerInput(**{**FIXED, "max_len": 50, **options})
    return model, model.init(jax.random.key(0), IDS)


def params_of(variables):
    return {"params": variables["params"]}


def with_table(variables, table):
    return {**params_of(variables), "constants": {"position_table": table}}


# What the variables hold.


def test_params_hold_the_embedding_alone_and_constants_the_table():
    _, variables = build()
    assert jax.tree.map(jnp.shape, variables) == {
        "params": {"embedding": (10, 8)},
        "constants": {"position_table": (50, 8)},
    }


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("sinusoid", [Sinusoid(), MARIAN])
def test_the_table_is_the_exact_one_in_the_dtype_of_the_result(dtype, sinusoid):
    model, variables = build(dtype=dtype, sinusoid=sinusoid)
    table = variables["constants"]["position_table"]
    exact = sinusoidal_table(50, 8, sinusoid=sinusoid, dtype=dtype)
    assert table.dtype == model.apply(variables, IDS).dtype == dtype
    np.testing.assert_array_equal(table, exact)


def test_the_embedding_starts_as_a_standard_normal():
    model = Embed(vocab_size=1_000, d_model=256)
    embedding = model.init(jax.random.key(0), IDS)["params"]["embedding"]
    # Standard errors of 256,000 draws: 0.002 for the mean, 0.0014 for the deviation.
    assert abs(float(embedding.mean())) < 0.01
    assert abs(float(embedding.std()) - 1) < 0.007


@pytest.mark.parametrize("module", [Embed, TransformerInput])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_padding_row_starts_at_zero_with_any_initialiser(module, dtype):
    model = module(
        vocab_size=10,
        d_model=8,
        padding_idx=3,
        param_dtype=dtype,
        embedding_init=nn.initializers.ones,
        **({"deterministic": True} if module is TransformerInput else {}),
    )
    embedding = model.init(jax.random.key(0), IDS)["params"]["embedding"]
    assert embedding.dtype == dtype
    np.testing.assert_array_equal(embedding, np.where(np.arange(10)[:, None] == 3, 0, np.ones(8)))


def test_an_initialiser_may_name_the_axes_of_the_embedding():
    init = nn.with_partitioning(nn.initializers.ones, ("vocab", "model"))
    model, variables = build(padding_idx=3, embedding_init=init)
    boxed = variables["params"]["embedding"]
    assert isinstance(boxed, nn.Partitioned)
    assert boxed.names == ("vocab", "model")
    assert not boxed.value[3].any()
    assert model.apply(nn.unbox(variables), IDS).shape == (2, 6, 8)


def test_options_are_given_by_name():
    with pytest.raises(TypeError, match="positional argument"):
        TransformerInput(10, 8)


def test_the_halves_make_up_the_whole():
    model, variables = build(padding_idx=0)
    embed = Embed(vocab_size=10, d_model=8, scale="sqrt", padding_idx=0)
    encode = PositionalEncoding(d_model=8, max_len=50, deterministic=True)
    x = embed.apply(params_of(variables), IDS)
    x = encode.apply({"constants": variables["constants"]}, x)
    np.testing.assert_array_equal(x, model.apply(variables, IDS))
    assert jax.tree.map(jnp.shape, encode.init(jax.random.key(0), x)) == {
        "constants": {"position_table": (50, 8)}
    }


def test_embed_passes_every_option_on():
    options = {"scale": 3.0, "padding_idx": 0, "out_of_range": "zero", "zero_padding": True}
    model = Embed(vocab_size=10, d_model=8, dtype=jnp.bfloat16, **options)
    embedding = jax.random.normal(jax.random.key(1), (10, 8))
    token_ids = jnp.asarray([0, 4, 12, -1])
    x = model.apply({"params": {"embedding": embedding}}, token_ids)
    expected = embed_tokens(token_ids, embedding, dtype=jnp.bfloat16, **options)
    assert x.dtype == jnp.bfloat16
    np.testing.assert_array_equal(x, expected)


# Callers who bring params alone.

POSITIONS = {
    "none": None,
    "numpy": np.arange(6)[::-1].copy(),
    "row": jnp.asarray([3, 1, 49, 0, 0, 7]),
    "batch": jnp.arange(12).reshape(2, 6) * 4,
}


# Few positions of a long table are encoded one by one; else the table is built.
@pytest.mark.parametrize("max_len", [50, 5_000])
@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.parametrize(
    ("dtype", "sinusoid"), [(jnp.float32, DIFFUSERS), (jnp.bfloat16, Sinusoid())]
)
def test_params_alone_give_the_same_bits(name, dtype, max_len, sinusoid):
    model, variables = build(max_len=max_len, dtype=dtype, sinusoid=sinusoid)
    expected = np.asarray(model.apply(variables, IDS, POSITIONS[name]))
    for apply in (model.apply, jax.jit(model.apply)):
        x = apply(params_of(variables), IDS, POSITIONS[name])
        assert x.dtype == dtype
        np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("max_len", [50, 5_000])
@pytest.mark.parametrize("only_params", [False, True])
def test_a_position_without_a_row_raises_where_known_and_reads_nan_where_traced(
    max_len, only_params
):
    model, variables = build(max_len=max_len)
    variables = params_of(variables) if only_params else variables
    apply = jax.jit(model.apply)
    others = [0, 1, 3, 4, 5]
    right = apply(variables, IDS, jnp.arange(6))
    for wrong in (max_len, -1, 2**31 - 1, -(2**31)):
        positions = jnp.arange(6).at[2].set(wrong)
        message = (
            rf"`positions` holds {wrong} at \[2\], but the position table has max_len {max_len}"
        )
        with pytest.raises(ValueError, match=message):
            model.apply(variables, IDS, positions)
        x = apply(variables, IDS, positions)
        assert np.isnan(x[:, 2]).all()
        np.testing.assert_array_equal(x[:, others], right[:, others])


@pytest.mark.parametrize("only_params", [False, True])
@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_a_sequence_longer_than_the_table_raises(only_params, transform):
    model, variables = build(max_len=6)
    variables = params_of(variables) if only_params else variables
    with pytest.raises(ValueError, match="`x` has seq_len 7, but the position table has max_len 6"):
        transform(model.apply)(variables, jnp.zeros((2, 7), jnp.int32))


def test_params_alone_can_be_asked_for_the_table():
    model, variables = build()
    _, made = model.apply(params_of(variables), IDS, mutable=["constants"])
    np.testing.assert_array_equal(
        made["constants"]["position_table"], variables["constants"]["position_table"]
    )


def fused_with_integers(compiled, shape):
    """Return whether a compiled computation of this shape also holds 64-bit integers."""
    computations = re.split(r"\n\n", compiled.as_text())
    return any(f"f32[{shape}]" in text and "u64[" in text for text in computations)


def test_params_alone_build_the_rows_once_and_not_for_each_sequence():
    """Left to itself XLA computes them anew for each sequence, in the sum with the tokens."""
    token_ids = jnp.zeros((8, 512), jnp.int32)
    model = TransformerInput(vocab_size=10, d_model=512, deterministic=True)
    params = params_of(jax.eval_shape(model.init, jax.random.key(0), token_ids))

    def naive(params, token_ids):
        table = sinusoidal_table(512, 512)
        return transformer_input(token_ids, params["params"]["embedding"], table)

    assert fused_with_integers(jax.jit(naive).lower(params, token_ids).compile(), "8,512,512")
    compiled = jax.jit(model.apply).lower(params, token_ids).compile()
    assert not fused_with_integers(compiled, "8,512,512")


# A table that is not the module's own.


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        (jnp.zeros((50, 8)), r"row 0, column 1 holds 0\.0, exact is 1\.0"),
        (sinusoidal_table(51, 8)[1:], r"row 0, column 0 holds 0\.84"),
        (sinusoidal_table(50, 8, sinusoid=MARIAN), r"row 0, column 1 holds 0\.0, exact is 1\.0"),
        (sinusoidal_table(50, 8, sinusoid=Sinusoid(9_990.0)), r"row 1, column 2 holds 0\.0998"),
        (sinusoidal_table(50, 8, dtype=jnp.bfloat16).astype(jnp.float32), "row 1, column 0 holds"),
        (jnp.full((50, 8), jnp.nan), "row 0, column 0 holds nan"),
    ],
    ids=["zeros", "shifted", "halves", "base", "bfloat16", "nan"],
)
def test_a_wrong_table_is_named_where_it_is_known_and_reads_nan_where_it_is_traced(wrong, place):
    model, variables = build()
    wrong = with_table(variables, wrong)
    with pytest.raises(ValueError, match=rf"`position_table` is neither .*: {place}"):
        model.apply(wrong, IDS)
    with pytest.raises(ValueError, match=place):
        jax.jit(lambda params: model.apply({**wrong, "params": params}, IDS))(wrong["params"])
    assert np.isnan(jax.jit(model.apply)(wrong, IDS)).all()


@pytest.mark.parametrize("row", [0, 1, 25, 49])
def test_the_first_two_rows_the_middle_one_and_the_last_are_looked_at(row):
    model, variables = build()
    table = variables["constants"]["position_table"].at[row, 3].add(1e-4)
    with pytest.raises(ValueError, match=f"row {row}, column 3 holds"):
        model.apply(with_table(variables, table), IDS)
    assert np.isnan(jax.jit(model.apply)(with_table(variables, table), IDS)).all()


@pytest.mark.parametrize("max_len", [1, 2])
def test_short_tables_are_looked_at_too(max_len):
    model = TransformerInput(**FIXED, max_len=max_len)
    token_ids = IDS[:, :max_len]
    variables = model.init(jax.random.key(0), token_ids)
    expected = model.apply(variables, token_ids)
    np.testing.assert_array_equal(jax.jit(model.apply)(variables, token_ids), expected)
    wrong = with_table(variables, jnp.zeros((max_len, 8)))
    with pytest.raises(ValueError, match="row 0, column 1 holds"):
        model.apply(wrong, token_ids)
    assert np.isnan(jax.jit(model.apply)(wrong, token_ids)).all()


def published(max_len, d_model):
    """The formula of the articles, in float32."""
    step = np.arange(0, d_model, 2, dtype=np.float32)
    frequency = np.exp(step * np.float32(-np.log(10_000.0) / d_model))
    angle = np.arange(max_len, dtype=np.float32)[:, None] * frequency
    return jnp.asarray(np.stack([np.sin(angle), np.cos(angle)], -1).reshape(max_len, d_model))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_a_kept_published_table_is_accepted(dtype):
    model, variables = build(max_len=5_000, dtype=dtype)
    table = published(5_000, 8).astype(dtype)
    assert (table != variables["constants"]["position_table"]).any()
    x = model.apply(with_table(variables, table), IDS)
    embedding = variables["params"]["embedding"]
    np.testing.assert_array_equal(x, transformer_input(IDS, embedding, table))
    np.testing.assert_array_equal(jax.jit(model.apply)(with_table(variables, table), IDS), x)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (sinusoidal_table(49, 8), r"shape \[49, 8\] and dtype float32, but .* \[50, 8\]"),
        (sinusoidal_table(50, 6), r"shape \[50, 6\] and dtype float32, but .* \[50, 8\]"),
        (sinusoidal_table(50, 8)[None], r"shape \[1, 50, 8\]"),
        (sinusoidal_table(50, 8, dtype=jnp.bfloat16), r"shape .* dtype bfloat16, but .* float32"),
    ],
)
@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_a_table_of_another_shape_or_dtype_raises(table, message, transform):
    model, variables = build()
    with pytest.raises(ValueError, match=f"`position_table` has {message}"):
        transform(model.apply)(with_table(variables, table), IDS)


def test_a_table_on_two_devices_is_read():
    model, variables = build()
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:2]), ("rows",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows"))
    spread = jax.device_put(variables["constants"]["position_table"], sharding)
    embedding = jax.device_put(variables["params"]["embedding"], sharding)
    spread = {"params": {"embedding": embedding}, "constants": {"position_table": spread}}
    expected = model.apply(variables, IDS)
    np.testing.assert_array_equal(model.apply(spread, IDS), expected)
    np.testing.assert_array_equal(jax.jit(model.apply)(spread, IDS), expected)


# Dropout.


def test_deterministic_is_an_attribute_or_an_argument_of_the_call():
    model, variables = build(deterministic=None, dropout_rate=0.0)
    expected = model.apply(variables, IDS)
    model = model.clone(dropout_rate=0.5)
    np.testing.assert_array_equal(model.apply(variables, IDS, None, True), expected)
    np.testing.assert_array_equal(
        model.clone(deterministic=True).apply(variables, IDS, deterministic=None), expected
    )
    rngs = {"dropout": jax.random.key(1)}
    assert (model.apply(variables, IDS, None, False, rngs=rngs) != expected).any()


@pytest.mark.parametrize(("attribute", "argument"), [(None, None), (True, True), (True, False)])
def test_deterministic_given_nowhere_or_twice_raises(attribute, argument):
    model, variables = build()
    model = model.clone(deterministic=attribute)
    with pytest.raises(ValueError, match="deterministic"):
        model.apply(variables, IDS, None, argument)


def test_evaluation_needs_no_key_and_dropout_does():
    model, variables = build()
    model = model.clone(deterministic=None)
    model.apply(variables, IDS, None, True)
    with pytest.raises(Exception, match="dropout"):
        model.apply(variables, IDS, None, False)


def test_one_key_gives_one_mask_and_kept_entries_are_scaled():
    model = PositionalEncoding(d_model=64, dropout_rate=0.5, deterministic=False)
    x = jnp.ones((64, 3, 64)) * 2

    def drop(key):
        return model.apply({}, x, rngs={"dropout": jax.random.key(key)})

    np.testing.assert_array_equal(drop(1), drop(1))
    assert (drop(1) != drop(2)).any()
    kept = drop(1) != 0
    expected = 2 * (x + sinusoidal_table(3, 64)[None])
    np.testing.assert_array_equal(drop(1), np.where(kept, expected, 0))
    # 12,288 draws: five standard deviations.
    assert abs(float(kept.mean()) - 0.5) < 5 * 0.5 / 12_288**0.5
    for axis in range(3):
        assert (np.diff(kept, axis=axis) != 0).any(), "a mask is shared"


# Lifted transformations.


class Layer(nn.Module):
    """One layer of a stack: positions are added again before it."""

    max_len: int = 50
    dropout_rate: float = 0.0

    @nn.compact
    def __call__(self, x, _):
        x = PositionalEncoding(
            d_model=8, max_len=self.max_len, dropout_rate=self.dropout_rate, deterministic=False
        )(x)
        return nn.Dense(8)(x), x


@pytest.mark.parametrize("constants", [{"variable_broadcast": "constants"}, {}])
def test_layers_under_scan_share_one_table_or_need_none(constants):
    scanned = nn.scan(
        Layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=3, **constants
    )
    x = jax.random.normal(jax.random.key(1), (2, 6, 8))
    variables = scanned().init(jax.random.key(0), x, None)
    tables = jax.tree.map(jnp.shape, variables.get("constants", {}))
    kept = {"PositionalEncoding_0": {"position_table": (50, 8)}}
    assert tables == (kept if constants else {})
    tables = {"constants": variables["constants"]} if constants else {}
    expected = x
    for index in range(3):
        layer = {"params": jax.tree.map(itemgetter(index), variables["params"])}
        expected, _ = Layer().apply({**layer, **tables}, expected, None)
    for stored in (variables, params_of(variables)):
        got, _ = scanned().apply(stored, x, None)
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def test_layers_steps_and_examples_draw_masks_of_their_own():
    x = jnp.ones((3, 64, 8))

    def masks(lifted, *arguments):
        _, dropped = lifted.apply({}, *arguments, rngs={"dropout": jax.random.key(0)})
        return np.asarray(dropped != 0)

    class Drop(nn.Module):
        @nn.compact
        def __call__(self, x, _):
            drop = PositionalEncoding(d_model=8, dropout_rate=0.5, deterministic=False)
            return x, drop(x)

    layers = nn.scan(Drop, split_rngs={"dropout": True}, length=3)
    examples = nn.vmap(Drop, in_axes=(0, None), out_axes=0, split_rngs={"dropout": True})
    for found in (masks(layers(), x[0], None), masks(examples(), x, None)):
        assert found.shape == (3, 64, 8)
        assert (found[0] != found[1]).any()
        assert (found[1] != found[2]).any()


def test_models_side_by_side_share_one_table():
    many = nn.vmap(
        TransformerInput,
        variable_axes={"params": 0, "constants": None},
        split_rngs={"params": True},
        in_axes=None,
        axis_size=3,
    )(**FIXED, max_len=50)
    variables = many.init(jax.random.key(0), IDS)
    assert variables["params"]["embedding"].shape == (3, 10, 8)
    assert variables["constants"]["position_table"].shape == (50, 8)
    model = TransformerInput(**FIXED, max_len=50)
    for stored in (variables, params_of(variables)):
        x = many.apply(stored, IDS)
        for index, embedding in enumerate(variables["params"]["embedding"]):
            one = {**stored, "params": {"embedding": embedding}}
            np.testing.assert_array_equal(x[index], model.apply(one, IDS))


@pytest.mark.parametrize("only_params", [False, True])
def test_remat_changes_no_bit_of_the_output_or_the_gradient(only_params):
    model, variables = build(dropout_rate=0.5)
    model = model.clone(deterministic=None)
    constants = {} if only_params else {"constants": variables["constants"]}
    remat = nn.remat(TransformerInput, static_argnums=(3,))(
        **{**FIXED, "deterministic": None}, max_len=50, dropout_rate=0.5
    )

    def loss(params, module):
        variables, rngs = {"params": params, **constants}, {"dropout": jax.random.key(1)}
        return (module.apply(variables, IDS, None, False, rngs=rngs) ** 2).sum()

    gradient = jax.value_and_grad(loss)
    expected, got = (gradient(variables["params"], module) for module in (model, remat))
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    assert expected[1]["embedding"].any()


# Programs and training.


@pytest.mark.parametrize("only_params", [False, True])
def test_the_program_holds_no_table(only_params):
    def text(max_len):
        model = TransformerInput(vocab_size=10, d_model=1024, max_len=max_len, deterministic=True)
        token_ids = jnp.zeros((1, 8), jnp.int32)
        variables = jax.eval_shape(model.init, jax.random.key(0), token_ids)
        variables = params_of(variables) if only_params else variables
        return jax.jit(model.apply).lower(variables, token_ids).as_text()

    short, long = text(64), text(8_192)
    assert len(long) < 1_000_000
    assert len(long) - len(short) < 100


def test_the_program_of_init_holds_no_table():
    def text(max_len):
        model = TransformerInput(vocab_size=10, d_model=1024, max_len=max_len, deterministic=True)
        token_ids = jnp.zeros((1, 8), jnp.int32)
        return jax.jit(model.init).lower(jax.random.key(0), token_ids).as_text()

    assert len(text(8_192)) < 1_000_000
    assert abs(len(text(8_192)) - len(text(128))) < 1_000


@pytest.mark.parametrize("only_params", [False, True])
def test_other_positions_run_the_same_program(only_params):
    model, variables = build(max_len=5_000)
    variables = params_of(variables) if only_params else variables
    apply = jax.jit(model.apply)
    for offset in (0, 7, 4_000):
        apply(variables, IDS, jnp.arange(6) + offset)
    assert apply._cache_size() == 1


def test_ten_adamw_steps_over_params_leave_every_bit_of_the_table():
    model, variables = build(padding_idx=0)
    params, constants = variables["params"], variables["constants"]
    optimizer = optax.adamw(0.1, weight_decay=0.5)
    state = optimizer.init(params)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 10 * 8
    assert sorted(leaf.shape for leaf in jax.tree.leaves(state)) == [(), (10, 8), (10, 8)]
    before = np.asarray(constants["position_table"]).tobytes()

    @jax.jit
    def step(params, state):
        def loss(params):
            return (model.apply({"params": params, "constants": constants}, IDS) ** 2).sum()

        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(10):
        params, state = step(params, state)
    assert np.asarray(constants["position_table"]).tobytes() == before
    assert (params["embedding"][1:] != variables["params"]["embedding"][1:]).all()
    assert not params["embedding"][0].any()


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_the_gradient_of_the_table_is_exactly_zero(transform):
    model, variables = build()

    def loss(variables):
        return (model.apply(variables, IDS) ** 2).sum()

    gradient = transform(jax.grad(loss))(variables)
    assert not gradient["constants"]["position_table"].any()
    assert gradient["params"]["embedding"].any()


def test_one_sequence_and_a_batch_of_batches_are_read_along_the_last_axis():
    model, variables = build()
    x = model.apply(variables, IDS)
    np.testing.assert_array_equal(model.apply(variables, IDS[0]), x[0])
    np.testing.assert_array_equal(model.apply(params_of(variables), IDS[0]), x[0])
    np.testing.assert_array_equal(model.apply(variables, IDS[None])[0], x)
    assert model.apply(params_of(variables), IDS[:0]).shape == (0, 6, 8)
    assert model.apply(params_of(variables), IDS[:, :0]).shape == (2, 0, 8)
