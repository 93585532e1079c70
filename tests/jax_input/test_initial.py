"""Parameters of an encoder: their tree, their distribution, their draws."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_input.config import EncoderConfig
from jax_input.initial import encoder_params

CONFIG = EncoderConfig(num_layers=2, d_model=96, num_heads=4, d_ff=160, final_norm=True)
PROJECTION = {"kernel": (2, 96, 4, 24), "bias": (2, 4, 24)}
NORM = {"scale": (2, 96), "bias": (2, 96)}
SHAPES = {
    "layers": {
        "attention": {
            "query": PROJECTION,
            "key": PROJECTION,
            "value": PROJECTION,
            "out": {"kernel": (2, 4, 24, 96), "bias": (2, 96)},
        },
        "attention_norm": NORM,
        "feed_forward": {
            "in": {"kernel": (2, 96, 160), "bias": (2, 160)},
            "out": {"kernel": (2, 160, 96), "bias": (2, 96)},
        },
        "feed_forward_norm": NORM,
    },
    "final_norm": {"scale": (96,), "bias": (96,)},
}


def named(params):
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf, np.float64)
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    }


@pytest.fixture(scope="module")
def params():
    return encoder_params(jax.random.key(0), CONFIG)


def test_the_tree_has_the_shapes_of_the_config(params):
    assert jax.tree.map(jnp.shape, params) == SHAPES
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        # Glorot over [3 * d_model, d_model], and 1 / sqrt(rows) for the others.
        *(
            (f"attention/{name}/kernel", (6 / (4 * 96)) ** 0.5)
            for name in ("query", "key", "value")
        ),
        ("attention/out/kernel", 96**-0.5),
        *(("feed_forward/in/kernel", 96**-0.5), ("feed_forward/in/bias", 96**-0.5)),
        *(("feed_forward/out/kernel", 160**-0.5), ("feed_forward/out/bias", 160**-0.5)),
    ],
)
def test_drawn_leaves_are_uniform_within_the_bounds_of_pytorch(params, name, bound):
    leaf = named(params["layers"])[name]
    assert np.abs(leaf).max() <= bound * (1 + 2**-23)
    # The largest of n is below 1 - 20 / n by a chance of e**-20; moments within 5 sigma.
    assert np.abs(leaf).max() >= bound * (1 - 20 / leaf.size)
    assert abs(leaf.mean()) <= 5 * bound / (3 * leaf.size) ** 0.5
    assert abs((leaf**2).mean() - bound**2 / 3) <= 5 * bound**2 * (4 / 45 / leaf.size) ** 0.5
    # Each layer is drawn by itself.
    assert (leaf[0] != leaf[1]).mean() > 0.99


def test_biases_of_attention_and_norms_are_zero_and_scales_one(params):
    for name, leaf in named(params).items():
        if name.endswith("scale"):
            assert (leaf == 1).all()
        elif name.endswith("bias") and "feed_forward/" not in name:
            assert (leaf == 0).all()
        else:
            assert (leaf != 0).mean() > 0.99


def test_no_two_leaves_share_their_draws(params):
    drawn = [leaf for name, leaf in named(params).items() if name.endswith("kernel")]
    heads = {leaf.ravel()[:50].tobytes() for leaf in drawn}
    of_sizes = {(leaf / np.abs(leaf).max()).ravel()[:4].round(3).tobytes() for leaf in drawn}
    assert len(heads) == len(of_sizes) == 6


def test_one_key_gives_one_draw_and_another_another(params):
    again = encoder_params(jax.random.key(0), CONFIG)
    jax.tree.map(np.testing.assert_array_equal, params, again)
    other = named(encoder_params(jax.random.key(1), CONFIG))
    assert (
        other["layers/feed_forward/in/kernel"] != params["layers"]["feed_forward"]["in"]["kernel"]
    ).all()
    words = encoder_params(jax.random.PRNGKey(0), CONFIG)
    jax.tree.map(np.testing.assert_array_equal, params, words)


def test_parameters_are_drawn_in_float32_and_rounded(params):
    narrow = encoder_params(jax.random.key(0), replace(CONFIG, param_dtype=jnp.bfloat16))
    jax.tree.map(
        lambda a, b: np.testing.assert_array_equal(a, b.astype(jnp.bfloat16)), narrow, params
    )
    assert {leaf.dtype for leaf in jax.tree.leaves(narrow)} == {np.dtype(jnp.bfloat16)}


def test_without_biases_and_a_final_norm_the_others_are_drawn_alike(params):
    config = replace(CONFIG, use_bias=False, final_norm=False)
    bare = named(encoder_params(jax.random.key(0), config))
    expected = {name for name in named(params["layers"]) if not name.endswith("bias")}
    assert set(bare) == {f"layers/{name}" for name in expected}
    for name, leaf in bare.items():
        assert leaf.shape == named(params)[name].shape


@pytest.mark.slow
def test_it_compiles_and_gives_the_same_bits():
    config = replace(CONFIG, d_model=12, d_ff=8)
    key = jax.random.key(4)
    jax.tree.map(
        np.testing.assert_array_equal,
        jax.jit(encoder_params, static_argnums=1)(key, config),
        encoder_params(key, config),
    )


def test_what_is_no_key_is_refused():
    with pytest.raises(TypeError, match=r"must be one key, such as jax\.random\.key\(0\), got int"):
        encoder_params(0, CONFIG)
