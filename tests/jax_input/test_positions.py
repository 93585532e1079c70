import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from jax_input.embedding import embed_tokens
from jax_input.positions import (
    add_positions,
    position_ids,
    positions_from_mask,
    positions_from_segments,
)

TABLE = np.arange(48, dtype=np.float32).reshape(16, 3) + 1


def draw(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# position_ids


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("offset", [0, 5, -3, np.int64(7), 2**31 - 4, -(2**31)])
def test_position_ids_count_from_the_offset_in_int32(offset, x64):
    with jax.enable_x64(x64):
        known = position_ids(4, offset=offset)
        unknown = jax.jit(lambda offset: position_ids(4, offset=offset))(offset)
    for positions in (known, unknown):
        assert positions.dtype == np.int32
        assert positions.tolist() == [offset + i for i in range(4)]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((0, 0), ValueError, "`seq_len` must be at least 1 .*, got 0"),
        ((2.0, 0), TypeError, "`seq_len` must be a Python integer, got float 2.0"),
        ((True, 0), TypeError, "`seq_len` must be a Python integer, got bool True"),
        ((2, 1.5), TypeError, "`offset` must hold integers, got float64"),
        ((2, True), TypeError, "`offset` must hold integers, got bool"),
        ((2, [1, 2]), ValueError, r"`offset` must be a scalar, got shape \[2\].*offset\[:, None\]"),
        ((4, 2**31 - 3), ValueError, r"2\*\*31 - `seq_len` = 2147483644, got 2147483645"),
        ((1, -(2**31) - 1), ValueError, r"from -\(2\*\*31\) to .*, got -2147483649"),
    ],
)
def test_position_ids_that_do_not_exist_are_refused(arguments, error, text):
    seq_len, offset = arguments
    with pytest.raises(error, match=text):
        position_ids(seq_len, offset=offset)


# positions_from_mask


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ([1, 1, 1, 0, 0], [0, 1, 2, 0, 0]),
        ([0, 0, 1, 1, 1], [0, 0, 0, 1, 2]),
        ([1, 0, 0, 1, 0], [0, 0, 0, 1, 0]),
        ([0, 0, 0, 0, 0], [0, 0, 0, 0, 0]),
        ([1], [0]),
        ([], []),
    ],
    ids=["right", "left", "gaps", "all", "single", "empty"],
)
def test_positions_count_tokens_past_padding_on_any_side(mask, expected):
    mask = np.array(mask, bool)
    assert positions_from_mask(mask).tolist() == expected
    assert positions_from_mask(mask.tolist() or mask).tolist() == expected


@given(mask=st_numpy.arrays(bool, st.sampled_from([(6,), (2, 5), (2, 1, 3), (0, 4)])))
def test_positions_from_mask_equal_a_count_token_by_token(mask):
    expected = np.zeros(mask.shape, np.int32)
    for place in np.ndindex(mask.shape[:-1]):
        seen = 0
        for index, is_token in enumerate(mask[place]):
            if is_token:
                expected[(*place, index)] = seen
                seen += 1
    for positions in (positions_from_mask(mask), jax.jit(positions_from_mask)(mask)):
        assert positions.dtype == np.int32
        np.testing.assert_array_equal(positions, expected)


@pytest.mark.parametrize("mask", [[1, 0], np.ones((2, 2), np.float32), np.zeros(2, np.uint8)])
def test_mask_that_is_not_boolean_is_refused_with_the_polarity_spelled_out(mask):
    message = "`mask` must be boolean, True at tokens and False at padding, got .* mask == 1"
    with pytest.raises(TypeError, match=message):
        positions_from_mask(mask)


def test_scalar_mask_and_segment_are_refused():
    with pytest.raises(ValueError, match=r"`mask` must have shape \[\*batch, seq_len\], got a sca"):
        positions_from_mask(True)
    with pytest.raises(ValueError, match=r"`segment_ids` must have shape \[\*batch, seq_len\], go"):
        positions_from_segments(3)


def test_left_and_right_padding_and_none_give_the_same_bits():
    embedding = draw((6, 3))
    rows = np.array([[0, 0, 3, 4, 5], [3, 4, 5, 0, 0]])
    padded = add_positions(embedding[rows], TABLE, positions=positions_from_mask(rows != 0))
    alone = add_positions(embedding[[3, 4, 5]], TABLE)
    np.testing.assert_array_equal(padded[0, 2:], alone)
    np.testing.assert_array_equal(padded[1, :3], alone)


def test_padding_on_either_side_is_zeroed_and_takes_position_0():
    token_ids = np.array([[0, 0, 3, 4, 5], [3, 4, 5, 0, 0]])
    x = embed_tokens(token_ids, draw((6, 3)), padding_idx=0, zero_padding=True)
    assert np.any(np.asarray(x) != 0, axis=-1).tolist() == (token_ids != 0).tolist()
    x = add_positions(x, TABLE, positions=positions_from_mask(token_ids != 0))
    np.testing.assert_array_equal(x[token_ids == 0], np.broadcast_to(TABLE[0], (4, 3)))


# positions_from_segments


@pytest.mark.parametrize("x64", [False, True])
def test_positions_start_again_with_each_run_of_equal_segment_ids(x64):
    segments = [[1, 1, 1, 2, 2, 0], [5, 3, 3, 5, 5, 5]]
    with jax.enable_x64(x64):
        positions = positions_from_segments(segments)
    assert positions.dtype == np.int32
    assert positions.tolist() == [[0, 1, 2, 0, 1, 0], [0, 0, 1, 0, 1, 2]]


@given(
    segments=st_numpy.arrays(
        st.sampled_from([np.int8, np.int64, np.uint32]),
        st.sampled_from([(7,), (2, 5), (2, 0)]),
        elements=st.integers(0, 2),
    )
)
def test_positions_from_segments_equal_a_count_token_by_token(segments):
    expected = np.zeros(segments.shape, np.int32)
    for place in np.ndindex(segments.shape[:-1]):
        for index in range(1, segments.shape[-1]):
            if segments[(*place, index)] == segments[(*place, index - 1)]:
                expected[(*place, index)] = expected[(*place, index - 1)] + 1
    np.testing.assert_array_equal(positions_from_segments(segments), expected)
    np.testing.assert_array_equal(jax.jit(positions_from_segments)(segments), expected)


def test_segment_ids_that_differ_beyond_32_bits_are_two_segments():
    assert positions_from_segments(np.array([0, 0, 2**32, 2**32])).tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("segments", [[0.0, 1.0], [True, False]])
def test_segment_ids_that_are_no_integers_are_refused(segments):
    with pytest.raises(TypeError, match=r"`segment_ids` must hold integers, got (float64|bool)"):
        positions_from_segments(segments)


@pytest.mark.parametrize("offset", [np.int32(2**31 - 1), np.uint32(2**31 + 5)])
def test_a_traced_offset_without_room_counts_from_the_nearest_with_it(offset):
    got = jax.jit(lambda offset: position_ids(3, offset=offset))(offset)
    assert got.tolist() == [2**31 - 3, 2**31 - 2, 2**31 - 1]


def test_a_wide_offset_is_not_cut():
    with jax.enable_x64(True):
        got = jax.jit(lambda offset: position_ids(3, offset=offset))(2**40)
    assert got.tolist() == [2**31 - 3, 2**31 - 2, 2**31 - 1]
