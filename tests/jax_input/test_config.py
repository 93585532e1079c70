"""The options of an encoder: defaults, and what is refused."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_input.config import EncoderConfig, require_eps
from jax_input.initial import encoder_params
from jax_input.layers import encoder_layer
from jax_input.stack import encoder

SIZES = {"num_layers": 2, "d_model": 12, "num_heads": 3, "d_ff": 20}


def test_defaults_are_those_of_pytorch():
    config = EncoderConfig(**SIZES)
    given = dataclasses.asdict(config)
    assert {name: given.pop(name) for name in SIZES} == SIZES
    assert given == {
        "norm": "post",
        "final_norm": False,
        "activation": "relu",
        "eps": 1e-5,
        "norm_form": "standard",
        "use_bias": True,
        "dropout_rate": 0.1,
        "remat": None,
        "scan": True,
        "matmul_precision": None,
        "dtype": None,
        "param_dtype": jnp.float32,
    }


def test_it_cannot_be_changed_is_equal_to_its_twin_and_can_be_static():
    config = EncoderConfig(**SIZES, remat=jax.checkpoint_policies.dots_saveable)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.d_ff = 3
    twin = dataclasses.replace(config)
    assert config == twin
    assert hash(config) == hash(twin)
    assert config != dataclasses.replace(config, eps=1e-6)
    assert jax.jit(lambda config: jnp.zeros(config.d_ff), static_argnums=0)(config).shape == (20,)
    with pytest.raises(TypeError):
        EncoderConfig(2, 12, 3, 20)


def test_every_word_that_is_allowed_is_accepted():
    for name, values in {
        "norm": ("post", "pre"),
        "activation": ("relu", "gelu", "gelu_tanh"),
        "norm_form": ("standard", "annotated"),
        "remat": (None, "full", jax.checkpoint_policies.everything_saveable),
        "dtype": (None, "bfloat16", np.float16, jnp.float32),
        "eps": (1e-12, np.float32(1e-6), 0.5),
        "dropout_rate": (0, 1, 0.5),
    }.items():
        for value in values:
            assert getattr(EncoderConfig(**SIZES, **{name: value}), name) == value


@pytest.mark.parametrize(
    ("option", "error", "message"),
    [
        (
            {"num_layers": 0},
            ValueError,
            "`num_layers` must be at least 1 and at most 2**31, got 0.",
        ),
        ({"d_model": 12.0}, TypeError, "`d_model` must be a Python integer, got float 12.0."),
        ({"d_ff": True}, TypeError, "`d_ff` must be a Python integer, got bool True."),
        ({"num_heads": 5}, ValueError, "`num_heads` must divide `d_model`, 12, got 5."),
        ({"norm": "mid"}, ValueError, '`norm` must be "post" or "pre", got \'mid\'.'),
        ({"activation": "silu"}, ValueError, '"relu" or "gelu" or "gelu_tanh", got \'silu\'.'),
        (
            {"norm_form": None},
            ValueError,
            '`norm_form` must be "standard" or "annotated", got None.',
        ),
        ({"final_norm": 1}, TypeError, "`final_norm` must be True or False"),
        ({"use_bias": "no"}, TypeError, "`use_bias` must be True or False"),
        ({"scan": None}, TypeError, "`scan` must be True or False"),
        ({"eps": 0}, ValueError, "`eps` must be above 0 and below 1, got 0. PyTorch's is 1e-5."),
        ({"eps": float("nan")}, ValueError, "`eps` must be above 0 and below 1, got nan."),
        ({"eps": "1e-5"}, TypeError, "`eps` must be a Python number above 0, got str '1e-5'."),
        ({"eps": True}, TypeError, "`eps` must be a Python number above 0, got bool True."),
        ({"dropout_rate": 1.5}, ValueError, "`dropout_rate` must be from 0 to 1, the chance of a"),
        ({"dropout_rate": "a"}, TypeError, "`dropout_rate` must be a Python number from 0 to 1"),
        ({"remat": "half"}, ValueError, '`remat` must be None, "full", or a policy such as'),
        ({"remat": True}, ValueError, "jax.checkpoint_policies.dots_saveable, got True."),
        (
            {"dtype": "int32"},
            TypeError,
            "`dtype` must be float32, bfloat16, float16 or float64, got",
        ),
        ({"param_dtype": None}, TypeError, "`param_dtype` must be float32, bfloat16, float16 or f"),
        ({"param_dtype": "float64"}, ValueError, "`param_dtype` is float64, which JAX has only"),
    ],
)
def test_options_that_cannot_be_are_refused(option, error, message):
    with pytest.raises(error, match=re.escape(message)):
        EncoderConfig(**SIZES | option)


@pytest.mark.parametrize(
    "call",
    [
        lambda config: encoder_params(jax.random.key(0), config),
        lambda config: encoder(np.ones((1, 2, 4), np.float32), {}, config),
        lambda config: encoder_layer(np.ones((1, 2, 4), np.float32), {}, config),
    ],
)
def test_what_is_no_config_is_refused(call):
    with pytest.raises(TypeError, match=re.escape("`config` must be a jax_input.EncoderConfig, ")):
        call(SIZES)
    with pytest.raises(TypeError, match=re.escape(f"got {__name__}.EncoderConfig. Make one with")):
        call(type("EncoderConfig", (), {"__module__": __name__})())


def test_eps_comes_back_as_a_python_number():
    assert type(require_eps(np.float32(0.5))) is float
