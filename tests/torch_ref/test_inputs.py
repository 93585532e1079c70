import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from torch_ref import add_positions, dropout, embed_tokens, sinusoidal_table, transformer_input

RATES = [0.1, 0.2, 0.3, 0.5, 0.9]


def normals(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("rate", [*RATES, 0.15, 1 / 3])
def test_kept_values_are_multiplied_by_a_float32_factor(rate):
    x, mask = normals(4, 50), normals(4, 50) > 0
    expected = np.where(mask, x.numpy() * np.float32(1 / (1 - rate)), np.float32(0))
    np.testing.assert_array_equal(dropout(x, rate, mask=mask), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_16_bit_products_are_formed_in_float32_and_rounded_once(dtype, rate):
    x = normals(4, 500).to(dtype)
    mask = torch.ones(4, 500, dtype=torch.bool)
    got = dropout(x, rate, mask=mask)
    assert torch.equal(got, (x.float() * (1 / (1 - rate))).to(dtype))


@pytest.mark.parametrize("rate", RATES)
def test_draws_and_values_are_those_of_torch(rate):
    x = normals(3, 1_000)
    torch.manual_seed(5)
    expected = functional.dropout(x, rate)
    torch.manual_seed(5)
    assert torch.equal(dropout(x, rate), expected)


def test_at_other_rates_torch_rounds_the_rate_first_which_moves_the_factor_by_an_ulp():
    x = torch.ones(1_000)
    torch.manual_seed(5)
    theirs = functional.dropout(x, 0.15)
    torch.manual_seed(5)
    ours = dropout(x, 0.15)
    assert torch.equal(ours != 0, theirs != 0)
    assert ours.max().item() == float(np.float32(1 / (1 - 0.15)))
    assert theirs.max().item() == float(np.float32(1) / np.float32(1 - 0.15))
    assert (ours.max() - theirs.max()).abs().item() == 2.0**-23


def test_a_generator_of_its_own_repeats_and_leaves_the_global_one_alone():
    x = torch.ones(3, 64)
    state = torch.get_rng_state()
    first = dropout(x, 0.5, generator=generator())
    assert torch.equal(first, dropout(x, 0.5, generator=generator()))
    assert not torch.equal(first, dropout(x, 0.5, generator=generator(1)))
    assert torch.equal(torch.get_rng_state(), state)


def test_calls_and_examples_get_masks_of_their_own():
    x = torch.ones(3, 64)
    own = generator()
    first, second = dropout(x, 0.5, generator=own), dropout(x, 0.5, generator=own)
    assert not torch.equal(first, second)
    assert len({tuple(row.tolist()) for row in first}) == 3
    assert set(first.unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_the_mean_stays(rate):
    count = 1_000_000
    mean = dropout(torch.ones(count), rate, generator=generator()).double().mean().item()
    assert abs(mean - 1) <= 5 * math.sqrt(rate / (1 - rate) / count)


def test_rate_0_keeps_and_rate_1_drops_everything():
    x = normals(3, 4)
    assert torch.equal(dropout(x, 0.0), x)
    assert torch.equal(dropout(x, 1.0), torch.zeros(3, 4))
    assert torch.equal(dropout(x, 1.0, mask=torch.ones(3, 4, dtype=torch.bool)), torch.zeros(3, 4))


@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_a_dropped_nan_is_zero(rate):
    x = torch.tensor([math.nan, math.inf, 1.0])
    got = dropout(x, rate, mask=torch.tensor([False, False, True]))
    assert got.tolist() == [0, 0, 2 if rate == 0.5 else 0]


@pytest.mark.parametrize(("rate", "slope"), [(0.5, 2.0), (1.0, 0.0)])
def test_gradient_is_the_factor_where_kept(rate, slope):
    x = normals(2, 3).requires_grad_()
    mask = torch.tensor([[True, False, True], [False, True, True]])
    dropout(x, rate, mask=mask).sum().backward()
    assert torch.equal(x.grad, mask * slope)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"rate": 1.5}, ValueError, "`rate` must be in [0, 1], got 1.5"),
        ({"rate": -0.1}, ValueError, "`rate` must be in [0, 1], got -0.1"),
        ({"rate": math.nan}, ValueError, "`rate` must be in [0, 1], got nan"),
        ({"rate": "0.1"}, TypeError, "`rate` must be a Python number, got str '0.1'"),
        ({"rate": True}, TypeError, "`rate` must be a Python number, got bool"),
        ({"x": torch.ones(2, dtype=torch.int32)}, TypeError, "`x` must be torch.float32"),
        ({"mask": torch.ones(2)}, TypeError, "`mask` must be a torch.bool tensor"),
        ({"generator": 5}, TypeError, "`generator` must be a torch.Generator or None, got int 5"),
        ({"mask": [True, True]}, TypeError, "got list"),
        ({"mask": torch.tensor([True])}, ValueError, "`mask` has shape [1], but `x` has [2]"),
        (
            {"mask": torch.tensor([True, True]), "generator": generator()},
            ValueError,
            "`generator` and `mask` are both given",
        ),
    ],
)
def test_wrong_dropout_is_refused(arguments, error, message):
    with pytest.raises(error) as caught:
        dropout(**{"x": torch.ones(2), "rate": 0.5, **arguments})
    assert message in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("positions", [None, torch.tensor([[4, 0, 2, 2], [1, 1, 3, 0]])])
def test_the_input_part_is_its_three_steps_in_the_dtype_of_the_table(dtype, positions):
    ids = torch.tensor([[100, 2, 421, 300], [500, 888, 306, 509]])
    embedding, table = normals(1_000, 512), sinusoidal_table(5, 512, dtype=dtype)
    mask = normals(2, 4, 512) > -1
    got = transformer_input(
        ids, embedding, table, positions=positions, dropout_rate=0.1, dropout_mask=mask
    )
    x = embed_tokens(ids, embedding, scale="sqrt", dtype=dtype)
    expected = dropout(add_positions(x, table, positions=positions), 0.1, mask=mask)
    assert got.shape == (2, 4, 512)
    assert got.dtype == dtype
    assert torch.equal(got, expected)


def test_positions_run_along_the_sequence_and_never_along_the_batch():
    embedding, table = normals(9, 8), sinusoidal_table(6, 8)
    ids, order = torch.randint(9, (4, 6), generator=generator()), torch.tensor([2, 0, 3, 1])
    rows = transformer_input(ids, embedding, table)
    added = rows - embed_tokens(ids, embedding, scale="sqrt")
    # The sums are below 16, so rounded by up to 2**-21.
    torch.testing.assert_close(added, table.expand(4, 6, 8), rtol=0, atol=2**-20)
    assert torch.equal(transformer_input(ids[order], embedding, table), rows[order])
    forth, back = (transformer_input(torch.tensor([i]), embedding, table) for i in ([1, 2], [2, 1]))
    assert ((forth - back.flip(1)).abs().amax(2) > 0.1).all()


def test_no_dropout_draws_nothing():
    state = torch.get_rng_state()
    transformer_input(torch.tensor([1]), normals(3, 4), sinusoidal_table(2, 4))
    assert torch.equal(torch.get_rng_state(), state)


def test_padding_and_scale_reach_the_look_up():
    embedding = normals(3, 4).requires_grad_()
    ids = torch.tensor([0, 1])
    rows = transformer_input(ids, embedding, torch.zeros(2, 4), scale=None, padding_idx=0)
    assert torch.equal(rows, embedding[:2])
    rows.sum().backward()
    assert embedding.grad[:, 0].tolist() == [0, 1, 0]


def test_gradcheck_of_the_input_part_in_float64():
    embedding = normals(4, 3).double().requires_grad_()
    table = sinusoidal_table(3, 3, dtype=torch.float64).requires_grad_()
    mask = normals(2, 3, 3) > -0.5
    ids = torch.tensor([[1, 2, 2], [3, 1, 2]])

    def forward(embedding, table):
        return transformer_input(
            ids, embedding, table, padding_idx=0, dropout_rate=0.3, dropout_mask=mask
        )

    assert torch.autograd.gradcheck(forward, (embedding, table))


def test_messages_of_the_input_part_name_its_own_arguments():
    with pytest.raises(ValueError, match=r"`dropout_rate` must be in \[0, 1\], got 1\.5"):
        transformer_input(torch.tensor([1]), normals(3, 4), torch.zeros(2, 4), dropout_rate=1.5)
    with pytest.raises(TypeError, match=r"`table` must be a torch\.Tensor, got list"):
        transformer_input(torch.tensor([1]), normals(3, 4), [[0.0]])
