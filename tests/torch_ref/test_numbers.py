"""Numbers in the place of Python's: NumPy's mean the same, other kinds are refused by name."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from torch_ref import (
    Embeddings,
    PositionalEncoding,
    Sinusoid,
    TransformerInput,
    dropout,
    embed_tokens,
    encode_positions,
    position_ids,
    sinusoidal_table,
    transformer_input,
)
from torch_ref.checkpoints import restore_table

KINDS = [np.int8, np.int32, np.int64, np.uint8, np.uint64]
IDS = torch.tensor([0, 1, 2])


def table(dtype=torch.float32):
    return torch.arange(1, 13, dtype=dtype).reshape(3, 4)


@pytest.mark.parametrize("rate", [np.float16(0.1), np.float32(0.1), np.float64(0.1), np.int64(0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_factor_of_a_numpy_rate_is_formed_in_float64(rate, dtype):
    x, mask = torch.ones(3, dtype=dtype), torch.ones(3, dtype=torch.bool)
    assert torch.equal(dropout(x, rate, mask=mask), dropout(x, float(rate), mask=mask))
    expected = torch.tensor(1 / (1 - float(rate)), dtype=dtype)
    assert torch.equal(dropout(x, rate, mask=mask), expected.expand(3))


def test_a_module_keeps_its_rate_as_a_python_number():
    module = PositionalEncoding(d_model=4, max_len=3, dropout_rate=np.float16(0.1))
    assert type(module.dropout_rate) is float


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_a_numpy_base_builds_the_same_table(dtype):
    sinusoid = Sinusoid(base=np.float64(1e4))
    got = sinusoidal_table(4, 8, sinusoid=sinusoid, dtype=dtype)
    assert torch.equal(got, sinusoidal_table(4, 8, dtype=dtype))
    real = torch.tensor([0.5, 2.0])
    assert torch.equal(encode_positions(real, 8, sinusoid=sinusoid), encode_positions(real, 8))


@pytest.mark.parametrize("kind", KINDS)
def test_numpy_sizes_and_offsets_are_sizes_and_offsets(kind):
    assert position_ids(kind(3), offset=kind(2)).tolist() == [2, 3, 4]
    expected = sinusoidal_table(4, 8)
    assert torch.equal(sinusoidal_table(kind(4), kind(8)), expected)
    assert torch.equal(encode_positions(torch.arange(4), kind(8)), expected)
    assert torch.equal(restore_table(expected, kind(3), kind(8)).table, expected[:3])
    module = TransformerInput(
        vocab_size=kind(3), d_model=kind(4), max_len=kind(6), padding_idx=kind(1)
    )
    assert module.embeddings.embedding.shape == (3, 4)
    assert torch.equal(module.positional_encoding.position_table, sinusoidal_table(6, 4))
    assert not module.embeddings.embedding[1].any()
    assert type(module.embeddings.padding_idx) is int


@pytest.mark.parametrize("kind", KINDS)
def test_a_numpy_padding_id_is_the_padding_id(kind):
    embedding = table().requires_grad_()
    rows = embed_tokens(IDS, embedding, padding_idx=kind(1), zero_padding=True)
    assert not rows[1].any()
    transformer_input(IDS, embedding, sinusoidal_table(3, 4), padding_idx=kind(1)).sum().backward()
    assert embedding.grad[:, 0].tolist() == [2, 0, 2]


@pytest.mark.parametrize("scale", [2, np.int8(2), np.float16(2), np.float64(2)])
def test_numpy_scales_are_numbers(scale):
    assert torch.equal(embed_tokens(IDS, table(), scale=scale), table() * 2)


@pytest.mark.parametrize("scale", [1e39, -1e300, 10**39, np.float64(1e39)])
def test_a_scale_beyond_float32_needs_a_float64_embedding(scale):
    wide = table(torch.float64)
    assert torch.equal(embed_tokens(IDS, wide, scale=scale), wide * float(scale))
    module = Embeddings(vocab_size=3, d_model=4, scale=scale, param_dtype=torch.float64)
    assert module(IDS).isfinite().all()
    for dtype in (torch.float32, torch.float16):
        with pytest.raises(ValueError, match="`scale` must be finite in float32"):
            embed_tokens(IDS, table(dtype), scale=scale)


@pytest.mark.parametrize("scale", [float("inf"), pytest.param(10**400, id="10**400"), np.nan])
def test_a_scale_beyond_float64_is_refused(scale):
    with pytest.raises(ValueError, match="`scale` must be finite in float64"):
        embed_tokens(IDS, table(torch.float64), scale=scale)


@pytest.mark.parametrize("value", [Fraction(1, 2), np.bool_(True), torch.tensor(0.5), 0.5j])
def test_what_is_no_number_of_python_or_numpy_is_refused(value):
    named = rf"must be a Python number, got {type(value).__name__}"
    with pytest.raises(TypeError, match=f"`scale` {named}"):
        embed_tokens(IDS, table(), scale=value)
    with pytest.raises(TypeError, match=f"`rate` {named}"):
        dropout(torch.ones(3), value)
    with pytest.raises(TypeError, match=f"`dropout_rate` {named}"):
        PositionalEncoding(d_model=4, dropout_rate=value)


@pytest.mark.parametrize("value", [np.float64(1), np.bool_(True), Fraction(1)])
def test_what_is_no_integer_is_refused(value):
    named = rf"must be a Python integer.*, got {type(value).__name__}"
    with pytest.raises(TypeError, match=f"`padding_idx` {named}"):
        embed_tokens(IDS, table(), padding_idx=value)
    with pytest.raises(TypeError, match=f"`seq_len` {named}"):
        position_ids(value)
    with pytest.raises(TypeError, match=f"`offset` {named}"):
        position_ids(1, offset=value)
