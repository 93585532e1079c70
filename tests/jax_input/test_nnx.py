import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jax_input.checkpoints import restore
from jax_input.embedding import embed_tokens
from jax_input.inputs import transformer_input
from jax_input.nnx import Constant, Embed, PositionalEncoding, TransformerInput
from jax_input.sinusoidal import MARIAN, Sinusoid, sinusoidal_table

IDS = jnp.asarray([[5, 0, 3, 0, 1, 7], [2, 2, 9, 4, 0, 0]])
SAVED = (nnx.Param, Constant)


def build(max_len=50, **options):
    options = {"vocab_size": 10, "d_model": 8, "deterministic": True, **options}
    return TransformerInput(**options, max_len=max_len, rngs=nnx.Rngs(0))


# What the variables hold.


def test_the_embedding_is_a_param_and_the_table_a_constant():
    model = build()
    assert jax.tree.map(jnp.shape, nnx.to_pure_dict(nnx.state(model, nnx.Param))) == {
        "embedding": (10, 8)
    }
    assert jax.tree.map(jnp.shape, nnx.to_pure_dict(nnx.state(model, Constant))) == {
        "position_table": (50, 8)
    }
    assert not issubclass(Constant, nnx.Param)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("sinusoid", [Sinusoid(), MARIAN])
def test_the_table_is_the_exact_one_in_the_dtype_of_the_result(dtype, sinusoid):
    model = build(dtype=dtype, sinusoid=sinusoid)
    assert model.position_table.dtype == model(IDS).dtype == dtype
    exact = sinusoidal_table(50, 8, sinusoid=sinusoid, dtype=dtype)
    np.testing.assert_array_equal(model.position_table[...], exact)


def test_the_embedding_starts_as_a_standard_normal():
    embedding = Embed(vocab_size=1_000, d_model=256, rngs=nnx.Rngs(0)).embedding[...]
    # Standard errors of 256,000 draws: 0.002 for the mean, 0.0014 for the deviation.
    assert abs(float(embedding.mean())) < 0.01
    assert abs(float(embedding.std()) - 1) < 0.007


@pytest.mark.parametrize("module", [Embed, TransformerInput])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_padding_row_starts_at_zero_with_any_initialiser(module, dtype):
    options = {"padding_idx": 3, "param_dtype": dtype, "embedding_init": nnx.initializers.ones}
    model = module(vocab_size=10, d_model=8, **options, rngs=nnx.Rngs(0))
    embedding = model.embedding[...]
    assert embedding.dtype == dtype
    np.testing.assert_array_equal(embedding, np.where(np.arange(10)[:, None] == 3, 0, np.ones(8)))


def test_an_initialiser_may_name_the_axes_of_the_embedding():
    init = nnx.with_metadata(nnx.initializers.ones, axes=("vocab", "model"))
    model = build(padding_idx=3, embedding_init=init)
    assert model.embedding.get_metadata()["axes"] == ("vocab", "model")
    assert not model.embedding[3].any()
    assert model(IDS).shape == (2, 6, 8)


def test_options_are_given_by_name():
    with pytest.raises(TypeError, match="positional argument"):
        TransformerInput(10, 8, rngs=nnx.Rngs(0))


def test_the_halves_make_up_the_whole():
    model = build(padding_idx=0)
    embed = Embed(vocab_size=10, d_model=8, scale="sqrt", padding_idx=0, rngs=nnx.Rngs(0))
    encode = PositionalEncoding(d_model=8, max_len=50)
    encode.eval()
    np.testing.assert_array_equal(encode(embed(IDS)), model(IDS))


def test_embed_passes_every_option_on():
    options = {"scale": 3.0, "padding_idx": 0, "out_of_range": "zero", "zero_padding": True}
    model = Embed(vocab_size=10, d_model=8, dtype=jnp.bfloat16, **options, rngs=nnx.Rngs(0))
    model.embedding[...] = jax.random.normal(jax.random.key(1), (10, 8))
    token_ids = jnp.asarray([0, 4, 12, -1])
    expected = embed_tokens(token_ids, model.embedding[...], dtype=jnp.bfloat16, **options)
    assert model(token_ids).dtype == jnp.bfloat16
    np.testing.assert_array_equal(model(token_ids), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padding_idx": -1}, "`padding_idx` must be from 0 to 9"),
        ({"padding_idx": 10}, "`padding_idx` must be from 0 to 9"),
        ({"scale": float("nan")}, "`scale` must be finite in float32, got nan"),
        ({"dropout_rate": 1.5}, r"`dropout_rate` must be from 0 to 1, .* got 1\.5"),
        ({"max_len": 0}, "`max_len` must be at least 1"),
    ],
)
def test_bad_options_are_refused_where_they_are_given(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)


def test_the_halves_refuse_bad_options_too():
    with pytest.raises(ValueError, match="`padding_idx` must be from 0 to 9"):
        Embed(vocab_size=10, d_model=8, padding_idx=10, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"`dropout_rate` must be from 0 to 1, .* got -1"):
        PositionalEncoding(d_model=8, max_len=50, dropout_rate=-1)


# A table that is not the module's own.

WRONG = {
    "zeros": (jnp.zeros((50, 8)), r"row 0, column 1 holds 0\.0, exact is 1\.0"),
    "decayed": (sinusoidal_table(50, 8) * 0.99, r"row 0, column 1 holds 0\.99"),
    "halves": (sinusoidal_table(50, 8, sinusoid=MARIAN), "row 0, column 1 holds"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_table_is_named_where_it_is_known_and_reads_nan_where_it_is_traced(name):
    model = build()
    model.position_table[...], place = WRONG[name]
    with pytest.raises(ValueError, match=rf"`position_table` is neither .*: {place}"):
        model(IDS)
    assert np.isnan(nnx.jit(lambda model: model(IDS))(model)).all()
    with pytest.raises(ValueError, match=place):
        restore(nnx.state(model, SAVED), nnx.state(model, SAVED))


def test_a_table_of_another_shape_raises():
    model, other = build(), build(max_len=40)
    nnx.update(model, nnx.state(other, Constant))
    with pytest.raises(ValueError, match=r"`position_table` has shape \[40, 8\] .* \[50, 8\]"):
        model(IDS)


def test_positions_past_the_end_raise_where_known_and_read_nan_where_traced():
    model = build()
    positions = jnp.arange(6).at[2].set(50)
    with pytest.raises(ValueError, match=r"`positions` holds 50 at \[2\], but .* max_len 50"):
        model(IDS, positions)
    x = nnx.jit(lambda model, positions: model(IDS, positions))(model, positions)
    assert np.isnan(x[:, 2]).all()
    assert not np.isnan(x[:, [0, 1, 3, 4, 5]]).any()


def test_a_sequence_longer_than_the_table_raises():
    with pytest.raises(ValueError, match="`x` has seq_len 6, but the position table has max_len 5"):
        build(max_len=5)(IDS)


# Dropout.


def test_train_and_eval_set_dropout_and_the_call_overrides_it():
    model = build(dropout_rate=0.5, deterministic=False)
    model.eval()
    expected = model(IDS)
    assert model.deterministic is True
    np.testing.assert_array_equal(model(IDS), expected)
    assert (model(IDS, deterministic=False) == 0).any()
    model.train()
    assert model.deterministic is False
    assert (model(IDS) == 0).any()
    np.testing.assert_array_equal(model(IDS, deterministic=True), expected)


def test_the_keys_are_those_of_flax_dropout():
    def streams():
        return nnx.Rngs(params=1, dropout=3)

    encode = PositionalEncoding(d_model=8, max_len=50, dropout_rate=0.5, rngs=streams())
    whole = TransformerInput(vocab_size=10, d_model=8, max_len=50, dropout_rate=0.5, rngs=streams())
    first, second = (nnx.Dropout(0.5, rngs=streams()) for _ in range(2))
    for _ in range(2):
        x = jnp.ones((4, 6, 8))
        np.testing.assert_array_equal(encode(x) != 0, first(x) != 0)
        np.testing.assert_array_equal(whole(IDS) != 0, second(jnp.ones((2, 6, 8))) != 0)


def test_calls_examples_and_axes_draw_masks_of_their_own():
    model = PositionalEncoding(d_model=8, max_len=64, dropout_rate=0.5, rngs=nnx.Rngs(0))
    x = jnp.ones((3, 64, 8))
    kept = np.asarray(model(x)) != 0
    assert (kept != (model(x) != 0)).any()
    for axis in range(3):
        assert (np.diff(kept, axis=axis) != 0).any(), "a mask is shared"
    expected = 2 * (x + sinusoidal_table(64, 8)[None])
    x = model(x)
    np.testing.assert_array_equal(x, np.where(x != 0, expected, 0))


def test_examples_under_vmap_draw_masks_of_their_own():
    model = PositionalEncoding(d_model=64, max_len=1, dropout_rate=0.5, rngs=nnx.Rngs(0))
    keys = nnx.StateAxes({nnx.RngState: 0, ...: None})
    drop = nnx.split_rngs(splits=3)(nnx.vmap(lambda model, x: model(x), in_axes=(keys, 0)))
    first, second = (np.asarray(drop(model, jnp.ones((3, 1, 64)))[:, 0]) for _ in range(2))
    assert len(np.unique(np.concatenate([first, second]) != 0, axis=0)) == 6
    # Row 0 of the table is 0, 1, 0, 1, ...
    np.testing.assert_array_equal(first, np.where(first != 0, [2, 4] * 32, 0))


@pytest.mark.parametrize(
    "make", [nnx.Rngs, lambda seed: nnx.Rngs(dropout=seed).dropout, jax.random.key]
)
def test_the_call_takes_its_own_randomness(make):
    model = PositionalEncoding(d_model=8, max_len=50, dropout_rate=0.5)
    x = jnp.ones((2, 6, 8))
    first, again, other = (model(x, rngs=make(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_dropout_without_randomness_raises():
    model = PositionalEncoding(d_model=8, max_len=50)
    x = jnp.ones((2, 6, 8))
    message = r"`rngs` is None, but `dropout_rate` is 0\.1 and `deterministic` is False"
    with pytest.raises(ValueError, match=message):
        model(x)
    model(x, deterministic=True)
    PositionalEncoding(d_model=8, max_len=50, dropout_rate=0.0)(x)


# Transformations.


def test_splitting_merging_and_compiling_change_no_bit():
    model = build()
    expected = model(IDS)
    graph, state = nnx.split(model)
    np.testing.assert_array_equal(nnx.merge(graph, state)(IDS), expected)
    np.testing.assert_array_equal(nnx.jit(lambda model, ids: model(ids))(model, IDS), expected)
    pure = jax.jit(lambda state, ids: nnx.merge(graph, state)(ids))
    np.testing.assert_array_equal(pure(state, IDS), expected)
    np.testing.assert_array_equal(nnx.remat(lambda model: model(IDS))(model), expected)


class Layer(nnx.Module):
    def __init__(self, rngs):
        self.encode = PositionalEncoding(d_model=8, max_len=50, dropout_rate=0.5, rngs=rngs)
        self.linear = nnx.Linear(8, 8, rngs=rngs)

    def __call__(self, x):
        return self.linear(self.encode(x))


AXES = nnx.StateAxes({Constant: None, ...: 0})


@nnx.split_rngs(splits=3)
@nnx.vmap(in_axes=0, out_axes=AXES)
def stack(rngs):
    return Layer(rngs)


def test_layers_under_scan_share_one_table_and_draw_masks_of_their_own():
    layers = stack(nnx.Rngs(0))
    assert layers.encode.position_table.shape == (50, 8)
    assert layers.linear.kernel.shape == (3, 8, 8)
    x = jnp.ones((2, 6, 8))

    @nnx.scan(in_axes=(nnx.Carry, AXES), out_axes=(nnx.Carry, 0))
    def forward(x, layer):
        return layer.linear(layer.encode(x)), layer.encode(jnp.ones_like(x))

    _, dropped = forward(x, layers)
    kept = np.asarray(dropped) != 0
    assert (kept[0] != kept[1]).any()
    assert (kept[1] != kept[2]).any()

    layers.eval()
    got, _ = forward(x, layers)
    for index in range(3):
        kernel, bias = layers.linear.kernel[index], layers.linear.bias[index]
        x = (x + sinusoidal_table(50, 8)[None, :6]) @ kernel + bias[None, None]
    np.testing.assert_allclose(got, x, rtol=1e-6, atol=1e-6)


def test_models_side_by_side_share_one_table():
    layers = stack(nnx.Rngs(0))
    layers.eval()
    x = jax.random.normal(jax.random.key(0), (2, 6, 8))
    many = nnx.vmap(lambda layer, x: layer(x), in_axes=(AXES, None))(layers, x)
    for index in range(3):
        kernel, bias = layers.linear.kernel[index], layers.linear.bias[index]
        one = (x + sinusoidal_table(50, 8)[None, :6]) @ kernel + bias[None, None]
        np.testing.assert_allclose(many[index], one, rtol=1e-6, atol=1e-6)


# Programs, training, checkpoints.


def test_the_program_holds_no_table():
    def text(max_len):
        model = nnx.eval_shape(
            lambda: TransformerInput(
                vocab_size=10, d_model=1024, max_len=max_len, deterministic=True, rngs=nnx.Rngs(0)
            )
        )
        graph, state = nnx.split(model)
        forward = jax.jit(lambda state, ids: nnx.merge(graph, state)(ids))
        return forward.lower(state, jnp.zeros((1, 8), jnp.int32)).as_text()

    short, long = text(64), text(8_192)
    assert len(long) < 1_000_000
    assert len(long) - len(short) < 100


def test_other_positions_run_the_same_program():
    graph, state = nnx.split(build(max_len=5_000))
    apply = jax.jit(lambda state, positions: nnx.merge(graph, state)(IDS, positions))
    for offset in (0, 7, 4_000):
        apply(state, jnp.arange(6) + offset)
    assert apply._cache_size() == 1


def loss_of(model):
    return (model(IDS) ** 2).sum()


def test_ten_adamw_steps_over_params_leave_every_bit_of_the_table():
    model = build(padding_idx=0)
    optimizer = nnx.Optimizer(model, optax.adamw(0.1, weight_decay=0.5), wrt=nnx.Param)
    before, start = np.asarray(model.position_table[...]).tobytes(), model.embedding[...]
    moments = [leaf.shape for leaf in jax.tree.leaves(nnx.state(optimizer)) if leaf.ndim]
    assert moments == [(10, 8), (10, 8)]
    step = nnx.jit(lambda model, optimizer: optimizer.update(model, nnx.grad(loss_of)(model)))
    for _ in range(10):
        step(model, optimizer)
    assert np.asarray(model.position_table[...]).tobytes() == before
    assert (model.embedding[1:] != start[1:]).all()
    assert not model.embedding[0].any()


@pytest.mark.parametrize("transform", [lambda f: f, nnx.jit])
def test_the_gradient_of_the_table_is_exactly_zero_under_a_wide_filter(transform):
    model = build()
    gradient = transform(nnx.grad(loss_of, argnums=nnx.DiffState(0, SAVED)))(model)
    assert gradient["position_table"][...].shape == (50, 8)
    assert not gradient["position_table"][...].any()
    assert gradient["embedding"][...].any()


def test_a_table_moved_by_a_wide_filter_with_decay_is_found():
    model = build()
    optimizer = nnx.Optimizer(model, optax.adamw(0.1, weight_decay=0.5), wrt=SAVED)
    gradient = nnx.grad(loss_of, argnums=nnx.DiffState(0, SAVED))(model)
    optimizer.update(model, gradient)
    with pytest.raises(ValueError, match=r"row 0, column 1 holds 0\.9499"):
        model(IDS)
    with pytest.raises(ValueError, match=r"row 0, column 1 holds 0\.9499"):
        restore(nnx.state(model, SAVED), nnx.state(model, SAVED))


@pytest.mark.parametrize("max_len", [40, 50, 60])
def test_a_model_built_from_shapes_alone_is_filled_by_restore(max_len):
    saved = build()
    model = nnx.eval_shape(lambda: build(max_len=max_len))
    restored, notes = restore(nnx.state(saved, nnx.Param), nnx.state(model, SAVED))
    nnx.update(model, restored)
    assert notes == ()
    assert isinstance(model.position_table, Constant)
    np.testing.assert_array_equal(model.position_table[...], sinusoidal_table(max_len, 8))
    np.testing.assert_array_equal(model(IDS), saved(IDS))


def test_a_checkpoint_of_orbax_comes_back_bit_for_bit(tmp_path):
    orbax = pytest.importorskip("orbax.checkpoint")
    saved = build()
    with orbax.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", nnx.to_pure_dict(nnx.state(saved, SAVED)))
        checkpointer.wait_until_finished()
        stored = checkpointer.restore(tmp_path / "state")
    model = build(max_len=60)
    nnx.update(model, restore(stored, nnx.state(model, SAVED))[0])
    np.testing.assert_array_equal(model.embedding[...], saved.embedding[...])
    np.testing.assert_array_equal(model.position_table[...], sinusoidal_table(60, 8))
    np.testing.assert_array_equal(model(IDS), saved(IDS))


def test_the_pure_function_is_what_the_module_computes():
    model = build(padding_idx=0, dropout_rate=0.5, deterministic=False, scale=2.0)
    key = jax.random.key(5)
    expected = transformer_input(
        IDS,
        model.embedding[...],
        model.position_table[...],
        positions=jnp.arange(6) + 3,
        scale=2.0,
        padding_idx=0,
        dropout_rate=0.5,
        dropout_key=key,
    )
    np.testing.assert_array_equal(model(IDS, jnp.arange(6) + 3, rngs=key), expected)
