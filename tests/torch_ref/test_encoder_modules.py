"""The modules own parameters in PyTorch's layout, and compute what the functions compute."""

import re

import pytest
import torch
from torch import nn

from tests.torch_ref.peers import leaves, random
from torch_ref.attention import multi_head_attention
from torch_ref.config import EncoderConfig
from torch_ref.dropout_masks import encoder_dropout_masks
from torch_ref.encoder_modules import Encoder, MultiHeadAttention
from torch_ref.initial import encoder_params
from torch_ref.layers import encoder_layer
from torch_ref.masks import causal_mask
from torch_ref.modules import TransformerInput
from torch_ref.stack import encoder

SIZES = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 24}
IDS = torch.tensor([[3, 0, 7], [1, 1, 0]])


def config(**options):
    return EncoderConfig(**{**SIZES, "dropout_rate": 0.5, **options})


def module(**options):
    torch.manual_seed(0)
    return Encoder(config(**options.pop("config", {})), **options)


def masks(batch=2, seq_len=3, seed=0):
    return encoder_dropout_masks(
        config(), batch, seq_len, generator=torch.Generator().manual_seed(seed)
    )


@pytest.mark.parametrize("options", [{}, {"use_bias": False}, {"final_norm": True}])
def test_params_are_those_of_the_functions_by_name_and_shape(options):
    found = module(config=options).params()
    expected = encoder_params(config(**options))
    assert {name: leaf.shape for name, leaf in leaves(found)} == {
        name: leaf.shape for name, leaf in leaves(expected)
    }


def test_a_state_has_the_names_of_the_params_and_the_layout_of_torch():
    state = module(config={"final_norm": True}, vocab_size=9, max_len=5).state_dict()
    layer = {
        **{f"attention.{name}.weight": (16, 16) for name in ("query", "key", "value", "out")},
        **{f"attention.{name}.bias": (16,) for name in ("query", "key", "value", "out")},
        "feed_forward.in.weight": (24, 16),
        "feed_forward.in.bias": (24,),
        "feed_forward.out.weight": (16, 24),
        "feed_forward.out.bias": (16,),
        **{
            f"{norm}.{leaf}": (16,)
            for norm in ("attention_norm", "feed_forward_norm")
            for leaf in ("weight", "bias")
        },
    }
    expected = {f"layers.{i}.{name}": shape for i in range(2) for name, shape in layer.items()}
    expected |= {"final_norm.weight": (16,), "final_norm.bias": (16,)}
    expected |= {"input.embeddings.embedding": (9, 16)}
    assert {name: tuple(values.shape) for name, values in state.items()} == expected


def test_heads_are_laid_out_side_by_side_as_in_torch():
    attention = MultiHeadAttention(config())
    params, x = attention.params(), random(2, 3, 16, dtype=torch.float32)
    query = nn.functional.linear(x, attention.query.weight).unflatten(-1, (4, 4))
    assert torch.allclose(torch.einsum("bsd,dhe->bshe", x, params["query"]["kernel"]), query)
    heads = random(2, 3, 4, 4, dtype=torch.float32)
    out = nn.functional.linear(heads.flatten(-2), attention.out.weight)
    assert torch.allclose(torch.einsum("bshe,hed->bsd", heads, params["out"]["kernel"]), out)


def test_parameters_are_drawn_within_the_bounds_of_torch():
    for name, leaf in leaves(module().params()["layers"]["attention"]):
        expected = {"query": 6 / 64, "key": 6 / 64, "value": 6 / 64, "out": 1 / 16}
        bound = 0.0 if name.endswith("bias") else expected[name.split("/")[1]] ** 0.5
        largest = leaf.abs().max().item()
        # The largest of 256 numbers is below 0.9 of the bound once in 5e11 draws.
        assert 0.9 * bound <= largest <= bound * (1 + 2.0**-23)
    assert not torch.equal(*(layer.attention.query.weight for layer in module().layers))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_in_evaluation_the_modules_are_the_functions(norm):
    encoded = module(config={"norm": norm}).eval()
    x, mask = random(2, 3, 16, dtype=torch.float32), causal_mask(3)
    first = encoded.layers[0]
    assert torch.equal(
        encoded(x, mask=mask), encoder(x, encoded.params(), encoded.config, mask=mask)
    )
    assert torch.equal(first(x, mask), encoder_layer(x, first.params(), first.config, mask=mask))
    attention = first.attention
    assert torch.equal(attention(x, mask), multi_head_attention(x, attention.params(), mask=mask))
    assert torch.equal(encoded(x, dropout_masks=masks()), encoded(x))
    one = {name: each[0] for name, each in masks().items()}
    assert torch.equal(first(x, dropout_masks=one), first(x))
    assert torch.equal(attention(x, dropout_mask=one["attention_weights"]), attention(x))


def test_in_training_given_masks_decide():
    encoded = module()
    x = random(2, 3, 16, dtype=torch.float32)
    assert torch.equal(
        encoded(x, dropout_masks=masks()),
        encoder(x, encoded.params(), encoded.config, dropout_masks=masks()),
    )
    first, one = encoded.layers[0], {name: each[0] for name, each in masks().items()}
    assert torch.equal(
        first(x, dropout_masks=one),
        encoder_layer(x, first.params(), first.config, dropout_masks=one),
    )
    kept = one["attention_weights"]
    assert torch.equal(
        first.attention(x, dropout_mask=kept),
        multi_head_attention(x, first.attention.params(), dropout_rate=0.5, dropout_mask=kept),
    )


@pytest.mark.parametrize("part", ["encoder", "layer", "attention"])
def test_in_training_pytorch_draws_anew_each_time(part):
    encoded = module()
    called = {
        "encoder": encoded,
        "layer": encoded.layers[0],
        "attention": encoded.layers[0].attention,
    }[part]
    x = random(1, 3, 16, dtype=torch.float32).expand(2, 3, 16)
    torch.manual_seed(1)
    first, second = called(x), called(x)
    torch.manual_seed(1)
    assert torch.equal(called(x), first)
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])
    called.eval()
    assert torch.equal(called(x), called(x))


def test_masks_that_are_not_given_are_drawn():
    encoded = module()
    x = random(2, 3, 16, dtype=torch.float32)
    given = {"attention": masks()["attention"]}
    assert not torch.equal(encoded(x, dropout_masks=given), encoded(x, dropout_masks=given))


def test_rate_0_draws_nothing():
    encoded, x = module(config={"dropout_rate": 0.0}), random(2, 3, 16, dtype=torch.float32)
    state = torch.get_rng_state()
    assert torch.equal(encoded(x), encoded.eval()(x))
    assert torch.equal(torch.get_rng_state(), state)


def test_token_ids_go_through_the_input_part():
    encoded = module(vocab_size=9, max_len=5, padding_idx=0).eval()
    assert isinstance(encoded.input, TransformerInput)
    positions = torch.tensor([2, 0, 4])
    x = encoded.input(IDS, positions)
    assert torch.equal(
        encoded(IDS, positions=positions), encoder(x, encoded.params(), encoded.config)
    )
    assert not torch.equal(encoded(IDS, positions=positions), encoded(IDS))


def test_dropout_of_the_input_part_is_given_by_name():
    encoded = module(vocab_size=9, max_len=5)
    kept = random(2, 3, 16) > 0
    given = {**masks(), "input": kept}
    x = encoded.input(IDS, None, kept)
    assert torch.equal(
        encoded(IDS, dropout_masks=given),
        encoder(x, encoded.params(), encoded.config, dropout_masks=masks()),
    )
    assert given.keys() == {*masks(), "input"}
    without = {"dropout_masks": masks()}
    assert not torch.equal(encoded(IDS, **without), encoded(IDS, **without))


def test_gradients_reach_every_parameter_and_none_the_padding_row():
    encoded = module(config={"final_norm": True}, vocab_size=9, max_len=5, padding_idx=0)
    encoded.eval()(IDS).sin().sum().backward()
    for name, parameter in encoded.named_parameters():
        # Softmax doesn't see the bias of keys: its gradient is 0 but for roundings.
        assert parameter.grad.any() or name.endswith("key.bias"), name
    assert not encoded.input.embeddings.embedding.grad[0].any()


def test_taps_come_from_the_module_too():
    taps = module().eval()(random(2, 3, 16, dtype=torch.float32), return_weights=True)[1]
    assert taps["attention_weights"].shape == (2, 2, 4, 3, 3)
    layer = module().layers[0].eval()
    taps = layer(random(2, 3, 16, dtype=torch.float32), return_taps=True)[1]
    assert "attention_weights" not in taps
    weights = layer.attention(random(2, 3, 16, dtype=torch.float32), return_weights=True)[1]
    assert weights.shape == (2, 4, 3, 3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dtypes_are_those_of_the_config(dtype):
    encoded = module(config={"dtype": dtype}, vocab_size=9, max_len=5)
    assert encoded(IDS).dtype == dtype
    assert {p.dtype for p in encoded.parameters()} == {torch.float32}
    encoded = module(config={"param_dtype": dtype}, vocab_size=9, max_len=5)
    assert encoded(IDS).dtype == dtype
    assert {p.dtype for p in encoded.parameters()} == {dtype}


def test_a_state_moves_to_another_module():
    one, other = module(vocab_size=9, max_len=5).eval(), Encoder(config(), vocab_size=9, max_len=5)
    assert not torch.equal(other.eval()(IDS), one(IDS))
    other.load_state_dict(one.state_dict())
    assert torch.equal(other(IDS), one(IDS))


def test_eps_is_that_of_the_config():
    encoded = module(config={"eps": 1e-3, "final_norm": True})
    norms = [each for each in encoded.modules() if isinstance(each, nn.LayerNorm)]
    assert [norm.eps for norm in norms] == [1e-3] * 5


def test_ids_and_vectors_are_told_apart():
    with pytest.raises(TypeError, match=r"`inputs` must hold integers, got torch\.float32"):
        module(vocab_size=9)(torch.zeros(1, 2, 16))
    with pytest.raises(TypeError, match=r"`x` must be torch\.float32, .*int64"):
        module()(IDS)
    with pytest.raises(ValueError, match="`positions` need token ids"):
        module()(torch.zeros(1, 2, 16), positions=torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="`padding_idx` needs a `vocab_size`, got 0 and None"):
        module(padding_idx=0)


def test_dropout_masks_of_another_name_are_refused():
    with pytest.raises(ValueError, match=re.escape("has 'input', but may hold attention_weights")):
        module()(torch.zeros(2, 3, 16), dropout_masks={"input": torch.ones(2, 3, 16) > 0})
