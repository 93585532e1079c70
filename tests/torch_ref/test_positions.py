import pytest
import torch

from torch_ref import (
    add_positions,
    embed_tokens,
    encode_positions,
    position_ids,
    positions_from_mask,
    positions_from_segments,
    sinusoidal_table,
)

TOKEN, PAD = True, False


def same_bits(a, b):
    return a.dtype == b.dtype and torch.equal(a, b)


@pytest.mark.parametrize(
    ("seq_len", "offset", "expected"),
    [(3, 0, [0, 1, 2]), (1, 0, [0]), (2, 14, [14, 15]), (2, -1, [-1, 0])],
)
def test_position_ids_count_from_the_offset(seq_len, offset, expected):
    assert same_bits(
        position_ids(seq_len, offset=offset), torch.tensor(expected, dtype=torch.int32)
    )


def test_position_ids_reach_both_ends_of_int32():
    assert position_ids(2, offset=2**31 - 2).tolist() == [2**31 - 2, 2**31 - 1]
    assert position_ids(1, offset=-(2**31)).tolist() == [-(2**31)]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ([TOKEN, TOKEN, PAD], [0, 1, 0]),
        ([PAD, PAD, TOKEN, TOKEN], [0, 0, 0, 1]),
        ([TOKEN, PAD, TOKEN], [0, 0, 1]),
        ([PAD, PAD], [0, 0]),
        ([[PAD, TOKEN], [TOKEN, TOKEN]], [[0, 0], [0, 1]]),
        ([[[TOKEN]]], [[[0]]]),
    ],
)
def test_positions_from_mask_count_tokens(mask, expected):
    got = positions_from_mask(torch.tensor(mask))
    assert same_bits(got, torch.tensor(expected, dtype=torch.int32))


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        ([1, 1, 2, 2, 2], [0, 1, 0, 1, 2]),
        ([5], [0]),
        ([1, 1, 0, 0, 1], [0, 1, 0, 1, 0]),
        ([-3, -3, 7], [0, 1, 0]),
        ([[1, 2, 2], [0, 0, 0]], [[0, 0, 1], [0, 1, 2]]),
    ],
)
def test_positions_from_segments_count_within_each_run(segments, expected):
    got = positions_from_segments(torch.tensor(segments))
    assert same_bits(got, torch.tensor(expected, dtype=torch.int32))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_empty_batches_have_empty_positions(shape):
    assert positions_from_mask(torch.zeros(shape, dtype=torch.bool)).shape == shape
    assert positions_from_segments(torch.zeros(shape, dtype=torch.int64)).shape == shape


@pytest.mark.parametrize("shape", [(6, 8), (4, 6, 8), (2, 4, 6, 8), (0, 6, 8), (4, 0, 8)])
def test_rows_follow_the_last_axis_but_one(shape):
    table = sinusoidal_table(7, 8)
    got = add_positions(torch.zeros(shape), table)
    assert torch.equal(got, table[: shape[-2]].expand(shape))


def test_permuting_the_batch_permutes_the_result_and_swapping_tokens_does_not():
    table, embedding = sinusoidal_table(6, 8), torch.randn(9, 8)
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    got = add_positions(embed_tokens(ids, embedding), table)
    assert torch.equal(add_positions(embed_tokens(ids.flip(0), embedding), table), got.flip(0))
    forth = add_positions(embed_tokens(torch.tensor([1, 2]), embedding), table)
    back = add_positions(embed_tokens(torch.tensor([2, 1]), embedding), table)
    assert not torch.equal(back, forth.flip(0))


@pytest.mark.parametrize("positions", [[[3, 0], [6, 6]], [5, 1]])
@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.uint8])
def test_explicit_positions_choose_the_rows(positions, kind):
    table = sinusoidal_table(7, 8)
    positions = torch.tensor(positions, dtype=kind)
    got = add_positions(torch.zeros(2, 2, 8), table, positions=positions)
    assert torch.equal(got, table[positions.long()].expand(2, 2, 8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("table_dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_result_keeps_the_dtype_of_x_and_is_added_in_it(dtype, table_dtype):
    x = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    table = sinusoidal_table(5, 16, dtype=table_dtype)
    rows = table.to(dtype)
    assert same_bits(add_positions(x, table), x + rows)
    assert same_bits(add_positions(x, table, positions=torch.arange(5)), x + rows)


def test_padding_on_either_side_gives_the_same_tokens_the_same_result():
    table, embedding = sinusoidal_table(8, 16), torch.randn(9, 16)

    def encoded(ids):
        ids = torch.tensor(ids)
        x = embed_tokens(ids, embedding, padding_idx=0, zero_padding=True)
        return x, add_positions(x, table, positions=positions_from_mask(ids != 0))

    alone = encoded([3, 4, 5])[1]
    left_rows, left = encoded([0, 0, 3, 4, 5])
    right_rows, right = encoded([3, 4, 5, 0, 0])
    assert torch.equal(left[2:], alone)
    assert torch.equal(right[:3], alone)
    assert not left_rows[:2].any()
    assert not right_rows[3:].any()
    assert torch.equal(left[:2], table[:1].expand(2, 16))


def test_decoding_past_the_end_raises_and_can_be_computed_instead():
    table = sinusoidal_table(16, 8)
    x = torch.zeros(1, 4, 8)
    positions = position_ids(4, offset=14)
    with pytest.raises(ValueError, match=r"`positions` holds 16 at \[2\], .* from 0 to 15"):
        add_positions(x, table, positions=positions)
    computed = add_positions(x, encode_positions(positions, 8))
    assert torch.equal(computed[0], sinusoidal_table(18, 8)[14:])


def test_gradient_reaches_a_learned_table_and_x():
    table = torch.zeros(4, 2, requires_grad=True)
    x = torch.zeros(3, 2, 2, requires_grad=True)
    add_positions(x, table, positions=torch.tensor([3, 1])).sum().backward()
    assert table.grad.tolist() == [[0, 0], [3, 3], [0, 0], [3, 3]]
    assert torch.equal(x.grad, torch.ones(3, 2, 2))


@pytest.mark.parametrize("positions", [None, torch.tensor([0])])
@pytest.mark.parametrize("table_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [4096, 257])
def test_a_row_added_many_times_gets_every_gradient(table_dtype, count, positions):
    table = torch.zeros(1, 2, dtype=table_dtype, requires_grad=True)
    x = torch.zeros(count, 1, 2, dtype=torch.bfloat16)
    add_positions(x, table, positions=positions).sum().backward()
    expected = torch.tensor(float(count)).to(table_dtype).item()
    assert table.grad.tolist() == [[expected, expected]]


def test_a_row_beyond_float16_is_infinite_in_it():
    x = torch.full((1, 1), -10_000.0, dtype=torch.float16)
    assert add_positions(x, torch.tensor([[70_000.0]])).item() == float("inf")


@pytest.mark.parametrize(("rows", "seq_len"), [(1, 5), (4, 5), (16, 17)])
def test_a_sequence_longer_than_the_table_is_refused_and_never_broadcast(rows, seq_len):
    message = rf"seq_len {seq_len}, .* max_len {rows}\. .*max_len >= {seq_len}"
    with pytest.raises(ValueError, match=message):
        add_positions(torch.zeros(2, seq_len, 8), sinusoidal_table(rows, 8))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"positions": torch.tensor([0, -1])}, ValueError, "`positions` holds -1 at [1]"),
        (
            {"positions": torch.tensor([[0, 6]])},
            ValueError,
            "`positions` must have shape [3, 2] or",
        ),
        ({"positions": torch.tensor([0.0, 1])}, TypeError, "`positions` must hold integers"),
        ({"positions": torch.tensor([0, 1, 2])}, ValueError, "or [2], got [3]"),
        ({"positions": torch.tensor(0)}, ValueError, "or [2], got []"),
        ({"x": torch.zeros(2, 7)}, ValueError, "`x` must have shape [..., seq_len, 8]"),
        ({"x": torch.zeros(8)}, ValueError, "got [8]"),
        ({"x": torch.zeros(2, 8, dtype=torch.int32)}, TypeError, "`x` must be torch.float32"),
        ({"table": torch.zeros(1, 7, 8)}, ValueError, "`table` must have 2 axes"),
        ({"table": torch.zeros(7, 8, dtype=torch.bool)}, TypeError, "`table` must be torch.float"),
    ],
)
def test_wrong_arguments_are_refused(options, error, message):
    arguments = {"x": torch.zeros(3, 2, 8), "table": sinusoidal_table(7, 8), **options}
    with pytest.raises(error) as caught:
        add_positions(**arguments)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: position_ids(0), ValueError, "`seq_len` must be at least 1"),
        (lambda: position_ids(2.0), TypeError, "`seq_len` must be a Python integer"),
        (lambda: position_ids(2, offset=1.0), TypeError, "`offset` must be a Python integer"),
        (lambda: position_ids(2, offset=2**31 - 1), ValueError, "got 2147483647. Count from"),
        (
            lambda: position_ids(2, offset=-(2**31) - 1),
            ValueError,
            "`offset` must be from -(2**31)",
        ),
        (
            lambda: positions_from_mask(torch.tensor([1, 0])),
            TypeError,
            "`mask` must be a torch.bool",
        ),
        (lambda: positions_from_mask([True]), TypeError, "got list"),
        (
            lambda: positions_from_mask(torch.tensor(True)),
            ValueError,
            "`mask` must have a sequence",
        ),
        (
            lambda: positions_from_segments(torch.tensor([True])),
            TypeError,
            "`segment_ids` must hold",
        ),
        (lambda: positions_from_segments(torch.tensor(1)), ValueError, "`segment_ids` must have a"),
    ],
)
def test_wrong_counts_masks_and_segments_are_refused(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)
