import math

import numpy as np
import pytest
import torch

from torch_ref import sinusoidal_table
from torch_ref.published import (
    LongPositionalEncoding,
    ShortPositionalEncoding,
    VocabularyFirstEmbedding,
    WidthFirstEmbedding,
)

ENCODINGS = [ShortPositionalEncoding, LongPositionalEncoding]
IDS = torch.tensor([[100, 2, 421, 300], [500, 888, 306, 509]])


def test_both_argument_orders_build_the_same_table_and_scale():
    for module in (VocabularyFirstEmbedding(1_000, 512), WidthFirstEmbedding(512, 1_000)):
        (weight,) = module.parameters()
        assert weight.shape == (1_000, 512)
        assert torch.equal(module(IDS), weight[IDS] * math.sqrt(512))
        assert module(IDS).shape == (2, 4, 512)


@pytest.mark.parametrize(
    ("encoding", "rows"), [(ShortPositionalEncoding, 60), (LongPositionalEncoding, 5_000)]
)
def test_default_rows_and_the_saved_buffer(encoding, rows):
    module = encoding(16, 0.1)
    assert list(module.state_dict()) == ["pe"]
    assert module.pe.shape == (1, rows, 16)
    assert not list(module.parameters())


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_rows_are_added_and_dropped(encoding):
    module = encoding(16, 0.5)
    x = torch.zeros(2, 4, 16)
    assert torch.equal(module.eval()(x), module.pe[:, :4].expand(2, 4, 16))
    torch.manual_seed(0)
    dropped = module.train()(x)
    torch.manual_seed(0)
    assert torch.equal(dropped, torch.nn.functional.dropout(x + module.pe[:, :4], 0.5))


@pytest.mark.parametrize(("rows", "error"), [(60, 3.1e-6), (512, 3.0e-5), (5_000, 3.9e-4)])
def test_the_float32_formula_is_off_by_this_much(rows, error):
    table = ShortPositionalEncoding(512, 0.0, max_len=rows).pe[0].double()
    exact = sinusoidal_table(rows, 512, dtype=torch.float64)
    assert (table - exact).abs().max().item() == pytest.approx(error, rel=0.05)


@pytest.mark.parametrize("column", [2, 100, 510])
def test_angles_are_products_in_float32(column):
    table = LongPositionalEncoding(512, 0.0).pe[0]
    frequency = torch.tensor(float(column)).mul(-math.log(10_000.0) / 512).exp()
    angle = torch.tensor(4_999.0) * frequency
    # The sine of one number and of many may differ in the last place; a wider angle by 1e-4.
    expected = torch.stack([angle.sin(), angle.cos()])
    torch.testing.assert_close(table[4_999, column : column + 2], expected, rtol=0, atol=2.0**-23)


def test_no_row_is_off_at_position_0():
    assert ShortPositionalEncoding(8, 0.0).pe[0, 0].tolist() == [0, 1] * 4


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("d_model", [5, 7, 127])
def test_an_odd_width_raises(encoding, d_model):
    with pytest.raises(RuntimeError, match="expanded size of the tensor"):
        encoding(d_model, 0.1)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_another_max_len_does_not_load(encoding):
    state = encoding(16, 0.1, max_len=60).state_dict()
    with pytest.raises(RuntimeError, match="size mismatch for pe"):
        encoding(16, 0.1, max_len=40).load_state_dict(state)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_table_of_one_row_is_broadcast_and_a_longer_one_is_not(encoding):
    x = torch.zeros(1, 5, 16)
    one = encoding(16, 0.0, max_len=1)(x)
    assert torch.equal(one[0, 4], one[0, 0])
    with pytest.raises(RuntimeError, match="must match the size"):
        encoding(16, 0.0, max_len=4)(x)


def test_the_table_is_cast_with_the_model_and_follows_the_default_dtype():
    half = ShortPositionalEncoding(512, 0.0).bfloat16().pe[0]
    assert (half.double() - sinusoidal_table(60, 512, dtype=torch.float64)).abs().max() > 1.9e-3
    torch.set_default_dtype(torch.float64)
    try:
        wide = ShortPositionalEncoding(512, 0.0).pe[0]
    finally:
        torch.set_default_dtype(torch.float32)
    assert wide.dtype == torch.float64
    np.testing.assert_allclose(wide, sinusoidal_table(60, 512, dtype=torch.float64), atol=1e-12)
