"""Attention: its values, weights, derivatives, and what is kept for the backward pass."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_input.attention
from jax_input.attention import dot_product_attention
from jax_input.masks import causal_mask, padding_mask
from tests.jax_input import encoder_float64 as exact
from tests.jax_input.encoder_float64 import FLOATS, attention_bounds, draw, wide

SHAPES = (2, 5, 3, 8), (2, 7, 3, 8), (2, 7, 3, 4)
BY_HEAD = np.random.default_rng(9).random((2, 3, 5, 7)) < 0.6
BY_HEAD[0, 1, 2] = False
MASKS = {
    "none": None,
    "by head": BY_HEAD,
    "of keys": BY_HEAD[:, :1, :1],
    "of queries": BY_HEAD[:, :1, :, :1],
    "of heads": BY_HEAD[:1, :, :1, :1],
    "of examples": np.array([True, False])[:, None, None, None],
    "nothing": np.zeros((1, 1, 1, 1), bool),
}


def vectors(dtype=np.float32):
    return [draw(shape, dtype, seed) for seed, shape in enumerate(SHAPES)]


def by_softmax(query, key, value, mask=None):
    """The same without care: every array of [query, key] is kept, and NaN leaks."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(query.shape[-1])
    if mask is not None:
        scores = jnp.where(jnp.broadcast_to(mask, scores.shape), scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), value)


# Values


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_output_and_weights_are_those_of_the_formula(mask, dtype):
    inputs = vectors(dtype)
    output = dot_product_attention(*inputs, mask=mask)
    again, weights = dot_product_attention(*inputs, mask=mask, return_weights=True)
    assert output.dtype == again.dtype == dtype
    assert weights.dtype == np.float32
    expected, expected_weights, _ = exact.attention(*inputs, mask)
    bound, of_weights = attention_bounds(*inputs, mask)
    for actual in (output, again):
        assert (np.abs(wide(actual) - expected) <= bound).all()
    assert (np.abs(wide(weights) - expected_weights) <= of_weights).all()
    # The weights agree with the output that they come with.
    averaged = np.einsum("bhqk,bkhd->bqhd", wide(weights), wide(inputs[2]))
    assert (np.abs(wide(again) - averaged) <= 2 * bound).all()


def test_float64_is_computed_in_float64():
    with jax.enable_x64(True):
        inputs = vectors(np.float64)
        results = dot_product_attention(*inputs, mask=BY_HEAD, return_weights=True)
        output, weights = map(np.asarray, results)
    assert output.dtype == weights.dtype == np.float64
    expected, _, _ = exact.attention(*inputs, BY_HEAD)
    # Twice the bound, since the formula is rounded as well.
    assert (np.abs(output - expected) <= 2 * attention_bounds(*inputs, BY_HEAD)[0]).all()


def test_float16_scores_above_its_range_are_no_overflow():
    query = np.full((1, 2, 1, 4), 200, np.float16)  # 160,000, halved
    key = np.array([200, 1], np.float16)[None, :, None, None] * np.ones((1, 1, 1, 4), np.float16)
    value = np.array([3, 5], np.float16)[None, :, None, None]
    assert dot_product_attention(query, key, value).ravel().tolist() == [3, 3]


def test_sums_of_16_bits_are_float32():
    """4,097 equal keys of value 1 average to 1; summed in bfloat16 they would stop at 256."""
    zeros, ones = (jnp.full((1, 4_097, 1, 1), x, jnp.bfloat16) for x in (0, 1))
    assert float(dot_product_attention(zeros[:, :1], zeros, ones)[0, 0, 0, 0]) == 1


@pytest.mark.parametrize("axis", range(4))
def test_a_mask_with_an_axis_of_1_says_the_same_for_all(axis):
    mask = BY_HEAD.take([0], axis)
    whole, inputs = np.broadcast_to(mask, BY_HEAD.shape), vectors()
    bounds = attention_bounds(*inputs, mask)
    for options in ({}, {"return_weights": True}):
        results = (dot_product_attention(*inputs, mask=m, **options) for m in (mask, whole))
        # Each is as near to the formula as the other; a compiler may sum in another order.
        for ours, theirs, bound in zip(*map(jax.tree.leaves, results), bounds, strict=False):
            assert (np.abs(wide(ours) - wide(theirs)) <= 2 * bound).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mask", "dropout_key"),
    [(None, None), (BY_HEAD[:1], jax.random.key(1)), (BY_HEAD[:, :1, :1], None)],
)
def test_what_other_devices_compute_is_what_a_cpu_computes(monkeypatch, mask, dropout_key):
    inputs = vectors()

    def call(*given):
        return dot_product_attention(*given, mask=mask, dropout_rate=0.25, dropout_key=dropout_key)

    def with_gradient():
        output, pullback = jax.vjp(call, *inputs)
        return output, *pullback(draw(output.shape, seed=5))

    on_cpu = with_gradient()
    jax_input.attention._recomputed.clear_cache()
    chosen = []

    def other(*arguments, cpu, default):
        chosen.append(default)
        return default(*arguments)

    monkeypatch.setattr(jax_input.attention.lax, "platform_dependent", other)
    elsewhere = with_gradient()
    jax_input.attention._recomputed.clear_cache()
    assert [one.func for one in chosen].count(jax_input.attention._together) == 1
    # Sums of at most 8 terms in another order; the largest stands for the sum of their sizes.
    for ours, theirs in zip(on_cpu, elsewhere, strict=True):
        bound = 8 * 8 * np.finfo(np.float32).eps * np.abs(ours).max()
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound)


def test_it_can_be_lowered_for_a_gpu_and_a_tpu():
    traced = jax.jit(jax.grad(lambda *x: dot_product_attention(*x, mask=BY_HEAD).sum()))
    for platform in ("cuda", "tpu"):
        text = traced.trace(*vectors()).lower(lowering_platforms=(platform,)).as_text()
        assert "stablehlo.while" not in text  # one head after another is for a CPU alone


# Derivatives


@pytest.mark.slow
def test_jvp_gradient_and_hessian_are_those_of_a_plain_softmax_in_float64():
    with jax.enable_x64(True):
        inputs = [x[1:].astype(np.float64) for x in vectors()]
        tangents = [draw(x.shape, np.float64, seed=7) for x in inputs]
        seen = BY_HEAD[1:]
        assert seen.any(3).all()  # a plain softmax over nothing is NaN

        def derivatives(function):
            def loss(*x):
                return jnp.sin(function(*x, mask=seen)).sum()

            return {
                "jvp": jax.jvp(partial(function, mask=seen), inputs, tangents),
                "gradient": jax.grad(loss, argnums=(0, 1, 2))(*inputs),
                "hessian": jax.hessian(loss, argnums=1)(*inputs),
            }

        ours, theirs = derivatives(dot_product_attention), derivatives(by_softmax)
    # Sums of at most 15 terms, three one after the other, of numbers below 100 or so.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=15 * 3 * 100 * 2**-52),
        *(ours, theirs),
    )
    assert np.abs(ours["hessian"]).max() > 0.01


def test_no_floats_of_query_times_key_are_kept_for_the_backward_pass():
    x = [draw((2, 37, 3, 4), seed=seed) for seed in range(3)]

    def kept(function):
        _, pullback = jax.vjp(function, *x)
        sizes = [leaf.size for leaf in jax.tree.leaves(pullback) if leaf.dtype != np.bool_]
        return max(sizes) >= 37 * 37

    mask = causal_mask(37)
    for options in ({}, {"dropout_rate": 0.5, "dropout_key": jax.random.key(0)}):
        assert not kept(partial(dot_product_attention, mask=mask, **options))
    assert kept(partial(by_softmax, mask=mask))


def test_a_mask_is_not_kept_for_each_head():
    x = [draw((2, 600, 3, 4), seed=seed) for seed in range(3)]
    mask = padding_mask(np.arange(600) < np.array([[600], [500]])) & causal_mask(600)
    _, pullback = jax.vjp(partial(dot_product_attention, mask=mask), *x)
    assert max(leaf.size for leaf in jax.tree.leaves(pullback)) == mask.size


@pytest.mark.parametrize("seq_len", [37, 600])  # many heads at once, and one
def test_the_usual_policy_keeps_no_scores(seq_len):
    x = [draw((1, seq_len, 2, 4), seed=seed) for seed in range(3)]

    def largest(policy):
        _, pullback = jax.vjp(jax.checkpoint(dot_product_attention, policy=policy), *x)
        return max(leaf.size for leaf in jax.tree.leaves(pullback))

    policies = jax.checkpoint_policies
    assert largest(policies.dots_with_no_batch_dims_saveable) < seq_len * seq_len
    assert largest(policies.dots_saveable) >= seq_len * seq_len


def test_the_backward_pass_holds_the_scores_of_one_head_at_a_time():
    def needed(seq_len):
        x = jax.ShapeDtypeStruct((1, seq_len, 16, 1), np.float32)
        gradient = jax.grad(lambda *x: dot_product_attention(*x).sum(), argnums=(0, 1, 2))
        return jax.jit(gradient).lower(x, x, x).compile().memory_analysis().temp_size_in_bytes

    # So long that one head of sixteen is taken at a time: a few arrays of [query, key].
    assert needed(2_048) <= 6 * 2_048 * 2_048 * 4
