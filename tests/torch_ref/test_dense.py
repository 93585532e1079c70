import re

import pytest
import torch

from tests.torch_ref.peers import random
from torch_ref.dense import dense, map_params, require_vectors

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "axes", "columns"), [((7,), 1, (3, 2)), ((3, 2), 2, (5,))])
def test_dense_is_the_exact_sum_rounded_once(dtype, rows, axes, columns):
    x, kernel = random(2, 4, *rows, dtype=dtype), random(*rows, *columns, seed=1).float()
    bias = random(*columns, seed=2).float()
    y = dense(x, {"kernel": kernel, "bias": bias}, axes)
    assert y.dtype == dtype
    assert y.shape == (2, 4, *columns)
    terms = x.double().reshape(8, -1, 1) * kernel.to(dtype).double().reshape(1, x[0, 0].numel(), -1)
    exact = (terms.sum(1) + bias.double().flatten()).reshape(y.shape)
    # As many additions of float32 as terms and one more, each of a sum below that of the sizes;
    # then half an ulp of the result.
    sizes = (terms.abs().sum(1) + bias.double().flatten().abs()).reshape(y.shape)
    unit = 2.0**-53 if dtype == torch.float64 else 2.0**-24
    bound = (terms.shape[1] + 1) * unit * sizes + torch.finfo(dtype).eps / 2 * exact.abs()
    assert ((y.double() - exact).abs() <= bound * 1.01).all()


def test_sixteen_bits_are_summed_in_float32():
    x = torch.ones(1, 4096, dtype=torch.bfloat16)
    assert dense(x, {"kernel": torch.ones(4096, 1)}).item() == 4096


def test_the_bias_is_added_before_the_rounding_and_is_not_rounded_itself():
    params = {"kernel": torch.ones(1, 1), "bias": torch.tensor([2.0**-8 + 2.0**-20])}
    y = dense(torch.ones(1, 1, dtype=torch.bfloat16), params)
    assert y.item() == 1 + 2.0**-7  # 1 if the bias came as bfloat16: a tie to even


def test_gradients_of_float32_parameters_are_not_rounded_to_sixteen_bits():
    kernel = torch.ones(2, 1, requires_grad=True)
    x = torch.tensor([[1.0, 1.0], [2.0**-9, 0.0]], dtype=torch.bfloat16)
    dense(x, {"kernel": kernel}).sum().backward()
    assert kernel.grad.flatten().tolist() == [1 + 2.0**-9, 1]


def test_a_bias_of_none_is_no_bias():
    params = {"kernel": torch.ones(2, 3), "bias": None}
    assert dense(torch.ones(1, 2), params).tolist() == [[2, 2, 2]]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "`params` lacks 'kernel'; it must hold kernel, bias (optional)."),
        ({"kernel": torch.ones(2, 3), "weight": 0}, "`params` has 'weight'; it must hold"),
        ({"kernel": torch.ones(3, 2)}, "has shape [3, 2], but must begin with the last axis"),
        (
            {"kernel": torch.ones(2)},
            "[2], and end with its outputs. A PyTorch weight is [out, in]: transpose it.",
        ),
        ({"kernel": torch.ones(2, 3), "bias": torch.ones(2)}, "must have shape [3], got [2]"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(params, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        dense(torch.ones(1, 2), params)


def test_what_are_no_parameters_is_refused():
    with pytest.raises(TypeError, match="`params` must be a dict, got list"):
        dense(torch.ones(1, 2), [])
    with pytest.raises(TypeError, match=r"`params\['kernel'\]` must be torch\.float32, .*int64"):
        dense(torch.ones(1, 2), {"kernel": torch.ones(2, 3, dtype=torch.int64)})


def test_params_are_changed_leaf_by_leaf():
    params = {"a": {"b": torch.ones(1)}, "c": torch.ones(2)}
    doubled = map_params(params, lambda leaf: leaf * 2)
    assert doubled["a"]["b"].tolist() == [2]
    assert doubled["c"].tolist() == [2, 2]
    assert params["c"].tolist() == [1, 1]


def test_vectors_have_three_axes():
    require_vectors(torch.ones(1, 2, 3), 3)
    with pytest.raises(ValueError, match=re.escape("[batch, seq_len, d_model], got [2, 3]")):
        require_vectors(torch.ones(2, 3))
    with pytest.raises(ValueError, match=re.escape("[batch, seq_len, d_model 4], got [1, 2, 3]")):
        require_vectors(torch.ones(1, 2, 3), 4)
