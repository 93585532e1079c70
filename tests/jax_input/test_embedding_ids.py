"""Ids without a row: one policy, for known and for traced ids."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.experimental import checkify

from jax_input.embedding import embed_tokens

GRID = np.arange(32, dtype=np.float32).reshape(8, 4)


def traced(token_ids, embedding, **options):
    """Call with ids whose values are not known."""
    return jax.jit(lambda token_ids: embed_tokens(token_ids, embedding, **options))(token_ids)


@pytest.mark.parametrize(
    ("token_ids", "named"),
    [
        ([8], r"8 at \[0\]"),
        ([-1], r"-1 at \[0\]"),
        ([-9], r"-9 at \[0\]"),
        ([[1, 8]], r"8 at \[0, 1\]"),
        (np.array([2**31 + 1], np.uint32), rf"{2**31 + 1} at \[0\]"),
        (np.array([2**32 + 1]), rf"{2**32 + 1} at \[0\]"),
        (np.array([1, 2**63 + 5], np.uint64), rf"{2**63 + 5} at \[1\]"),
        (jnp.array([3, -2]), r"-2 at \[1\]"),
    ],
)
@pytest.mark.parametrize("out_of_range", ["error", "checkify"])
def test_known_id_without_a_row_raises_naming_it_and_its_place(token_ids, named, out_of_range):
    message = (
        rf"`token_ids` holds {named}, but `embedding` has vocab_size 8, so ids run from 0 to 7\. "
        r"Use the tokenizer of this embedding, or out_of_range='nan', 'clip' or 'zero'\."
    )
    with pytest.raises(ValueError, match=message):
        embed_tokens(token_ids, GRID, out_of_range=out_of_range)


def test_known_ids_raise_inside_a_program_too():
    with pytest.raises(ValueError, match=r"`token_ids` holds 8 at \[0\]"):
        jax.jit(lambda w: embed_tokens([8], w))(GRID)


@pytest.mark.parametrize(
    ("out_of_range", "rows"),
    [
        ("nan", [[np.nan] * 4, [np.nan] * 4, GRID[1], [np.nan] * 4]),
        ("zero", [[0] * 4, [0] * 4, GRID[1], [0] * 4]),
        ("clip", [GRID[0], GRID[0], GRID[1], GRID[7]]),
    ],
)
@pytest.mark.parametrize("call", [embed_tokens, traced])
def test_named_policy_holds_for_known_and_for_traced_ids(call, out_of_range, rows):
    actual = call(np.array([-9, -1, 1, 8]), GRID, out_of_range=out_of_range, scale=-1)
    np.testing.assert_array_equal(actual, -np.array(rows))
    assert not np.signbit(actual[0]).any() or out_of_range == "clip"


@pytest.mark.parametrize("token_ids", [[-9], [-1], [8], [2**31 - 1]])
def test_traced_id_without_a_row_reads_nan_by_default(token_ids):
    assert np.isnan(traced(np.array(token_ids), GRID)).all()


def test_vocabulary_of_one_accepts_the_id_zero_alone():
    np.testing.assert_array_equal(traced(np.array([0, 7]), GRID[:1])[0], GRID[0])
    assert np.isnan(traced(np.array([0, 7]), GRID[:1])[1]).all()
    with pytest.raises(ValueError, match=r"`token_ids` holds 7 at \[1\].* from 0 to 0"):
        embed_tokens([0, 7], GRID[:1])


@pytest.mark.parametrize(
    ("out_of_range", "row_zero", "last_row"),
    [("error", 0, 0), ("nan", 0, 0), ("zero", 0, 0), ("clip", 10, 100)],
)
def test_gradient_of_an_id_without_a_row_is_dropped_or_trains_the_nearest(
    out_of_range, row_zero, last_row
):
    weights = np.array([1.0, 10.0, 100.0], np.float32)[:, None]

    def loss(embedding, token_ids):
        rows = embed_tokens(token_ids, embedding, out_of_range=out_of_range)
        return jnp.sum(rows * weights, where=~jnp.isnan(rows))

    gradient = jax.jit(jax.grad(loss))(GRID, np.array([1, -1, 8]))
    assert gradient[:, 0].tolist() == [row_zero, 1, 0, 0, 0, 0, 0, last_row]


def test_checkify_names_a_traced_id_and_passes_good_ones():
    call = checkify.checkify(jax.jit(lambda ids: embed_tokens(ids, GRID, out_of_range="checkify")))
    error, _ = call(np.array([[1, 2], [-1, 9]], np.int32))
    assert "`token_ids` holds -1 at flat index 2, but `embedding` has vocab_size 8" in error.get()
    error, rows = call(np.array([[1, 2], [3, 7]], np.int32))
    assert error.get() is None
    np.testing.assert_array_equal(rows, GRID[[[1, 2], [3, 7]]])
    error, _ = call(np.zeros((0,), np.int32))
    assert error.get() is None


def test_wide_traced_ids_never_wrap_under_x64():
    with jax.enable_x64(True):
        assert np.isnan(traced(np.array([2**32 + 1]), GRID)).all()
        assert np.isnan(traced(np.array([2**64 - 1], np.uint64), GRID)).all()


@pytest.mark.parametrize("policy", ["raise", None, "wrap", "Error"])
def test_policy_that_does_not_exist_is_refused(policy):
    allowed = "'error', 'nan', 'clip', 'zero', 'checkify'"
    with pytest.raises(
        ValueError, match=f"`out_of_range` must be one of {allowed}, got {policy!r}"
    ):
        embed_tokens([0], GRID, out_of_range=policy)


@given(
    token_ids=st.tuples(*[st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 9)] * 4),
    out_of_range=st.sampled_from(["nan", "zero", "clip"]),
    padding_idx=st.none() | st.integers(0, 7),
    zero_padding=st.booleans(),
)
def test_every_int64_id_of_the_host_reads_what_the_policy_says(
    token_ids, out_of_range, padding_idx, zero_padding
):
    zero_padding = zero_padding and padding_idx is not None
    expected = []
    for token_id in token_ids:
        nearest = min(max(token_id, 0), 7)
        row = GRID[nearest] * 2
        if zero_padding and nearest == padding_idx:
            row = row * 0
        if out_of_range != "clip" and nearest != token_id:
            row = np.full(4, np.nan if out_of_range == "nan" else 0)
        expected.append(row)
    actual = embed_tokens(
        np.array(token_ids, np.int64),
        GRID,
        scale=2,
        out_of_range=out_of_range,
        padding_idx=padding_idx,
        zero_padding=zero_padding,
    )
    np.testing.assert_array_equal(actual, np.array(expected))
