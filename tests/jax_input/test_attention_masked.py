"""Queries without a key, NaN in what nobody may see, dropped weights, and what is refused."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_input.attention import dot_product_attention, multi_head_attention
from jax_input.mask_conventions import mask_from_bias
from jax_input.masks import causal_mask, mask_to_bias, padding_mask
from tests.jax_input.encoder_float64 import FLOATS, draw

# Two samples of three positions and width 4, as one head: the second is padding throughout, and the
# last query of the first may see nothing.
FULLY_MASKED = np.ones((2, 1, 3, 3), bool)
FULLY_MASKED[1] = False
FULLY_MASKED[0, 0, 2] = False


def vectors(dtype=np.float32):
    return [draw((2, 3, 1, 4), dtype, seed) for seed in range(3)]


def with_gradient(inputs, mask, **options):
    """Return the output and the gradient of the sum of its squares."""

    def loss(*x):
        output = dot_product_attention(*x, mask=mask, **options)
        return jnp.sum(output.astype(np.float32) ** 2), output

    return jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(*inputs)[::-1]


# Rows with every key masked


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("least", [None, "min", -np.inf])
def test_queries_without_a_key_give_0_and_other_rows_keep_their_bits(dtype, least):
    mask = FULLY_MASKED
    if least is not None:
        bias = mask_to_bias(mask, dtype)
        mask = mask_from_bias(bias if least == "min" else jnp.where(mask, bias, least))
    inputs = vectors(dtype)
    output, gradients = with_gradient(inputs, mask)
    _, weights = dot_product_attention(*inputs, mask=mask, return_weights=True)
    for masked in (output[1], output[0, 2], weights[1], weights[0, 0, 2]):
        assert not np.asarray(masked).any()
    unmasked = dot_product_attention(*inputs, mask=np.ones_like(FULLY_MASKED))
    np.testing.assert_array_equal(output[0, :2], unmasked[0, :2])
    for gradient in gradients:
        assert np.isfinite(np.asarray(gradient, np.float32)).all()
        assert not np.asarray(gradient[1]).any()
    assert not np.asarray(gradients[0][0, 2]).any()
    assert np.asarray(gradients[0][0, :2]).any()


def test_a_fully_padded_batch_gives_the_bias_and_finite_gradients():
    shapes = dict.fromkeys(("query", "key", "value"), (4, 2, 2)) | {"out": (2, 2, 4)}
    params = {name: {"kernel": draw(shape)} for name, shape in shapes.items()}
    params["out"]["bias"] = np.arange(4, dtype=np.float32)
    x, mask = draw((2, 3, 4)), padding_mask(np.zeros((2, 3), bool))
    y = multi_head_attention(x, params, mask=mask)
    np.testing.assert_array_equal(y, np.broadcast_to(np.arange(4), y.shape))

    def loss(params, x):
        return (multi_head_attention(x, params, mask=mask) ** 2).sum()

    of_params, of_x = jax.grad(loss, argnums=(0, 1))(params, x)
    assert of_params["out"].pop("bias").tolist() == [0, 12, 24, 36]
    assert not any(leaf.any() for leaf in jax.tree.leaves((of_params, of_x)))


# What no query may see, and queries that see nothing


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_nan_in_padding_leaks_neither_forward_nor_backward(dtype, poison):
    is_token = np.array([[1, 1, 0], [1, 0, 0]], bool)
    mask = padding_mask(is_token) & is_token[:, None, :, None]
    results = []
    for filler in (0, poison):
        kept = is_token[..., None, None]
        inputs = [np.where(kept, x, filler).astype(dtype) for x in vectors()]
        results.append(with_gradient(inputs, mask))
    clean, poisoned = map(jax.tree.leaves, results)
    for ours, theirs in zip(poisoned, clean, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert np.isfinite(np.asarray(ours, np.float32)).all()


def test_nan_of_one_head_stays_out_of_another_and_a_seen_one_is_told():
    mask = np.ones((1, 2, 2, 2), bool)
    mask[0, 1, :, 1] = False
    x = [draw((1, 2, 2, 4), seed=seed) for seed in range(3)]
    x[2][0, 1, 1] = np.nan
    assert np.isfinite(dot_product_attention(*x, mask=mask)).all()
    mask[0, 1, 0, 1] = True
    assert np.isnan(dot_product_attention(*x, mask=mask)[0, :, 1]).all()


# Dropped weights: queries of zeros weigh all keys alike, unit vectors as values tell them apart.


def dropped(rate, key, batch=3, num_heads=4, length=64, **options):
    query = jnp.zeros((batch, length, num_heads, 1))
    value = jnp.broadcast_to(jnp.eye(length)[None, :, None], (batch, length, num_heads, length))
    options |= {"dropout_rate": rate, "dropout_key": key}
    return np.asarray(dot_product_attention(query, query, value, **options)) * length


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_kept_weights_are_raised_and_their_mean_is_1(rate):
    weights = dropped(rate, jax.random.key(0))
    assert set(np.unique(weights)) == {0, np.float32(1 / (1 - rate))}
    sigma = (rate / (1 - rate) / weights.size) ** 0.5
    assert abs(weights.mean() - 1) <= 5 * sigma


def test_masks_differ_between_examples_heads_queries_and_calls():
    weights = dropped(0.5, jax.random.key(0))
    assert len({row.tobytes() for row in np.moveaxis(weights, 2, 1).reshape(-1, 64)}) == 3 * 4 * 64
    np.testing.assert_array_equal(weights, dropped(0.5, jax.random.key(0)))
    # Independent masks agree in half of the 49,152 entries, within 5 sigma of 1/2 sqrt(49,152).
    others = [dropped(0.5, jax.random.key(1)), weights[[1, 2, 0]], weights[:, :, [1, 2, 3, 0]]]
    for other in others:
        assert abs(np.sum(weights == other) - weights.size / 2) <= 2.5 * weights.size**0.5


def test_each_head_of_each_example_is_drawn_by_a_key_of_its_own():
    key, mask = jax.random.key(3), np.zeros((2, 3, 5, 5), bool)
    keys = jax.random.split(key, (2, 3))
    for example, head in np.ndindex(2, 3):
        mask[example, head] = jax.random.bernoulli(keys[example, head], np.float32(0.75), (5, 5))
    weights = dropped(0.25, key, batch=2, num_heads=3, length=5)
    np.testing.assert_array_equal(weights != 0, np.moveaxis(mask, 1, 2))


def test_keys_of_words_are_keys():
    weights = dropped(0.5, jax.random.PRNGKey(0))
    np.testing.assert_array_equal(weights, dropped(0.5, jax.random.key(0)))


def test_without_a_key_or_a_rate_nothing_is_dropped():
    inputs = vectors()
    expected = dot_product_attention(*inputs)
    for options in ({"dropout_rate": 0.5}, {"dropout_key": jax.random.key(0)}):
        np.testing.assert_array_equal(dot_product_attention(*inputs, **options), expected)
    everything = {"dropout_rate": 1, "dropout_key": jax.random.key(0)}
    assert not dot_product_attention(*inputs, **everything).any()


def test_returned_weights_are_those_before_dropout():
    options = {"dropout_rate": 0.5, "dropout_key": jax.random.key(0), "return_weights": True}
    output, weights = dot_product_attention(*vectors(), **options)
    plain, expected = dot_product_attention(*vectors(), return_weights=True)
    np.testing.assert_array_equal(weights, expected)
    assert (output != plain).any()


# Refused

X = np.zeros((2, 3, 1, 4), np.float32)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            (X[0], X, X),
            "`query`, `key` and `value` must have shape [batch, seq_len, num_heads, head_dim], got "
            "[3, 1, 4], [2, 3, 1, 4], [2, 3, 1, 4]. Split the last axis with",
        ),
        ((X, X[:1], X[:1]), "`query`, `key` and `value` must agree in batch and num_heads"),
        ((X, X, X[:, :2]), "`key` and `value` in seq_len"),
        ((X, X[..., :3], X), "in head_dim; got [2, 3, 1, 4], [2, 3, 1, 3], [2, 3, 1, 4]."),
        ((X, X[:, :, [0, 0]], X), "got [2, 3, 1, 4], [2, 3, 2, 4], [2, 3, 1, 4]."),
    ],
)
def test_shapes_that_do_not_fit_are_refused(inputs, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        dot_product_attention(*inputs)


def test_other_dtypes_are_refused():
    message = "`query`, `key` and `value` must have one dtype, got float32, float16, float32. Cast"
    with pytest.raises(TypeError, match=message):
        dot_product_attention(X, X.astype(np.float16), X)
    with pytest.raises(TypeError, match=r"`value` must hold float32, .*, got int32"):
        dot_product_attention(X, X, X.astype(np.int32))


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3), (2, 1, 3, 2), (3, 1, 3, 3), (2, 2, 3, 3)])
def test_masks_that_do_not_fit_are_refused(shape):
    message = (
        "`mask` must have shape [batch, num_heads, query, key], here [2, 1, 3, 3], with 1 where it "
        f"is the same for all; got {list(shape)}."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        dot_product_attention(X, X, X, mask=np.ones(shape, bool))


def test_masks_that_are_not_boolean_are_refused():
    with pytest.raises(TypeError, match=r"`mask` must .* True = may attend, got float32\. .*_bias"):
        dot_product_attention(X, X, X, mask=np.zeros((2, 1, 3, 3), np.float32))
    with pytest.raises(TypeError, match=r"got int32\. For 1 = may attend write mask == 1"):
        dot_product_attention(X, X, X, mask=causal_mask(3).astype(np.int32))


def test_rates_keys_and_flags_are_checked():
    with pytest.raises(ValueError, match=r"`dropout_rate` must be from 0 to 1, .*, got 2"):
        dot_product_attention(X, X, X, dropout_rate=2)
    with pytest.raises(TypeError, match=r"`key` \(`dropout_key`\) must be one key, .* got int"):
        dot_product_attention(X, X, X, dropout_rate=0.5, dropout_key=3)
    with pytest.raises(TypeError, match=r"`return_weights` must be True or False, .* got str"):
        dot_product_attention(X, X, X, return_weights="yes")
