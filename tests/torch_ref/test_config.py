import dataclasses
import inspect
import re

import pytest
import torch
from torch import nn

from torch_ref.config import EncoderConfig
from torch_ref.encoder_modules import Encoder, EncoderLayer, MultiHeadAttention
from torch_ref.initial import encoder_params
from torch_ref.layers import encoder_layer
from torch_ref.stack import encoder

SIZES = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 24}


def test_the_defaults_are_those_of_torch():
    config = EncoderConfig(**SIZES)
    theirs = inspect.signature(nn.TransformerEncoderLayer).parameters
    assert config.dropout_rate == theirs["dropout"].default
    assert config.eps == theirs["layer_norm_eps"].default == 1e-5
    assert config.activation == theirs["activation"].default.__name__
    assert config.norm == {False: "post", True: "pre"}[theirs["norm_first"].default]
    assert config.use_bias is theirs["bias"].default
    assert config.norm_form == "standard"
    assert config.final_norm is False
    assert (config.dtype, config.param_dtype) == (None, torch.float32)


def test_a_head_has_its_share_of_the_width():
    assert EncoderConfig(**SIZES).head_dim == 4


def test_a_config_is_a_value():
    config = EncoderConfig(**SIZES)
    assert config == EncoderConfig(**SIZES)
    assert hash(config) == hash(EncoderConfig(**SIZES))
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.eps = 1e-6


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"num_layers": 0}, "`num_layers` must be at least 1"),
        ({"d_ff": 0}, "`d_ff` must be at least 1"),
        ({"d_model": -16}, "`d_model` must be at least 1"),
        ({"num_heads": 3}, "`num_heads` must divide `d_model`, 16, got 3."),
        ({"norm": "both"}, "`norm` must be 'post' or 'pre', got 'both'"),
        ({"final_norm": 1}, "`final_norm` must be True or False, got 1"),
        ({"use_bias": None}, "`use_bias` must be True or False, got None"),
        ({"activation": "swish"}, "`activation` must be 'relu' or 'gelu' or 'gelu_tanh'"),
        ({"norm_form": "rms"}, "`norm_form` must be 'standard' or 'annotated'"),
        ({"eps": 0}, "`eps` must be above 0 and below 1, got 0. PyTorch's is 1e-5."),
        ({"eps": 1.0}, "`eps` must be above 0 and below 1, got 1.0"),
        ({"eps": float("nan")}, "`eps` must be finite"),
        ({"dropout_rate": 1.5}, "`dropout_rate` must be in [0, 1], got 1.5"),
    ],
)
def test_options_out_of_range_are_refused(option, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        EncoderConfig(**{**SIZES, **option})


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"num_heads": 4.0}, "`num_heads` must be a Python integer, got float 4.0"),
        ({"eps": "small"}, "`eps` must be a Python number, got str 'small'"),
        ({"dropout_rate": None}, "`dropout_rate` must be a Python number"),
        ({"dtype": torch.int8}, "`dtype` must be torch.float32"),
        ({"param_dtype": None}, "`param_dtype` must be torch.float32"),
    ],
)
def test_options_of_another_kind_are_refused(option, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        EncoderConfig(**{**SIZES, **option})


@pytest.mark.parametrize(
    "call",
    [
        encoder_params,
        MultiHeadAttention,
        EncoderLayer,
        Encoder,
        lambda config: encoder(torch.ones(1, 2, 4), {}, config),
        lambda config: encoder_layer(torch.ones(1, 2, 4), {}, config),
    ],
)
def test_what_is_no_config_is_refused(call):
    with pytest.raises(TypeError, match=re.escape("must be a torch_ref.EncoderConfig, got dict.")):
        call(SIZES)


def test_sizes_have_no_defaults():
    with pytest.raises(TypeError, match="'d_ff'"):
        EncoderConfig(num_layers=1, d_model=4, num_heads=1)
