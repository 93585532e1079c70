"""What an encoder starts from, beside what PyTorch's own starts from."""

import math

import pytest
import torch
from torch import nn

from tests.torch_ref.peers import leaves
from torch_ref.config import EncoderConfig
from torch_ref.initial import encoder_params
from torch_ref.torch_encoder import from_torch_encoder

WIDTH, INNER = 64, 96
SIZES = {"num_layers": 2, "d_model": WIDTH, "num_heads": 4, "d_ff": INNER}


def drawn(seed=0, **options):
    config = EncoderConfig(**{**SIZES, **options})
    return dict(leaves(encoder_params(config, torch.Generator().manual_seed(seed))))


def torchs(**options):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 4, INNER, batch_first=True, **options)
    return dict(
        leaves(from_torch_encoder(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))[1])
    )


@pytest.mark.parametrize("bias", [True, False])
def test_names_shapes_and_dtypes_are_those_of_torch(bias):
    ours, theirs = drawn(use_bias=bias), torchs(bias=bias)
    assert {name: leaf.shape for name, leaf in ours.items()} == {
        name: leaf.shape for name, leaf in theirs.items()
    }
    assert {leaf.dtype for leaf in ours.values()} == {torch.float32}


BOUNDS = {
    "attention/query/kernel": math.sqrt(6 / (4 * WIDTH)),
    "attention/key/kernel": math.sqrt(6 / (4 * WIDTH)),
    "attention/value/kernel": math.sqrt(6 / (4 * WIDTH)),
    "attention/out/kernel": 1 / math.sqrt(WIDTH),
    "feed_forward/in/kernel": 1 / math.sqrt(WIDTH),
    "feed_forward/in/bias": 1 / math.sqrt(WIDTH),
    "feed_forward/out/kernel": 1 / math.sqrt(INNER),
    "feed_forward/out/bias": 1 / math.sqrt(INNER),
}


@pytest.mark.parametrize("draw", [drawn, torchs])
@pytest.mark.parametrize(("name", "bound"), BOUNDS.items())
def test_kernels_and_biases_are_uniform_within_their_bounds(draw, name, bound):
    values = draw()[f"/layers/{name}"].double()
    assert values.abs().max() <= bound * (1 + 2.0**-23)
    # The largest of n is below 1 - 20 / n of the bound once in e**20 draws. The layers of PyTorch
    # are copies, so that n is that of one.
    count = values[0].numel()
    assert values.abs().max() >= bound * (1 - 20 / count)
    # The mean square of a uniform draw has the deviation 0.9 / sqrt(n) of it; five of those.
    assert abs(values[0].square().mean() / (bound**2 / 3) - 1) <= 4.5 / math.sqrt(count)
    assert abs(values[0].mean()) <= 5 * bound / math.sqrt(3 * count)


@pytest.mark.parametrize("draw", [drawn, torchs])
def test_the_other_biases_are_zero_and_scales_one(draw):
    rest = {
        name: leaf for name, leaf in draw().items() if name.removeprefix("/layers/") not in BOUNDS
    }
    assert len(rest) == 8
    for name, leaf in rest.items():
        assert torch.equal(leaf, torch.full_like(leaf, float(name.endswith("scale"))))


def test_a_final_norm_is_there_if_the_config_has_one():
    params = drawn(final_norm=True)
    assert params["/final_norm/scale"].tolist() == [1] * WIDTH
    assert params["/final_norm/bias"].tolist() == [0] * WIDTH
    assert "/final_norm/bias" not in drawn(final_norm=True, use_bias=False)


def test_each_layer_and_each_kernel_is_drawn_for_itself():
    params = drawn()
    query, key = (params[f"/layers/attention/{name}/kernel"] for name in ("query", "key"))
    assert not torch.equal(query[0], query[1])
    assert not torch.equal(query, key)


def test_a_generator_decides_and_the_global_one_by_default():
    one, same, other = drawn(), drawn(), drawn(seed=1)
    name = "/layers/feed_forward/in/kernel"
    assert torch.equal(one[name], same[name])
    assert not torch.equal(one[name], other[name])
    torch.manual_seed(5)
    first = dict(leaves(encoder_params(EncoderConfig(**SIZES))))
    torch.manual_seed(5)
    assert torch.equal(dict(leaves(encoder_params(EncoderConfig(**SIZES))))[name], first[name])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_parameters_are_rounded_from_float32(dtype):
    for (name, wide), narrow in zip(
        drawn().items(), drawn(param_dtype=dtype).values(), strict=True
    ):
        assert torch.equal(narrow, wide.to(dtype)), name


def test_float64_parameters_are_drawn_in_float64():
    kernel = drawn(param_dtype=torch.float64)["/layers/feed_forward/in/kernel"]
    assert kernel.dtype == torch.float64
    assert not torch.equal(kernel, kernel.float().double())
