import math

import numpy as np
import pytest
import torch
from torch import nn

from torch_ref import embed_tokens


def table(vocab_size=8, d_model=4, dtype=torch.float32):
    return torch.arange(vocab_size * d_model, dtype=dtype).reshape(vocab_size, d_model)


def grid(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 0), (2, 3), (2, 3, 4)])
def test_result_has_the_shape_of_the_ids_and_one_more_axis(shape):
    ids = torch.arange(math.prod(shape)).reshape(shape) % 8
    rows = embed_tokens(ids, table())
    assert torch.equal(rows, table()[ids])
    assert rows.shape == (*shape, 4)


@pytest.mark.parametrize("d_model", [300, 512])
def test_scale_is_rounded_to_float32_and_the_product_once(d_model):
    embedding = grid((10, d_model))
    ids = torch.arange(10)
    expected = embedding.numpy() * np.float32(math.sqrt(d_model))
    np.testing.assert_array_equal(embed_tokens(ids, embedding, scale="sqrt"), expected)
    np.testing.assert_array_equal(
        embed_tokens(ids, embedding, scale=0.1), embedding.numpy() * np.float32(0.1)
    )


@pytest.mark.parametrize(("d_model", "entry", "expected"), [(300, 5.0, 86.5), (768, 11.0, 304.0)])
def test_bfloat16_products_are_formed_in_float32(d_model, entry, expected):
    embedding = torch.full((1, d_model), entry, dtype=torch.bfloat16)
    rows = embed_tokens(torch.tensor([0]), embedding, scale="sqrt")
    assert rows.dtype == torch.bfloat16
    assert rows.unique().tolist() == [expected]


@pytest.mark.parametrize("param_dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_every_pair_of_dtypes_takes_the_same_steps(param_dtype, dtype):
    embedding = grid((50, 48)).to(param_dtype)
    rows = embed_tokens(torch.arange(50), embedding, scale="sqrt", dtype=dtype)
    assert torch.equal(rows, (embedding.float() * math.sqrt(48)).to(dtype))


def test_float64_parameters_keep_float64_products():
    embedding = grid((50, 48)).double() / 3
    rows = embed_tokens(torch.arange(50), embedding, scale="sqrt")
    np.testing.assert_array_equal(rows, embedding.numpy() * math.sqrt(48))


def test_float64_products_round_to_16_bits_once():
    embedding = torch.tensor([[1 + 2.0**-8 + 2.0**-30]], dtype=torch.float64)
    rows = embed_tokens(torch.tensor([0]), embedding, dtype=torch.bfloat16)
    assert rows.item() == 1 + 2.0**-7


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint64"])
def test_every_integer_type_looks_the_same_row_up(kind):
    ids = torch.tensor([7, 0]).to(getattr(torch, kind))
    assert torch.equal(embed_tokens(ids, table()), table()[[7, 0]])


@pytest.mark.parametrize(
    ("ids", "value", "place"),
    [([8], 8, [0]), ([-1], -1, [0]), ([-9], -9, [0]), ([[1, 0], [1, 8]], 8, [1, 1]), (8, 8, [])],
)
def test_ids_out_of_range_raise_by_default(ids, value, place):
    with pytest.raises(ValueError, match="`token_ids`") as caught:
        embed_tokens(torch.tensor(ids), table())
    assert f"`token_ids` holds {value} at {place}, but must be from 0 to 7" in str(caught.value)
    assert "'nan', 'zero' or 'clip'" in str(caught.value)


def test_a_vocabulary_of_one_accepts_id_0_alone():
    assert embed_tokens(torch.tensor([0]), table(1)).tolist() == [[0, 1, 2, 3]]
    with pytest.raises(ValueError, match=r"holds 7 at \[0\], but must be from 0 to 0"):
        embed_tokens(torch.tensor([7]), table(1))


@pytest.mark.parametrize("zero_padding", [False, True])
@pytest.mark.parametrize(
    ("policy", "low", "high"),
    [("nan", [math.nan] * 4, [math.nan] * 4), ("zero", [0.0] * 4, [0.0] * 4), ("clip", 0, 7)],
)
def test_policies_for_ids_out_of_range(policy, low, high, zero_padding):
    embedding = table().requires_grad_()
    ids = torch.tensor([-1, 1, 8, -9, 2**40])
    rows = embed_tokens(
        ids, embedding, out_of_range=policy, padding_idx=3, zero_padding=zero_padding
    )
    rows.backward(torch.ones_like(rows))
    low = table()[low] if policy == "clip" else torch.tensor(low)
    high = table()[high] if policy == "clip" else torch.tensor(high)
    expected = torch.stack([low, table()[1], high, low, high])
    torch.testing.assert_close(rows.detach(), expected, rtol=0, atol=0, equal_nan=True)
    hits = [2, 1, 0, 0, 0, 0, 0, 2] if policy == "clip" else [0, 1, 0, 0, 0, 0, 0, 0]
    assert embedding.grad[:, 0].tolist() == hits


def test_a_huge_unsigned_id_is_above_the_vocabulary():
    ids = torch.tensor([2**64 - 1], dtype=torch.uint64)
    assert torch.equal(embed_tokens(ids, table(), out_of_range="clip"), table()[[7]])
    assert not embed_tokens(ids, table(), out_of_range="zero").any()
    with pytest.raises(ValueError, match=f"holds {2**64 - 1} at"):
        embed_tokens(ids, table())


def test_padding_row_is_read_as_stored_unless_zero_padding():
    embedding = torch.tensor([[1.0, 2, 3]] * 5)
    ids = torch.tensor([0, 1])
    assert embed_tokens(ids, embedding, padding_idx=0).tolist() == [[1, 2, 3], [1, 2, 3]]
    zeroed = embed_tokens(ids, embedding, padding_idx=0, zero_padding=True)
    assert zeroed.tolist() == [[0, 0, 0], [1, 2, 3]]


def test_zero_padding_reads_zero_even_where_nan_is_stored():
    embedding = torch.tensor([[math.nan], [1.0]])
    rows = embed_tokens(torch.tensor([0, 1]), embedding, padding_idx=0, zero_padding=True)
    assert rows.tolist() == [[0], [1]]


def test_an_id_clipped_to_the_padding_row_is_padding():
    rows = embed_tokens(
        torch.tensor([-5, 9]), table() + 1, out_of_range="clip", padding_idx=0, zero_padding=True
    )
    assert rows.tolist() == [[0] * 4, (table()[7] + 1).tolist()]


@pytest.mark.parametrize("zero_padding", [False, True])
@pytest.mark.parametrize("param_dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_padding_gradient_is_exactly_zero(zero_padding, param_dtype):
    embedding = grid((5, 3)).to(param_dtype).requires_grad_()
    rows = embed_tokens(
        torch.tensor([0, 1, 0, 2]), embedding, padding_idx=0, scale=3, zero_padding=zero_padding
    )
    rows.sum().backward()
    assert embedding.grad.dtype == param_dtype
    assert embedding.grad[:, 0].tolist() == [0, 3, 3, 0, 0]


@pytest.mark.parametrize("param_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_hit_4096_times_gets_4096(param_dtype, dtype):
    embedding = torch.zeros(4, 2, dtype=param_dtype, requires_grad=True)
    embed_tokens(torch.zeros(4096, dtype=torch.int64), embedding, dtype=dtype).sum().backward()
    assert embedding.grad[0].tolist() == [4096, 4096]
    assert not embedding.grad[1:].any()


def test_gradient_is_summed_in_float32_and_rounded_once():
    embedding = torch.zeros(3, 2, dtype=torch.bfloat16, requires_grad=True)
    ids = torch.arange(3_000) % 3
    cotangent = grid((3_000, 2)).bfloat16()
    embed_tokens(ids, embedding, scale=0.3).backward(cotangent)
    exact = (cotangent.double() * float(np.float32(0.3))).reshape(1_000, 3, 2).sum(0)
    # 1,000 float32 additions of sums below 100, and half an ulp of bfloat16 (2**-8 of the value).
    bound = 1_000 * 100 * 2.0**-24 + exact.abs() * 2.0**-8
    assert ((embedding.grad.double() - exact).abs() <= bound).all()


# PyTorch's own forward mode of the look-up calls torch.jit.script, which it deprecates.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("scale", [None, "sqrt"])
def test_gradcheck_in_float64(scale):
    embedding = grid((5, 3)).double().requires_grad_()
    ids = torch.tensor([[4, 1, 1], [2, 4, 3]])

    def look_up(weights):
        return embed_tokens(ids, weights, scale=scale, padding_idx=0)

    assert torch.autograd.gradcheck(look_up, (embedding,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(look_up, (embedding,))


def test_scaled_rows_of_unit_normals_have_rms_sqrt_d():
    embedding = grid((2_000, 512))
    rows = embed_tokens(torch.arange(2_000), embedding, scale="sqrt")
    # The mean of 1,024,000 squares has a relative deviation of 1.4e-3; five of those, halved.
    assert rows.square().mean().sqrt().item() == pytest.approx(math.sqrt(512), rel=3.5e-3)


def test_autocast_does_not_change_a_bit():
    embedding = grid((8, 4))
    ids = torch.tensor([1, 7])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(embed_tokens(ids, embedding, scale="sqrt"), embedding[ids] * 2)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"scale": math.nan}, ValueError, "`scale` must be finite in float32, got nan"),
        ({"scale": 1e39}, ValueError, "`scale` must be finite in float32, got 1e+39"),
        ({"scale": "root"}, ValueError, "`scale` must be 'sqrt' or None, got 'root'"),
        ({"scale": True}, TypeError, "`scale` must be a Python number, got bool True"),
        ({"padding_idx": 8}, ValueError, "`padding_idx` must be from 0 to 7, got 8"),
        ({"padding_idx": -1}, ValueError, "Negative ids do not count from the end"),
        ({"padding_idx": 1.0}, TypeError, "`padding_idx` must be a Python integer or None"),
        ({"padding_idx": True}, TypeError, "got bool True"),
        ({"zero_padding": True}, ValueError, "`zero_padding` needs a `padding_idx`, got None"),
        ({"zero_padding": 1}, ValueError, "`zero_padding` must be True or False, got 1"),
        ({"out_of_range": "wrap"}, ValueError, "`out_of_range` must be 'error' or 'nan' or"),
        ({"dtype": torch.int8}, TypeError, "`dtype` must be torch.float32, bfloat16, float16"),
    ],
)
def test_wrong_options_are_refused(options, error, message):
    with pytest.raises(error) as caught:
        embed_tokens(torch.tensor([1]), table(), **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("ids", "embedding", "error", "message"),
    [
        (torch.tensor([1.0]), table(), TypeError, "`token_ids` must hold integers, got torch.floa"),
        (torch.tensor([True]), table(), TypeError, "`token_ids` must hold integers, got torch.boo"),
        ([1], table(), TypeError, "`token_ids` must be a torch.Tensor, got list"),
        (torch.tensor([1]), table()[0], ValueError, "`embedding` must have 2 axes and an entry"),
        (torch.tensor([1]), table()[:0], ValueError, "got shape [0, 4]"),
        (torch.tensor([1]), table().int(), TypeError, "`embedding` must be torch.float32"),
        (torch.tensor([1]), nn.Embedding(3, 2), TypeError, "`embedding` must be a torch.Tensor"),
    ],
)
def test_wrong_arguments_are_refused(ids, embedding, error, message):
    with pytest.raises(error) as caught:
        embed_tokens(ids, embedding)
    assert message in str(caught.value)
