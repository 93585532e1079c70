"""One law: linen == nnx == the pure function, bit for bit, forward and gradient."""

from functools import partial

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jax_input.linen
import jax_input.nnx
from jax_input.config import EncoderConfig
from jax_input.initial import encoder_params
from jax_input.inputs import transformer_input
from jax_input.masks import padding_mask
from jax_input.positions import position_ids, positions_from_mask
from jax_input.sinusoidal import sinusoidal_table
from jax_input.stack import encoder

pytestmark = pytest.mark.usefixtures("programs_run_once")

# The square root of 48 is no power of two, so that a product and a sum could be contracted.
VOCAB_SIZE, D_MODEL, MAX_LEN = 20, 48, 30
SIZES = {"vocab_size": VOCAB_SIZE, "d_model": D_MODEL, "max_len": MAX_LEN}
OPTIONS = {"padding_idx": 0, "dropout_rate": 0.25}
IDS = np.random.default_rng(0).integers(0, VOCAB_SIZE, (3, 9))
# dtype, param_dtype, with dropout.
CASES = [
    (jnp.float32, jnp.float32, False),
    (jnp.float32, jnp.float32, True),
    (jnp.bfloat16, jnp.float32, True),
    (jnp.bfloat16, jnp.bfloat16, False),
    (jnp.float16, jnp.float32, False),
    (jnp.float16, jnp.float16, True),
    (jnp.float64, jnp.float64, False),
]


def embedding_in(dtype):
    return jax.random.normal(jax.random.key(1), (VOCAB_SIZE, D_MODEL), dtype)


def cotangent_in(dtype):
    # Drawn outside of any program: in it, a 16-bit one may be used before it is rounded.
    return jax.random.normal(jax.random.key(2), (*IDS.shape, D_MODEL), dtype)


def with_gradient(forward):
    """Return the output and the gradient of its product with a cotangent."""

    def both(embedding, cotangent):
        x, pull = jax.vjp(forward, embedding)
        return x, pull(cotangent)[0]

    return both


def pure(dtype, key, positions):
    table = sinusoidal_table(MAX_LEN, D_MODEL, dtype=dtype)
    options = {**OPTIONS, "dropout_key": key, "positions": positions}
    return lambda embedding: transformer_input(IDS, embedding, table, **options)


def linen(dtype, param_dtype, is_training, positions, *, constants):
    """Return the forward of the linen module and the key that it draws its mask with."""
    model = jax_input.linen.TransformerInput(
        **SIZES, **OPTIONS, dtype=dtype, param_dtype=param_dtype, deterministic=not is_training
    )
    # This kind of key compiles five times as fast.
    rngs = {"dropout": jax.random.key(7, impl="rbg")}
    key = model.apply({}, rngs=rngs, method=lambda model: model.make_rng("dropout"))
    table = sinusoidal_table(MAX_LEN, D_MODEL, dtype=dtype)
    kept = {"constants": {"position_table": table}} if constants else {}

    def forward(embedding):
        variables = {"params": {"embedding": embedding}, **kept}
        return model.apply(variables, IDS, positions, rngs=rngs)

    return forward, key


def nnx_module(dtype, param_dtype, is_training, positions):
    model = jax_input.nnx.TransformerInput(
        **SIZES,
        **OPTIONS,
        dtype=dtype,
        param_dtype=param_dtype,
        deterministic=not is_training,
        rngs=nnx.Rngs(0),
    )
    graph, _, rest = nnx.split(model, nnx.Param, ...)

    def forward(embedding, key):
        param = nnx.State({"embedding": nnx.Param(embedding)})
        return nnx.merge(graph, param, rest)(IDS, positions, rngs=key)

    return forward


@pytest.mark.parametrize(
    ("dtype", "param_dtype", "is_training", "transform"),
    [*((*case, jax.jit) for case in CASES), (*CASES[0], lambda function: function)],
)
def test_the_shells_and_the_pure_function_are_equal(dtype, param_dtype, is_training, transform):
    with jax.enable_x64(dtype == jnp.float64):
        positions = None if is_training else np.arange(9)[::-1] * 3
        kept, key = linen(dtype, param_dtype, is_training, positions, constants=True)
        rebuilt, _ = linen(dtype, param_dtype, is_training, positions, constants=False)
        with_key = nnx_module(dtype, param_dtype, is_training, positions)
        forwards = {
            "pure": pure(dtype, key if is_training else None, positions),
            "linen": kept,
            "linen, params alone": rebuilt,
            "nnx": lambda embedding: with_key(embedding, key),
        }
        embedding, cotangent = embedding_in(param_dtype), cotangent_in(dtype)
        # The eager pure function is the reference of both transformations.
        expected, *others = (
            jax.tree.map(np.asarray, around(with_gradient(forward))(embedding, cotangent))
            for around, forward in [
                (lambda f: f, forwards["pure"]),
                *((transform, forward) for forward in forwards.values()),
            ]
        )
        assert expected[0].dtype == dtype
        assert expected[1].dtype == param_dtype
        assert expected[1][1:].any()
        assert not expected[1][0].any()
        for (x, gradient), name in zip(others, forwards, strict=True):
            np.testing.assert_array_equal(x, expected[0], err_msg=name)
            np.testing.assert_array_equal(gradient, expected[1], err_msg=name)
        assert (expected[0] == 0).any() == is_training


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_the_shells_equal_the_embed_of_flax_times_the_scale_plus_the_table(dtype):
    """The product is taken in float32 and rounded once; so is the sum."""
    embedding = embedding_in(dtype)
    theirs = flax.linen.Embed(VOCAB_SIZE, D_MODEL, dtype=dtype, param_dtype=dtype)
    rows = theirs.apply({"params": {"embedding": embedding}}, IDS)
    scaled = (rows.astype(jnp.float32) * np.float32(D_MODEL**0.5)).astype(dtype)
    table = sinusoidal_table(MAX_LEN, D_MODEL, dtype=dtype)
    expected = scaled + table[None, :9]

    model = jax_input.linen.TransformerInput(
        **SIZES, dtype=dtype, param_dtype=dtype, deterministic=True
    )
    variables = {"params": {"embedding": embedding}, "constants": {"position_table": table}}
    for apply in (model.apply, jax.jit(model.apply)):
        np.testing.assert_array_equal(apply(variables, IDS), expected)

    twin = nnx.Embed(VOCAB_SIZE, D_MODEL, dtype=dtype, param_dtype=dtype, rngs=nnx.Rngs(0))
    ours = jax_input.nnx.Embed(
        vocab_size=VOCAB_SIZE, d_model=D_MODEL, scale=None, param_dtype=dtype, rngs=nnx.Rngs(0)
    )
    twin.embedding[...] = ours.embedding[...] = embedding
    np.testing.assert_array_equal(ours(IDS), twin(IDS))


def test_the_gradient_equals_that_of_the_embed_of_flax():
    embedding = embedding_in(jnp.float32)
    table = sinusoidal_table(MAX_LEN, D_MODEL)
    theirs = flax.linen.Embed(VOCAB_SIZE, D_MODEL)
    model = jax_input.linen.TransformerInput(**SIZES, deterministic=True)

    def by_flax(embedding):
        rows = theirs.apply({"params": {"embedding": embedding}}, IDS)
        return rows * np.float32(D_MODEL**0.5) + table[None, :9]

    def by_ours(embedding):
        return model.apply({"params": {"embedding": embedding}}, IDS)

    cotangent = cotangent_in(jnp.float32)
    expected, got = (with_gradient(f)(embedding, cotangent) for f in (by_flax, by_ours))
    jax.tree.map(np.testing.assert_array_equal, got, expected)


def test_the_look_up_alone_scales_as_the_whole_does():
    sizes = {"vocab_size": 4, "d_model": 2}
    embeds = [jax_input.linen.Embed(**sizes), jax_input.nnx.Embed(**sizes, rngs=nnx.Rngs(0))]
    assert {embed.scale for embed in embeds} == {jax_input.linen.TransformerInput(**sizes).scale}


# The encoder, with all its parameters.


def encoder_config(dtype, param_dtype):
    options = {"d_ff": 64, "norm": "pre", "final_norm": True}
    return EncoderConfig(
        num_layers=2, d_model=D_MODEL, num_heads=4, **options, dtype=dtype, param_dtype=param_dtype
    )


def encoders(config):
    """Return the forward of the pure functions and of both shells, of all parameters."""
    options = {"config": config, "vocab_size": VOCAB_SIZE, "max_len": MAX_LEN, "padding_idx": 0}
    table = sinusoidal_table(MAX_LEN, D_MODEL, dtype=config.dtype)
    mask = padding_mask(IDS != 0, padding_side="any")
    model = jax_input.linen.Encoder(**options, deterministic=True)
    module = jax_input.nnx.Encoder(**options, deterministic=True, rngs=nnx.Rngs(0))
    graph, _, rest = nnx.split(module, nnx.Param, ...)

    def pure(params):
        x = transformer_input(IDS, params["embedding"], table, padding_idx=0)
        layers = {name: params[name] for name in ("layers", "final_norm")}
        return encoder(x, layers, config, mask=mask)

    def by_linen(params):
        variables = {"params": params, "constants": {"position_table": table}}
        return model.apply(variables, IDS, mask)

    def by_nnx(params):
        state = nnx.State(jax.tree.map(nnx.Param, params))
        return nnx.merge(graph, state, rest)(IDS, mask)

    return pure, by_linen, by_nnx


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "param_dtype"), [(jnp.float32, jnp.float32), (jnp.bfloat16, jnp.float32)]
)
def test_the_encoders_and_the_pure_functions_are_equal(dtype, param_dtype):
    config = encoder_config(dtype, param_dtype)
    params = encoder_params(jax.random.key(3), config) | {"embedding": embedding_in(param_dtype)}
    expected, *others = (
        jax.jit(with_gradient(forward))(params, cotangent_in(dtype)) for forward in encoders(config)
    )
    assert expected[0].dtype == dtype
    assert all(leaf.dtype == param_dtype for leaf in jax.tree.leaves(expected[1]))
    assert expected[1]["embedding"].any()
    assert expected[1]["layers"]["attention"]["query"]["kernel"].any()
    for got in others:
        jax.tree.map(np.testing.assert_array_equal, got, expected)


# Known values by either shell: the look-up with given weights, and the positions.


def linen_embed(embedding, token_ids, **options):
    vocab_size, d_model = embedding.shape
    sizes = {"vocab_size": vocab_size, "d_model": d_model, "param_dtype": embedding.dtype}
    model = jax_input.linen.Embed(**sizes, **options)
    return model.apply({"params": {"embedding": embedding}}, token_ids)


def nnx_embed(embedding, token_ids, **options):
    vocab_size, d_model = embedding.shape
    sizes = {"vocab_size": vocab_size, "d_model": d_model, "param_dtype": embedding.dtype}
    model = jax_input.nnx.Embed(**sizes, **options, rngs=nnx.Rngs(0))
    model.embedding[...] = embedding
    return model(token_ids)


def linen_encode(x, positions=None, **options):
    model = jax_input.linen.PositionalEncoding(d_model=x.shape[-1], deterministic=True, **options)
    _, constants = model.apply({}, x, positions, mutable=["constants"])
    return model.apply(constants, x, positions)


def nnx_encode(x, positions=None, **options):
    model = jax_input.nnx.PositionalEncoding(d_model=x.shape[-1], deterministic=True, **options)
    return model(x, positions)


EMBEDS, ENCODES = [linen_embed, nnx_embed], [linen_encode, nnx_encode]
GRID = jnp.arange(32.0).reshape(8, 4)


@pytest.mark.parametrize("embed", EMBEDS)
@pytest.mark.parametrize(
    ("d_model", "weight", "expected", "by_rounded_scale"),
    [(300, 5.0, 86.5, 87.0), (768, 11.0, 304.0, 306.0)],
)
def test_the_scale_is_not_rounded_to_bfloat16_unless_it_is_given_so(
    embed, d_model, weight, expected, by_rounded_scale
):
    embedding = jnp.full((1, d_model), weight, jnp.bfloat16)
    rounded = float(jnp.bfloat16(d_model**0.5))
    for options, value in (({}, expected), ({"scale": rounded}, by_rounded_scale)):
        row = embed(embedding, [0], **options)
        assert row.dtype == jnp.bfloat16
        assert np.unique(np.asarray(row, np.float32)).tolist() == [value]


@pytest.mark.parametrize("embed", EMBEDS)
@pytest.mark.parametrize(
    ("token_ids", "named", "rows"),
    [
        ([8], r"8 at \[0\]", [[np.nan] * 4]),
        ([-1], r"-1 at \[0\]", [[np.nan] * 4]),
        ([-9], r"-9 at \[0\]", [[np.nan] * 4]),
        ([1, 8], r"8 at \[1\]", [[4, 5, 6, 7], [np.nan] * 4]),
    ],
)
def test_an_id_without_a_row_raises_where_known_and_reads_nan_where_traced(
    embed, token_ids, named, rows
):
    with pytest.raises(ValueError, match=f"`token_ids` holds {named}"):
        embed(GRID, token_ids)
    traced = jax.jit(partial(embed, GRID, scale=None))
    np.testing.assert_array_equal(traced(np.array(token_ids)), rows)


@pytest.mark.parametrize("embed", EMBEDS)
def test_an_id_without_a_row_takes_no_gradient_from_the_others(embed):
    def loss(embedding, token_ids):
        rows = embed(embedding, token_ids, scale=None)
        return jnp.sum(rows, where=~jnp.isnan(rows))

    gradient = jax.jit(jax.grad(loss))(GRID, np.array([1, 8]))
    assert gradient.tolist() == [[0] * 4, [1] * 4, *[[0] * 4] * 6]


@pytest.mark.parametrize("embed", EMBEDS)
def test_a_vocabulary_of_one_does_not_accept_id_7(embed):
    with pytest.raises(ValueError, match=r"`token_ids` holds 7 at \[0\]"):
        embed(GRID[:1], [7])
    assert np.isnan(jax.jit(partial(embed, GRID[:1]))(np.array([7]))).all()


@pytest.mark.parametrize("embed", EMBEDS)
@pytest.mark.parametrize(("zero_padding", "row"), [(False, [1, 2, 3]), (True, [0, 0, 0])])
def test_a_padding_row_set_by_hand_is_read_or_zero_and_gets_no_gradient(embed, zero_padding, row):
    embedding = jnp.asarray([[1.0, 2, 3], *[[4.0, 5, 6]] * 4])
    call = partial(embed, token_ids=[0, 1], scale=None, padding_idx=0, zero_padding=zero_padding)
    assert call(embedding).tolist() == [row, [4, 5, 6]]
    gradient = jax.grad(lambda embedding: call(embedding).sum())(embedding)
    assert gradient.tolist() == [[0] * 3, [1] * 3, *[[0] * 3] * 3]


@pytest.mark.parametrize("encode", ENCODES)
@pytest.mark.parametrize(
    ("max_len", "d_model", "last_row"),
    [
        (4, 5, [0.141120008, -0.989992497, 0.075285293, 0.997162035, 0.001892871]),
        (
            3,
            7,
            [
                *[0.909297427, -0.416146837, 0.143440637, 0.989658923],
                *[0.010358764, 0.999946347, 0.000745519],
            ],
        ),
        (2, 1, [0.841470985]),
    ],
)
def test_odd_widths_have_the_values_of_the_formula(encode, max_len, d_model, last_row):
    encode = partial(encode, max_len=max_len)
    for call in (encode, jax.jit(encode)):
        rows = call(jnp.zeros((max_len, d_model)))
        np.testing.assert_allclose(rows[-1], last_row, rtol=0, atol=6e-8)


@pytest.mark.parametrize("encode", ENCODES)
@pytest.mark.parametrize(("dtype", "bound"), [(jnp.bfloat16, 2**-9), (jnp.float16, 2**-12)])
def test_16_bit_shells_keep_their_positions_apart(encode, dtype, bound):
    rows = encode(jnp.zeros((2_048, 512), dtype), max_len=2_048, dtype=dtype)
    rows = np.asarray(rows, np.float64)
    assert np.abs(rows - np.asarray(sinusoidal_table(2_048, 512), np.float64)).max() <= bound
    assert (rows[1:] != rows[:-1]).any(axis=1).all()
    if dtype == jnp.bfloat16:
        assert rows[257, 0] == -0.57421875


@pytest.mark.parametrize(("embed", "encode"), [*zip(EMBEDS, ENCODES, strict=True)])
def test_left_and_right_padding_and_none_give_the_same_bits(embed, encode):
    embedding = jax.random.normal(jax.random.key(0), (6, 8))

    def call(token_ids, positions=None):
        rows = embed(embedding, token_ids, padding_idx=0, zero_padding=True)
        return encode(rows, positions, max_len=5)

    token_ids = np.array([[0, 0, 3, 4, 5], [3, 4, 5, 0, 0]])
    left, right = call(token_ids, positions_from_mask(token_ids != 0))
    for tokens, padding in ((left[2:], left[:2]), (right[:3], right[3:])):
        np.testing.assert_array_equal(tokens, call([3, 4, 5]))
        np.testing.assert_array_equal(padding, [[0, 1] * 4] * 2)


@pytest.mark.parametrize("encode", ENCODES)
def test_positions_past_the_end_never_read_another_row(encode):
    x = jnp.zeros((4, 8))
    rows = jax.jit(lambda offset: encode(x, position_ids(4, offset=offset), max_len=16))(14)
    np.testing.assert_array_equal(rows[:2], sinusoidal_table(16, 8)[14:])
    assert np.isnan(rows[2:]).all()
    with pytest.raises(ValueError, match="seq_len 17, but the position table has max_len 16"):
        encode(jnp.zeros((17, 8)), max_len=16)
