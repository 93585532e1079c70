"""One law: linen == nnx == the pure function, bit for bit, forward and gradient."""

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jax_input.linen
import jax_input.nnx
from jax_input.inputs import transformer_input
from jax_input.sinusoidal import sinusoidal_table

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
