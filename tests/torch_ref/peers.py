"""PyTorch's own attention and encoder, with random weights, and how near two results must be."""

import copy

import torch
from torch import nn

from torch_ref.torch_encoder import from_torch_encoder

WIDTH, HEADS, INNER, LAYERS, BATCH, LENGTH = 16, 4, 24, 2, 3, 5
HIDDEN_KEYS = torch.arange(LENGTH) >= torch.tensor([[LENGTH], [3], [1]])


def random(*shape, seed=0, dtype=torch.float64):
    """Return numbers that float32 holds too."""
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return drawn.to(dtype)


def randomized(module, seed=1):
    """Draw every parameter, of the size that keeps vectors as they are, and switch dropout off."""
    for index, parameter in enumerate(module.parameters()):
        values = random(*parameter.shape, seed=seed + index)
        with torch.no_grad():
            parameter.copy_(values / parameter.shape[-1] ** 0.5)
    return module.eval()


def torch_encoder(*, final_norm=False, layers=LAYERS, dtype=torch.float64, **options):
    """Return an `nn.TransformerEncoder` with the batch first."""
    options = {"dropout": 0.25, "batch_first": True, "dtype": dtype, **options}
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, **options)
    norm = nn.LayerNorm(WIDTH, dtype=dtype) if final_norm else None
    return randomized(nn.TransformerEncoder(layer, layers, norm=norm, enable_nested_tensor=False))


def gradient_params(encoder):
    """Return the gradients of an encoder's parameters in the layout of the parameters."""
    copied = copy.deepcopy(encoder)
    for to, parameter in zip(copied.parameters(), encoder.parameters(), strict=True):
        to.data = parameter.grad
    return from_torch_encoder(copied)[1]


def leaves(params, place=""):
    """Yield every tensor of nested dicts with its place."""
    for name, leaf in params.items():
        if isinstance(leaf, dict):
            yield from leaves(leaf, f"{place}/{name}")
        else:
            yield f"{place}/{name}", leaf


def assert_near(actual, expected, coarse):
    """Hold two float64 results together, given one of them computed in float32.

    Float32 shows how far the roundings of these very steps add up; those of float64 are 2**-29 of
    them. 32 is for the other order of sums in which the other side adds, and for luck: the largest
    error of a few numbers varies by less.
    """
    assert actual.dtype == expected.dtype == torch.float64
    assert actual.shape == expected.shape
    noise = (coarse.double() - expected).abs().max()
    # At least what one rounding of the largest number is.
    noise = torch.maximum(noise, expected.abs().max() * 2.0**-25)
    error = (actual - expected).abs().max()
    assert error <= 32 * 2.0**-29 * noise, (error.item(), noise.item())
