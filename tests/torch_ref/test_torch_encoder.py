"""What is read off `nn.TransformerEncoder`; tests of the layers and the stack hold the results."""

import copy
import re

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.torch_ref.peers import HEADS, INNER, LAYERS, WIDTH, leaves, torch_encoder
from torch_ref.config import EncoderConfig
from torch_ref.torch_encoder import from_torch_encoder


def test_every_option_is_read():
    module = torch_encoder(
        norm_first=True, activation="gelu", layer_norm_eps=1e-3, bias=False, dtype=torch.float32
    )
    assert from_torch_encoder(module)[0] == EncoderConfig(
        num_layers=LAYERS,
        d_model=WIDTH,
        num_heads=HEADS,
        d_ff=INNER,
        norm="pre",
        activation="gelu",
        eps=1e-3,
        use_bias=False,
        dropout_rate=0.25,
    )
    config = from_torch_encoder(torch_encoder(final_norm=True))[0]
    assert (config.norm, config.final_norm, config.use_bias) == ("post", True, True)
    assert (config.eps, config.param_dtype) == (1e-5, torch.float64)


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        (functional.relu, "relu"),
        (nn.ReLU(), "relu"),
        (functional.gelu, "gelu"),
        (nn.GELU(), "gelu"),
        (nn.GELU(approximate="tanh"), "gelu_tanh"),
    ],
)
def test_activations_are_told(activation, expected):
    assert from_torch_encoder(torch_encoder(activation=activation))[0].activation == expected


def test_every_parameter_is_read_once_and_copied():
    module = torch_encoder(final_norm=True)
    params = dict(leaves(from_torch_encoder(module)[1]))
    ours = torch.cat([leaf.flatten() for leaf in params.values()]).sort()[0]
    theirs = torch.cat([leaf.detach().flatten() for leaf in module.parameters()]).sort()[0]
    assert torch.equal(ours, theirs)
    assert not any(leaf.requires_grad for leaf in params.values())
    kept = {name: leaf.clone() for name, leaf in params.items()}
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    assert all(torch.equal(params[name], kept[name]) for name in kept)


def changed(change, **options):
    module = torch_encoder(**options)
    change(module)
    return module


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda m: setattr(m.layers[1], "norm_first", True),
            "alike, but norm is 'post' in layers.0 and 'pre' in layers.1",
        ),
        (lambda m: setattr(m.layers[0].norm2, "eps", 1e-3), "one eps of its norms, but layers.0"),
        (lambda m: setattr(m.layers[1].dropout1, "p", 0.5), "one rate of dropout, but layers.1"),
        (lambda m: setattr(m.norm, "eps", 1e-6), "one eps, but norm has 1e-06 and the layers have"),
        (lambda m: setattr(m.layers[0], "activation", torch.tanh), "relu or gelu for its activat"),
    ],
)
def test_an_encoder_that_no_config_describes_is_refused(change, message):
    module = changed(change, final_norm=True)
    with pytest.raises(ValueError, match=re.escape(message)):
        from_torch_encoder(module)


class Own(nn.TransformerEncoderLayer):
    """A layer that may compute something else."""


def test_other_classes_are_refused():
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, batch_first=True)
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.TransformerEncoder, got Tr") as e:
        from_torch_encoder(layer)
    assert "pass torch.nn.TransformerEncoder(layer, 1)" in str(e.value)
    own = nn.TransformerEncoder(Own(WIDTH, HEADS, batch_first=True), 1, enable_nested_tensor=False)
    with pytest.raises(TypeError, match=r"layers\.0 is a Own"):
        from_torch_encoder(own)
    module = copy.deepcopy(torch_encoder(final_norm=True))
    module.norm = nn.LayerNorm(WIDTH, elementwise_affine=False)
    with pytest.raises(TypeError, match="LayerNorm with a weight for its norms, but norm is"):
        from_torch_encoder(module)
