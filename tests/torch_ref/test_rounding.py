import math

import numpy as np
import pytest
import torch

from torch_ref.phase import BITS
from torch_ref.rounding import FORMATS, narrow, round_exactly, round_once, rounded, widen

ROUNDED = [torch.float32, torch.bfloat16, torch.float16]


def neighbours(dtype):
    """Return each non-negative 16-bit value up to 2, and the next one, in float64."""
    bits = torch.arange(2**15, dtype=torch.int32).to(torch.int16)
    values = bits.view(dtype).double()
    values = values[values <= 2]
    return values[:-1], values[1:]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_16_bit_value_is_itself_and_its_surroundings_round_to_it(dtype):
    low, high = neighbours(dtype)
    # bfloat16 has numbers below the smallest float64 step of this test's arithmetic; none here.
    quarter = (high - low) / 4
    assert torch.equal(round_once(low, dtype)[0], low)
    assert torch.equal(round_once(low + quarter, dtype)[0], low)
    assert torch.equal(round_once(high - quarter, dtype)[0], high)
    assert torch.equal(round_once(-high + quarter, dtype)[0], -high)
    assert not round_once(low + quarter, dtype)[1].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_tie_and_its_neighbours_in_float64_are_in_doubt(dtype):
    low, high = neighbours(dtype)
    tie = (low + high) / 2
    for value in (tie, tie * (1 + 2.0**-52), tie * (1 - 2.0**-52)):
        assert round_once(value, dtype)[1].all()


def test_float32_agrees_with_numpy():
    values = np.random.default_rng(0).normal(size=100_000) * 2.0 ** np.arange(-150, -50).repeat(
        1000
    )
    rounded, _ = round_once(torch.from_numpy(values), torch.float32)
    np.testing.assert_array_equal(rounded.numpy(), values.astype(np.float32).astype(np.float64))


@pytest.mark.parametrize(
    ("dtype", "value", "once", "twice"),
    [
        (torch.bfloat16, 1 + 2.0**-8 + 2.0**-30, 1 + 2.0**-7, 1.0),
        (torch.float16, 1 + 2.0**-11 + 2.0**-30, 1 + 2.0**-10, 1.0),
    ],
)
def test_narrow_rounds_once_where_torch_rounds_twice(dtype, value, once, twice):
    x = torch.tensor(value, dtype=torch.float64)
    assert x.to(dtype).item() == twice
    assert narrow(x, dtype).item() == once


@pytest.mark.parametrize("dtype", ROUNDED)
@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan"), 0.0, -0.0, 1e300])
def test_narrow_keeps_what_is_not_rounded(dtype, value):
    x = torch.tensor(value, dtype=torch.float64)
    got, want = narrow(x, dtype), x.to(dtype)
    assert got.dtype == dtype
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    assert torch.signbit(got) == torch.signbit(want)


@pytest.mark.parametrize("dtype", ROUNDED)
def test_narrow_of_float32_is_the_cast(dtype):
    x = torch.from_numpy(np.random.default_rng(0).normal(size=10_000)).float() * 10.0 ** (
        torch.arange(10_000) % 12 - 8
    )
    assert torch.equal(narrow(x, dtype), x.to(dtype))
    assert torch.equal(rounded(x, dtype), x.to(dtype).float())


def test_widen_is_float32_unless_it_is_float64():
    assert [widen(torch.zeros(1, dtype=dtype)).dtype for dtype in (*ROUNDED, torch.float64)] == [
        *[torch.float32] * 3,
        torch.float64,
    ]


@pytest.mark.parametrize("dtype", ROUNDED)
def test_gradient_passes_through_narrow(dtype):
    x = torch.tensor([0.3, -0.7], dtype=torch.float64, requires_grad=True)
    narrow(x, dtype).backward(torch.tensor([2.0, 3.0], dtype=dtype))
    assert x.grad.tolist() == [2, 3]
    assert x.grad.dtype == torch.float64


@pytest.mark.parametrize("dtype", ROUNDED)
def test_small_negative_values_round_to_minus_zero(dtype):
    below_half_a_step = -(2.0 ** (FORMATS[dtype][1] - 2))
    rounded, _ = round_once(torch.tensor([below_half_a_step], dtype=torch.float64), dtype)
    assert rounded.item() == 0
    assert torch.signbit(rounded).all()


@pytest.mark.parametrize(
    ("in_steps", "expected"), [(0.4, 0), (0.6, 1), (1.4, 1), (1.6, 2), (1000.4, 1000)]
)
@pytest.mark.parametrize("sign", [-1, 1])
def test_integers_round_with_gradual_underflow(in_steps, expected, sign):
    # So small an angle is its own sine to within 2**-28 of it.
    turns = sign * in_steps * 2.0**-24 / math.tau
    value = round_exactly(1, int(turns * 2.0**BITS), torch.float16, cosine=False)
    assert value == sign * expected * 2.0**-24


def test_integers_round_to_minus_zero_too():
    tiny_turn = -(1 << 200)  # 2**-56 turns, where BITS is 256
    value = round_exactly(1, tiny_turn, torch.float16, cosine=False)
    assert str(value) == "-0.0"
