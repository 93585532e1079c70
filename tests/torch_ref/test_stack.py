"""The whole encoder beside PyTorch's own: outputs, gradients, taps, dropout."""

import re

import pytest
import torch

from tests.torch_ref.peers import (
    BATCH,
    HEADS,
    HIDDEN_KEYS,
    LAYERS,
    LENGTH,
    WIDTH,
    assert_near,
    gradient_params,
    leaves,
    random,
    torch_encoder,
)
from torch_ref.config import EncoderConfig
from torch_ref.dense import map_params
from torch_ref.dropout_masks import encoder_dropout_masks
from torch_ref.initial import encoder_params
from torch_ref.layers import encoder_layer
from torch_ref.mask_conventions import mask_from_attn_mask, mask_from_key_padding
from torch_ref.masks import block_diagonal_mask, causal_mask, local_window_mask
from torch_ref.normalization import layer_norm
from torch_ref.stack import encoder
from torch_ref.torch_encoder import from_torch_encoder

PADDING = {"src_key_padding_mask": HIDDEN_KEYS}
BY_HEAD = random(BATCH * HEADS, LENGTH, LENGTH, seed=9) > 0.5
BY_HEAD[:, torch.arange(LENGTH), torch.arange(LENGTH)] = False
HIDDEN = {
    "causal": ~causal_mask(LENGTH)[0, 0],
    "window": ~local_window_mask(LENGTH, 1)[0, 0],
    "blocks": ~block_diagonal_mask(LENGTH, 2)[0, 0],
    "by head": BY_HEAD,
}
MASKS = {"none": ({}, None), "padding": (PADDING, mask_from_key_padding(HIDDEN_KEYS))} | {
    name: ({"mask": hidden}, mask_from_attn_mask(hidden, num_heads=HEADS))
    for name, hidden in HIDDEN.items()
}
MASKS["padding and causal"] = (
    {"mask": HIDDEN["causal"], **PADDING},
    MASKS["padding"][1] & MASKS["causal"][1],
)
NORMS = {"post": {}, "pre": {"norm_first": True}, "final": {"norm_first": True, "final_norm": True}}


def results(options, given, mask, dtype=torch.float64, *, is_peer=False):
    """Return the output and every gradient by name."""
    peer = torch_encoder(dtype=dtype, **options)
    x = random(BATCH, LENGTH, WIDTH, dtype=dtype).requires_grad_()
    config, params = from_torch_encoder(peer)
    params = map_params(params, torch.Tensor.requires_grad_)
    y = peer(x, **given) if is_peer else encoder(x, params, config, mask=mask)
    y.backward(random(*y.shape, seed=5, dtype=dtype))
    found = gradient_params(peer) if is_peer else map_params(params, lambda leaf: leaf.grad)
    return {"y": y.detach(), "x": x.grad, **dict(leaves(found))}


def assert_alike(options, given, mask):
    ours, coarse = (results(options, given, mask, d) for d in (torch.float64, torch.float32))
    theirs = results(options, given, mask, is_peer=True)
    assert ours.keys() == theirs.keys()
    for name in ours:
        if name.endswith("key/bias"):  # 0 but for roundings: softmax doesn't see it
            assert max(each[name].abs().max() for each in (ours, theirs)) < 1e-13
        else:
            assert_near(ours[name], theirs[name], coarse[name])


@pytest.mark.parametrize(("given", "mask"), MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
def test_outputs_and_gradients_are_those_of_torch_under_every_mask(norm, given, mask):
    assert_alike(norm, given, mask)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
def test_outputs_and_gradients_are_those_of_torch_in_every_form(norm, activation, bias):
    options = {**norm, "activation": activation, "bias": bias, "layer_norm_eps": 1e-3}
    if "final_norm" in norm:
        options["layer_norm_eps"] = 1e-5  # its last norm has that
    assert_alike(options, *MASKS["padding"])


def small(**options):
    options = {"num_layers": 3, "d_model": 8, "num_heads": 2, "d_ff": 12, **options}
    config = EncoderConfig(**options)
    return config, encoder_params(config, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_taps_are_those_of_the_layers_one_after_the_other(norm):
    config, params = small(norm=norm, final_norm=True)
    x = random(2, 4, 8, dtype=torch.float32)
    y, taps = encoder(x, params, config, return_taps=True, return_weights=True)
    for index in range(3):
        layer = map_params(params["layers"], lambda leaf, index=index: leaf[index])
        x, tapped = encoder_layer(x, layer, config, return_taps=True, return_weights=True)
        assert tapped.keys() | {"final_norm"} == taps.keys()
        for name, tap in tapped.items():
            assert torch.equal(taps[name][index], tap)
    assert torch.equal(y, layer_norm(x, params["final_norm"]))
    assert torch.equal(taps["final_norm"], y)
    assert taps["attention_weights"].shape == (3, 2, 2, 4, 4)


def test_taps_come_where_they_are_asked_for():
    config, params = small()
    x = random(2, 4, 8, dtype=torch.float32)
    y, taps = encoder(x, params, config, return_taps=True)
    assert not {"attention_weights", "final_norm"} & taps.keys()
    assert "attention_weights" in encoder(x, params, config, return_weights=True)[1]
    assert torch.equal(encoder(x, params, config), y)


def test_the_dtype_of_the_config_is_computed_in_and_returned():
    config, params = small(dtype=torch.bfloat16)
    x = random(2, 4, 8, dtype=torch.float32)
    y, taps = encoder(x, params, config, return_taps=True)
    assert {each.dtype for each in (y, *taps.values())} == {torch.bfloat16}
    assert torch.equal(y, encoder(x.bfloat16(), params, small()[0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_every_dtype_comes_back(dtype):
    config, params = small()
    x = random(2, 4, 8, dtype=dtype).requires_grad_()
    y = encoder(x, params, config)
    assert y.dtype == dtype
    y.sum().backward()
    assert x.grad.dtype == dtype


def test_without_positions_attention_is_blind_to_order():
    config, params = small()
    x, order = random(1, 4, 8), torch.tensor([2, 0, 3, 1])
    coarse = encoder(x.float(), params, config)
    assert_near(
        encoder(x[:, order], params, config), encoder(x, params, config)[:, order], coarse[:, order]
    )


def test_a_fully_padded_batch_has_finite_outputs_and_gradients():
    config, params = small()
    params = map_params(params, torch.Tensor.requires_grad_)
    hidden = torch.tensor([[False] * 4, [True] * 4])
    x = random(2, 4, 8, dtype=torch.float32).requires_grad_()
    y = encoder(x, params, config, mask=mask_from_key_padding(hidden))
    alone = encoder(x, params, config, mask=mask_from_key_padding(torch.zeros_like(hidden)))
    assert torch.equal(y[0], alone[0])
    y.square().sum().backward()
    assert all(leaf.grad.isfinite().all() for _, leaf in [("x", x), *leaves(params)])


def test_dropout_masks_are_those_of_each_layer():
    config, params = small(dropout_rate=0.5)
    x = random(2, 4, 8, dtype=torch.float32)
    masks = encoder_dropout_masks(config, 2, 4, generator=torch.Generator().manual_seed(3))
    y = encoder(x, params, config, dropout_masks=masks)
    again = encoder(x, params, config, dropout_masks=masks)
    assert torch.equal(y, again)
    for index in range(3):
        layer = map_params(params["layers"], lambda leaf, index=index: leaf[index])
        kept = {name: mask[index] for name, mask in masks.items()}
        x = encoder_layer(x, layer, config, dropout_masks=kept)
    assert torch.equal(y, x)


def test_what_does_not_fit_is_refused():
    config, params = small()
    x = torch.ones(1, 2, 8)
    with pytest.raises(ValueError, match="`params` lacks 'final_norm'"):
        encoder(x, params, small(final_norm=True)[0])
    with pytest.raises(ValueError, match="`params` has 'final_norm'; it must hold layers"):
        encoder(x, small(final_norm=True)[1], config)
    message = "`params['layers']['attention']['query']['kernel']` must be a tensor with a leading "
    with pytest.raises(ValueError, match=re.escape(message)):
        encoder(x, small(num_layers=2)[1], config)
    with pytest.raises(
        ValueError, match=re.escape("`params['layers']` must be a tensor")
    ) as caught:
        encoder(x, {"layers": [1]}, config)
    assert "num_layers, 3, got list" in str(caught.value)
    with pytest.raises(ValueError, match=re.escape("d_model 8], got [1, 2, 4]")):
        encoder(torch.ones(1, 2, 4), params, config)
    kept = {"attention": torch.ones(1, 2, 8, dtype=torch.bool)}
    with pytest.raises(ValueError, match=re.escape("must have shape [3, 1, 2, 8], got [1, 2, 8]")):
        encoder(x, params, config, dropout_masks=kept)
    with pytest.raises(TypeError, match="got list"):
        encoder(x, params, config, dropout_masks=[])
    with pytest.raises(ValueError, match="`return_weights` must be False or True, got 2"):
        encoder(x, params, config, return_weights=2)


def test_the_number_of_layers_is_that_of_the_peer():
    assert from_torch_encoder(torch_encoder())[0].num_layers == LAYERS
