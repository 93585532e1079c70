import re

import pytest
import torch

from torch_ref.masks import (
    block_diagonal_mask,
    causal_mask,
    local_window_mask,
    mask_to_bias,
    padding_mask,
    segment_mask,
)


def booleans(rows):
    return torch.tensor(rows, dtype=torch.bool)


def test_padding_is_hidden_from_every_query():
    is_token = booleans([[1, 1, 0], [1, 1, 1]])
    mask = padding_mask(is_token)
    assert mask.dtype == torch.bool
    assert mask.shape == (2, 1, 1, 3)
    assert torch.equal(mask[:, 0, 0], is_token)


@pytest.mark.parametrize(
    ("side", "row", "end", "other"),
    [
        ("right", [0, 0, 1, 1], "first", "left"),
        ("right", [0, 1, 1, 1], "first", "left"),
        ("left", [1, 1, 0, 0], "last", "right"),
    ],
)
def test_an_inverted_padding_mask_is_told(side, row, end, other):
    rows = booleans([[1, 1, 1, 1], row])
    with pytest.warns(UserWarning, match=f"hides the {end} position of row 1 ") as caught:
        padding_mask(rows, padding_side=side)
    assert f'padding_side="{other}"' in str(caught[0].message)
    assert "pass ~is_token" in str(caught[0].message)
    assert caught[0].filename == __file__


def test_the_mask_of_ids_5_6_0_0_warns_the_wrong_way_round_alone():
    token_ids = torch.tensor([[5, 6, 0, 0]])
    assert padding_mask(token_ids != 0).flatten().tolist() == [True, True, False, False]
    with pytest.warns(UserWarning, match="position of row 0"):
        padding_mask(token_ids == 0)


@pytest.mark.parametrize(
    ("side", "rows"),
    [
        ("right", [[1, 0, 1], [0, 0, 0]]),
        ("left", [[0, 0, 1], [0, 0, 0]]),
        ("any", [[0, 1, 0], [1, 0, 1]]),
    ],
)
def test_other_padding_masks_give_no_warning(side, rows):  # which would be an error here
    assert torch.equal(padding_mask(booleans(rows), padding_side=side)[:, 0, 0], booleans(rows))


def test_masks_without_positions_or_values_pass():
    assert padding_mask(torch.ones(2, 0, dtype=torch.bool)).shape == (2, 1, 1, 0)
    assert padding_mask(torch.ones(2, 3, dtype=torch.bool, device="meta")).shape == (2, 1, 1, 3)


def test_padding_mask_refuses_other_words_and_shapes():
    with pytest.raises(ValueError, match="`padding_side` must be 'right' or 'left' or 'any'"):
        padding_mask(booleans([[1]]), padding_side="both")
    with pytest.raises(ValueError, match=re.escape("[batch, seq_len], got [3]")):
        padding_mask(booleans([1, 1, 0]))


def test_a_causal_query_sees_itself_and_what_was_before():
    assert torch.equal(causal_mask(4), torch.ones(1, 1, 4, 4, dtype=torch.bool).tril())


@pytest.mark.parametrize("window", [0, 1, 3, 5, 99, 2**62, (2, 0), (0, 2), (1, 99)])
def test_a_window_is_a_band(window):
    left, right = window if isinstance(window, tuple) else (window, window)
    mask = local_window_mask(6, window)
    assert mask.shape == (1, 1, 6, 6)
    for query in range(6):
        for key in range(6):
            assert mask[0, 0, query, key] == (query - left <= key <= query + right)


def test_the_published_window_of_three_is_window_1():
    published = torch.ones(7, 7).tril(1).triu(-1)
    assert torch.equal(local_window_mask(7, 1)[0, 0], published == 1)


@pytest.mark.parametrize("window", [(1, 2, 3), 1.0, True, "1", (1, None)])
def test_what_is_no_window_is_refused(window):
    with pytest.raises(TypeError, match="`window` must be"):
        local_window_mask(4, window)


def test_a_negative_window_is_refused():
    with pytest.raises(ValueError, match=re.escape("at least 0 on either side, got (1, -1)")):
        local_window_mask(4, (1, -1))


def test_blocks_are_those_of_block_diag():
    blocks = torch.block_diag(torch.ones(4, 4), torch.ones(4, 4), torch.ones(2, 2))
    assert torch.equal(block_diagonal_mask(10, 4)[0, 0], blocks == 1)
    assert block_diagonal_mask(3, 99).all()


@pytest.mark.parametrize(
    "call",
    [causal_mask, lambda n: local_window_mask(n, 1), lambda n: block_diagonal_mask(n, 1)],
)
def test_what_is_no_length_is_refused(call):
    with pytest.raises(ValueError, match="`seq_len` must be at least 1"):
        call(0)
    with pytest.raises(TypeError, match="`seq_len` must be a Python integer"):
        call(2.0)


def test_what_is_no_block_size_is_refused():
    with pytest.raises(ValueError, match="`block_size` must be at least 1"):
        block_diagonal_mask(3, 0)


def test_equal_segments_see_each_other():
    mask = segment_mask(torch.tensor([[7, 7, -1], [0, 1, 0]]))
    assert mask.shape == (2, 1, 3, 3)
    assert mask[:, 0].tolist() == [
        [[True, True, False], [True, True, False], [False, False, True]],
        [[True, False, True], [False, True, False], [True, False, True]],
    ]


def test_what_are_no_segments_is_refused():
    with pytest.raises(ValueError, match=re.escape("[batch, seq_len], got [2]")):
        segment_mask(torch.tensor([0, 1]))
    with pytest.raises(TypeError, match="`segment_ids` must hold integers"):
        segment_mask(torch.zeros(1, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_a_bias_of_masks_that_all_hide_a_key_has_one_sentinel(dtype):
    padding = padding_mask(booleans([[0, 0, 0, 0], [1, 1, 0, 0]]))
    combined = padding & causal_mask(4) & local_window_mask(4, 1)
    bias = mask_to_bias(combined, dtype)
    assert bias.dtype == dtype
    assert bias.shape == (2, 1, 4, 4)
    assert torch.equal(bias == 0, combined)
    assert torch.equal(bias == torch.finfo(dtype).min, ~combined)
    weights = bias.softmax(-1)
    assert weights.isfinite().all()


def test_the_bias_is_float32_by_default():
    assert mask_to_bias(causal_mask(2)).dtype == torch.float32
    with pytest.raises(TypeError, match=r"`dtype` must be torch\.float32, .* got torch\.int8"):
        mask_to_bias(causal_mask(2), torch.int8)


@pytest.mark.parametrize("call", [padding_mask, mask_to_bias])
@pytest.mark.parametrize(
    ("mask", "got", "way_out"),
    [
        (torch.zeros(2, 3), "torch.float32", "use `mask_from_bias`"),
        (torch.ones(2, 3, dtype=torch.int64), "torch.int64", "for 1 = hidden mask == 0"),
        ([[True]], "list", "mask == 1"),
    ],
)
def test_masks_that_are_not_boolean_are_refused(call, mask, got, way_out):
    with pytest.raises(TypeError, match="with True = may attend") as caught:
        call(mask)
    assert f"got {got}." in str(caught.value)
    assert way_out in str(caught.value)
