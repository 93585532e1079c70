"""The gradient: nothing for the padding row, all of it for the others."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_input.embedding import embed_tokens

DTYPES = [np.float32, jnp.bfloat16, np.float16]
PAIRS = [(np.float32, dtype) for dtype in DTYPES] + [(dtype, dtype) for dtype in DTYPES[1:]]
GRID = np.arange(32, dtype=np.float32).reshape(8, 4)


def draw(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_stored_padding_row_is_read_as_it_is_unless_zeros_are_asked_for():
    embedding = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    assert embed_tokens([0, 1], embedding, padding_idx=0).tolist() == [[1, 2, 3], [4, 5, 6]]
    zeroed = embed_tokens([0, 1], embedding, padding_idx=0, zero_padding=True, scale=-2.0)
    assert zeroed.tolist() == [[0, 0, 0], [-8, -10, -12]]
    assert not np.signbit(zeroed[0]).any()
    unreadable = np.full((2, 3), np.nan, np.float32)
    assert embed_tokens([0], unreadable, padding_idx=0, zero_padding=True).tolist() == [[0, 0, 0]]


PADDED_IDS = np.array([[3, 0, 5], [5, 3, 3]], np.int32)


def energy(embedding, token_ids=PADDED_IDS, **options):
    rows = embed_tokens(token_ids, embedding, padding_idx=3, scale="sqrt", **options)
    return jnp.sum(jnp.sin(rows))


@pytest.mark.parametrize("zero_padding", [False, True])
@pytest.mark.parametrize(
    "gradient",
    [
        lambda loss: jax.grad(loss),
        lambda loss: jax.jit(jax.grad(loss)),
        lambda loss: jax.jacfwd(loss),
        lambda loss: jax.grad(jax.checkpoint(loss)),
        lambda loss: lambda w: jax.vmap(jax.grad(loss))(jnp.stack([w, 2 * w]))[0],
        lambda loss: lambda w: jax.jvp(jax.grad(loss), (w,), (jnp.ones_like(w),))[1],
    ],
    ids=["grad", "jit", "jacfwd", "remat", "vmap", "jvp-of-grad"],
)
def test_padding_row_gets_a_gradient_of_exactly_zero(gradient, zero_padding):
    embedding = jnp.asarray(draw((8, 4)))
    result = gradient(lambda w: energy(w, zero_padding=zero_padding))(embedding)
    used = np.any(np.asarray(result) != 0, axis=1)
    assert used.tolist() == [True, False, False, False, False, True, False, False]


def test_padding_row_gets_no_gradient_in_scan_and_hessian():
    embedding = jnp.asarray(draw((8, 4)))

    def scanned(w):
        return jax.lax.scan(lambda total, ids: (total + energy(w, ids), None), 0.0, PADDED_IDS)[0]

    np.testing.assert_allclose(jax.grad(scanned)(embedding), jax.grad(energy)(embedding), rtol=1e-6)
    assert (jax.grad(scanned)(embedding)[3] == 0).all()
    curvature = np.asarray(jax.hessian(energy)(embedding))
    assert (curvature[3] == 0).all()
    assert (curvature[:, :, 3] == 0).all()
    # d2/dw2 sin(2 w) = -4 sin(2 w), twice for the id that comes twice.
    np.testing.assert_allclose(curvature[5, 0, 5, 0], -8 * np.sin(2 * embedding[5, 0]), rtol=1e-5)


def test_padding_row_stays_clean_of_nan_that_flows_back():
    _, pullback = jax.vjp(lambda w: embed_tokens([3, 5], w, padding_idx=3, scale=2), GRID)
    (gradient,) = pullback(jnp.full((2, 4), jnp.inf))
    assert (gradient[3] == 0).all()
    assert np.isinf(gradient[5]).all()


def test_clipped_id_that_reads_the_padding_row_does_not_train_it():
    call = partial(embed_tokens, [-5, 1], padding_idx=0, out_of_range="clip")
    assert jax.grad(lambda w: call(w).sum())(GRID)[:2, 0].tolist() == [0, 1]


@pytest.mark.parametrize("padding_idx", [7, np.int64(7), np.uint8(7)])
def test_padding_idx_may_be_the_last_row_and_any_integer_type(padding_idx):
    gradient = jax.grad(lambda w: embed_tokens([7, 6], w, padding_idx=padding_idx).sum())(GRID)
    assert gradient[6:, 0].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("padding_idx", "error", "text"),
    [
        (-1, ValueError, r"from 0 to 7 \(vocab_size - 1\), got -1\. Where PyTorch has -1"),
        (8, ValueError, r"from 0 to 7 \(vocab_size - 1\), got 8"),
        (True, TypeError, "None or a Python integer, got bool True"),
        (0.0, TypeError, "None or a Python integer, got float 0.0"),
        ("0", TypeError, "None or a Python integer, got str '0'"),
    ],
)
def test_padding_idx_that_is_no_row_is_refused(padding_idx, error, text):
    with pytest.raises(error, match=f"`padding_idx` must be {text}"):
        embed_tokens([0], GRID, padding_idx=padding_idx)


def test_zero_padding_without_a_padding_row_is_refused():
    with pytest.raises(ValueError, match="`zero_padding` is True, but `padding_idx` is None"):
        embed_tokens([0], GRID, zero_padding=True)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize(("param_dtype", "dtype"), [*PAIRS, (jnp.bfloat16, np.float32)])
def test_row_that_is_hit_4096_times_gets_all_of_its_gradient(param_dtype, dtype, transform):
    # A bfloat16 sum of ones stops at 256, a float16 one at 2,048.
    call = partial(embed_tokens, np.zeros(4_096, np.int32), dtype=dtype)
    _, pullback = jax.vjp(call, jnp.ones((4, 2), param_dtype))
    (gradient,) = transform(pullback)(jnp.ones((4_096, 2), dtype))
    assert gradient.dtype == param_dtype
    assert np.asarray(gradient, np.float32).tolist() == [[4_096] * 2, [0] * 2, [0] * 2, [0] * 2]


@pytest.mark.parametrize("d_model", [512, 300])
@pytest.mark.parametrize(("param_dtype", "dtype"), [*PAIRS, (jnp.bfloat16, np.float32)])
def test_gradient_is_scaled_and_summed_in_float32_and_rounded_once(param_dtype, dtype, d_model):
    # Each row is hit at most twice, so that the order of the sum does not matter.
    token_ids = np.random.default_rng(0).permutation(np.arange(128) % 80).reshape(4, 32)
    cotangent = draw((4, 32, d_model), dtype, seed=1)
    parts = cotangent.astype(np.float32) * np.float32(np.sqrt(d_model))
    expected = np.zeros((100, d_model), np.float32)
    np.add.at(expected, token_ids, parts)

    def gradient(token_ids, embedding, cotangent):
        call = partial(embed_tokens, token_ids, scale="sqrt", dtype=dtype)
        return jax.vjp(call, embedding)[1](cotangent)[0]

    embedding = draw((100, d_model), param_dtype)
    for transform in (lambda f: f, jax.jit, lambda f: jax.jit(jax.checkpoint(f))):
        actual = transform(gradient)(token_ids, embedding, cotangent)
        np.testing.assert_array_equal(actual, expected.astype(param_dtype))
