import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from torch_ref import PAPER, TENSOR2TENSOR, Sinusoid, sinusoidal_table
from torch_ref.checkpoints import published_bound, restore_table
from torch_ref.published import published_table


def published(max_len, d_model, dtype=torch.float32):
    return published_table(max_len, d_model).squeeze(0).to(dtype)


def by_torch(base, d_model):
    step = torch.arange(0.0, d_model, 2)
    yield torch.exp(step * (-math.log(base) / d_model)).numpy()
    yield (1 / torch.tensor(base) ** (step / d_model)).numpy()


def by_numpy(base, d_model):
    step, base = np.arange(0, d_model, 2, dtype=np.float32), np.float32(base)
    yield np.exp(step * -(np.log(base) / np.float32(d_model)))
    yield 1 / np.power(base, step / np.float32(d_model))


def by_jax(base, d_model):
    step = jnp.arange(0, d_model, 2, dtype=jnp.float32)
    formulas = [
        lambda step: jnp.exp(step * (-math.log(base) / d_model)),
        lambda step: jnp.exp(-jnp.log(jnp.float32(base)) * step / d_model),
        lambda step: 1 / jnp.float32(base) ** (step / d_model),
    ]
    for formula in formulas:
        yield np.asarray(formula(step))
        yield np.asarray(jax.jit(formula)(step))


def table_of(frequency, positions):
    """Return the interleaved table of float32 frequencies, in float32."""
    angle = positions.astype(np.float32)[:, None] * frequency
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(len(positions), -1)


@pytest.mark.parametrize("variants", [by_torch, by_numpy, by_jax])
@pytest.mark.parametrize("base", [2.0, 100.0, 10_000.0, 1e6])
def test_published_tables_of_every_framework_are_within_the_bound(variants, base):
    positions = np.unique(np.r_[0:60, 4_990:5_000, np.geomspace(60, 131_071, 60).astype(int)])
    worst = 0.0
    for d_model in (8, 64, 384, 1024):
        exact = np.stack([sinusoidal_row(position, d_model, base) for position in positions])
        start, one = published_bound(2, d_model, Sinusoid(base)).numpy()
        bound = start + positions[:, None] * (one - start)
        for frequency in variants(base, d_model):
            error = np.abs(table_of(frequency, positions) - exact)
            worst = max(worst, (error / bound).max())
    # A bound far above what is seen would let a wrong table pass.
    assert 0.2 < worst <= 0.6


def test_the_bound_grows_with_the_position():
    bound = published_bound(100, 8)
    steps = bound.diff(dim=0)
    torch.testing.assert_close(steps, steps[:1].expand(99, 8), rtol=1e-9, atol=0)


def sinusoidal_row(position, d_model, base):
    """Return a row of the exact table in float64; its angle is reduced in extended precision."""
    column = np.arange(d_model // 2, dtype=np.longdouble)
    angle = position * np.longdouble(base) ** (-2 * column / d_model)
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(-1).astype(float)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("sinusoid", [PAPER, TENSOR2TENSOR])
@pytest.mark.parametrize("rows", [40, 60, 100])
def test_an_exact_table_is_told_in_every_dtype(dtype, sinusoid, rows):
    stored = sinusoidal_table(rows, 16, sinusoid=sinusoid, dtype=dtype)
    found = restore_table(stored, 60, 16, sinusoid=sinusoid)
    assert (found.origin, found.difference) == ("exact", 0.0)
    assert torch.equal(found.table, sinusoidal_table(60, 16, sinusoid=sinusoid, dtype=dtype))


def test_a_float64_table_by_numpy_is_not_the_float32_formula_but_is_kept_as_close():
    angle = np.arange(60)[:, None] * 10_000.0 ** (-np.arange(0, 16, 2) / 16)
    stored = torch.from_numpy(np.stack([np.sin(angle), np.cos(angle)], -1).reshape(60, 16))
    found = restore_table(stored, 60, 16)
    assert found.difference < 1e-13
    assert torch.equal(found.table, stored)


@pytest.mark.parametrize(("rows", "difference"), [(60, 3.1e-6), (5_000, 3.9e-4)])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_the_published_table_is_kept_bit_for_bit(rows, difference, axis):
    stored = published(rows, 512)
    found = restore_table(stored if axis is None else stored.unsqueeze(axis), rows, 512)
    assert found.origin == "published"
    assert found.difference == pytest.approx(difference, rel=0.05)
    assert torch.equal(found.table, stored)


def test_a_published_table_is_cut_or_continued_with_exact_rows():
    stored = published(60, 16)
    shorter = restore_table(stored, 40, 16).table
    assert torch.equal(shorter, stored[:40])
    assert shorter.untyped_storage().nbytes() == 40 * 16 * 4  # what a saved state would hold
    longer = restore_table(stored, 80, 16).table
    assert torch.equal(longer[:60], stored)
    assert torch.equal(longer[60:], sinusoidal_table(80, 16)[60:])


def test_the_difference_is_that_of_all_stored_rows():
    stored = published(5_000, 64)
    exact = sinusoidal_table(5_000, 64)
    distance = (stored.double() - exact.double()).abs()
    assert restore_table(stored, 60, 64).difference == distance.max().item() > distance[:60].max()


def test_the_result_shares_no_memory_with_the_state():
    stored = published(60, 16)
    found = restore_table(stored, 60, 16)
    stored.zero_()
    assert found.table.any()


@pytest.mark.parametrize("base", [9_990.0, 10_010.0, 1_000.0])
@pytest.mark.parametrize(("rows", "d_model"), [(2, 4), (60, 512), (5_000, 64)])
def test_another_base_is_foreign(base, rows, d_model):
    stored = sinusoidal_table(rows, d_model, sinusoid=Sinusoid(base))
    with pytest.raises(ValueError, match=r"`table` is neither .*: row 1, column 2 holds "):
        restore_table(stored, rows, d_model)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_published_table_that_was_rounded_to_16_bits_and_back_is_foreign(dtype):
    with pytest.raises(ValueError, match=r"neither .* nor the published float32 formula"):
        restore_table(published(60, 512, dtype).float(), 60, 512)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_published_table_of_16_bits_is_kept_in_them(dtype):
    stored = published(5_000, 64, dtype)
    found = restore_table(stored, 5_000, 64)
    assert found.origin == "published"
    assert torch.equal(found.table, stored)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_table_computed_in_16_bits_is_foreign(dtype):
    position = torch.arange(60).to(dtype)[:, None]
    step = torch.arange(0, 64, 2).to(dtype)
    angle = position * torch.exp(step * (-math.log(10_000.0) / 64))
    stored = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
    with pytest.raises(ValueError, match="neither"):
        restore_table(stored, 60, 64)


def test_an_exact_table_that_was_rounded_to_bfloat16_and_back_is_foreign():
    stored = sinusoidal_table(60, 512).bfloat16().float()
    with pytest.raises(ValueError, match=r"row 1, column 0 holds 0\.83984375, exact is 0\.841470"):
        restore_table(stored, 60, 512)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("row", "column"), [(0, 0), (3, 1), (59, 15)])
def test_a_shift_of_twice_the_bound_is_seen_and_placed(row, column, sign):
    stored = sinusoidal_table(60, 16)
    stored[row, column] += sign * 2 * published_bound(60, 16)[row, column]
    with pytest.raises(ValueError, match=rf"row {row}, column {column} holds .* allowed"):
        restore_table(stored, 60, 16)


def test_nan_is_foreign():
    stored = sinusoidal_table(60, 16)
    stored[5, 3] = math.nan
    with pytest.raises(ValueError, match="row 5, column 3 holds nan"):
        restore_table(stored, 60, 16)


def test_another_layout_is_foreign_until_it_is_named():
    stored = sinusoidal_table(60, 16, sinusoid=TENSOR2TENSOR)
    with pytest.raises(ValueError, match="Name its convention as `sinusoid`"):
        restore_table(stored, 60, 16)
    assert restore_table(stored, 60, 16, sinusoid=TENSOR2TENSOR).origin == "exact"


@pytest.mark.parametrize("shape", [(60, 15), (2, 60, 16), (60,), (0, 16), (1, 60, 0), (1, 0, 16)])
def test_other_shapes_are_refused(shape):
    allowed = "`pe` must have shape [rows, 16], [1, rows, 16] or [rows, 1, 16], got "
    with pytest.raises(ValueError, match=re.escape(f"{allowed}{list(shape)}")):
        restore_table(torch.zeros(shape), 60, 16, name="pe")


def test_what_is_no_table_is_refused():
    with pytest.raises(TypeError, match=r"`table` must be torch\.float32"):
        restore_table(torch.zeros(60, 16, dtype=torch.int32), 60, 16)
    with pytest.raises(ValueError, match="`max_len` must be at least 1"):
        restore_table(torch.zeros(60, 16), 0, 16)
    with pytest.raises(ValueError, match="`d_model` must be at least 1"):
        restore_table(torch.zeros(60, 16), 60, 0)
