"""One layer beside PyTorch's own, its taps, and what it drops."""

import re

import pytest
import torch
from torch import nn

from tests.torch_ref.peers import (
    BATCH,
    HIDDEN_KEYS,
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
from torch_ref.ffn import feed_forward
from torch_ref.initial import encoder_params
from torch_ref.layers import encoder_layer
from torch_ref.mask_conventions import mask_from_key_padding
from torch_ref.normalization import layer_norm
from torch_ref.torch_encoder import from_torch_encoder


def layer_of(encoder):
    """Return the config and parameters of the first layer of PyTorch's encoder."""
    config, params = from_torch_encoder(encoder)
    return config, map_params(params["layers"], lambda leaf: leaf[0])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_layer_and_its_gradients_are_those_of_torch(norm, activation, bias):
    results = []
    for dtype, is_peer in ((torch.float64, False), (torch.float64, True), (torch.float32, False)):
        peer = torch_encoder(
            layers=1, norm_first=norm == "pre", activation=activation, bias=bias, dtype=dtype
        )
        x = random(BATCH, LENGTH, WIDTH, dtype=dtype).requires_grad_()
        config, params = layer_of(peer)
        params = map_params(params, torch.Tensor.requires_grad_)
        if is_peer:
            y = peer.layers[0](x, src_key_padding_mask=HIDDEN_KEYS)
            y.backward(random(*y.shape, seed=5, dtype=dtype))
            found = map_params(gradient_params(peer)["layers"], lambda leaf: leaf[0])
        else:
            y = encoder_layer(x, params, config, mask=mask_from_key_padding(HIDDEN_KEYS))
            y.backward(random(*y.shape, seed=5, dtype=dtype))
            found = map_params(params, lambda leaf: leaf.grad)
        results.append([("y", y.detach()), ("x", x.grad), *leaves(found)])
    for (name, ours), (_, theirs), (_, coarse) in zip(*results, strict=True):
        if name.endswith("key/bias"):  # 0 but for roundings: softmax doesn't see it
            assert ours.abs().max() < 1e-13 > theirs.abs().max()
        else:
            assert_near(ours, theirs, coarse)


def small_layer(**options):
    options = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 12, **options}
    config = EncoderConfig(**options)
    params = encoder_params(config, torch.Generator().manual_seed(0))
    return config, map_params(params["layers"], lambda leaf: leaf[0])


def test_the_taps_of_a_post_norm_layer_are_its_steps():
    config, params = small_layer()
    x = random(2, 3, 8, dtype=torch.float32)
    y, taps = encoder_layer(x, params, config, return_taps=True)
    assert torch.equal(taps["attention_sum"], x + taps["attention"])
    assert torch.equal(
        taps["attention_norm"], layer_norm(taps["attention_sum"], params["attention_norm"])
    )
    assert (taps["feed_forward_hidden"] >= 0).all()
    assert torch.equal(
        taps["feed_forward"], feed_forward(taps["attention_norm"], params["feed_forward"])
    )
    assert torch.equal(taps["feed_forward_sum"], taps["attention_norm"] + taps["feed_forward"])
    assert taps["feed_forward_norm"] is y
    assert torch.equal(encoder_layer(x, params, config), y)


def test_the_taps_of_a_pre_norm_layer_are_its_steps():
    config, params = small_layer(norm="pre", activation="gelu")
    x = random(2, 3, 8, dtype=torch.float32)
    y, taps = encoder_layer(x, params, config, return_taps=True)
    assert torch.equal(taps["attention_norm"], layer_norm(x, params["attention_norm"]))
    assert torch.equal(taps["attention_sum"], x + taps["attention"])
    h = taps["attention_sum"]
    assert torch.equal(taps["feed_forward_norm"], layer_norm(h, params["feed_forward_norm"]))
    assert torch.equal(y, h + taps["feed_forward"])
    assert taps["feed_forward_sum"] is y


def test_weights_are_among_the_taps_where_they_are_asked_for():
    config, params = small_layer()
    x = random(2, 3, 8)
    steps = {
        f"{name}{end}" for name in ("attention", "feed_forward") for end in ("", "_sum", "_norm")
    } | {"feed_forward_hidden"}
    assert encoder_layer(x, params, config, return_taps=True)[1].keys() == steps
    taps = encoder_layer(x, params, config, return_weights=True)[1]
    assert taps.keys() == steps | {"attention_weights"}
    assert taps["attention_weights"].shape == (2, 2, 3, 3)


class Given(nn.Module):
    """Dropout by a mask in place of a draw."""

    def __init__(self, mask):
        super().__init__()
        self.mask, self.p = mask, 0.25

    def forward(self, x):
        return x * self.mask / 0.75


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_entries_are_dropped_where_torch_drops_them(norm):
    peer = torch_encoder(layers=1, norm_first=norm == "pre")
    config, params = layer_of(peer)
    drawn = encoder_dropout_masks(config, BATCH, LENGTH, generator=torch.Generator().manual_seed(1))
    masks = {name: mask[0] for name, mask in drawn.items() if name != "attention_weights"}
    layer = peer.layers[0]
    layer.dropout = Given(masks["feed_forward_hidden"])
    layer.dropout1, layer.dropout2 = Given(masks["attention"]), Given(masks["feed_forward"])
    x = random(BATCH, LENGTH, WIDTH)
    coarse = encoder_layer(x.float(), params, config, dropout_masks=masks)
    # An input that needs a gradient keeps PyTorch from its fast path, which drops nothing.
    expected = layer(x.clone().requires_grad_()).detach()
    assert_near(encoder_layer(x, params, config, dropout_masks=masks), expected, coarse)
    for name in masks:
        fewer = {other: mask for other, mask in masks.items() if other != name}
        assert not torch.equal(
            encoder_layer(x.float(), params, config, dropout_masks=fewer), coarse
        )


def test_dropped_weights_of_attention_are_not_used():
    config, params = small_layer(dropout_rate=0.5)
    x = random(2, 3, 8, dtype=torch.float32)
    masks = {"attention_weights": torch.zeros(2, 2, 3, 3, dtype=torch.bool)}
    taps = encoder_layer(x, params, config, dropout_masks=masks, return_weights=True)[1]
    assert not taps["attention"].any()  # the bias of "out" is zero at first
    assert taps["attention_weights"].all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_every_step_of_a_layer_has_the_dtype_of_its_input(dtype, norm):
    config, params = small_layer(norm=norm)
    y, taps = encoder_layer(random(2, 3, 8, dtype=dtype), params, config, return_taps=True)
    assert y.dtype == dtype
    assert {tap.dtype for tap in taps.values()} == {dtype}


def test_what_does_not_fit_a_layer_is_refused():
    config, params = small_layer()
    x = torch.ones(1, 2, 8)
    with pytest.raises(ValueError, match=re.escape("d_model 8], got [1, 2, 6]")):
        encoder_layer(torch.ones(1, 2, 6), params, config)
    with pytest.raises(ValueError, match="lacks 'attention'; it must hold attention, attention_no"):
        encoder_layer(x, {k: v for k, v in params.items() if k != "attention"}, config)
    without = {k: v for k, v in params["attention"].items() if k != "out"}
    with pytest.raises(ValueError, match=r"`params\['attention'\]` lacks 'out'"):
        encoder_layer(x, {**params, "attention": without}, config)
    with pytest.raises(ValueError, match=r"`params\['attention_norm'\]` lacks 'scale'"):
        encoder_layer(x, {**params, "attention_norm": {}}, config)
    other = small_layer(num_heads=4)[1]
    with pytest.raises(ValueError, match=re.escape("must have shape [8, 2, 4] (d_model, num_he")):
        encoder_layer(x, other, config)
    for part, sizes in (("attention", [2, 4]), ("feed_forward", [config.d_ff])):
        narrow = {**params[part], "out": {"kernel": torch.ones(*sizes, 1)}}
        message = f"`params['{part}']['out']['kernel']` must have shape {[*sizes, 8]}"
        with pytest.raises(ValueError, match=re.escape(message)):
            encoder_layer(x, {**params, part: narrow}, config)
    with pytest.raises(ValueError, match="`return_taps` must be False or True, got None"):
        encoder_layer(x, params, config, return_taps=None)


def test_dropout_masks_of_another_name_or_shape_are_refused():
    config, params = small_layer()
    x, kept = torch.ones(1, 2, 8), torch.ones(1, 2, 8, dtype=torch.bool)
    with pytest.raises(ValueError, match="has 'attn', but may hold attention_weights, attention,"):
        encoder_layer(x, params, config, dropout_masks={"attn": kept})
    with pytest.raises(ValueError, match=r"`dropout_masks\['feed_forward_hidden'\]` must have sh"):
        encoder_layer(x, params, config, dropout_masks={"feed_forward_hidden": kept})
    with pytest.raises(TypeError, match=r"`dropout_masks\['attention'\]` must be a torch\.bool"):
        encoder_layer(x, params, config, dropout_masks={"attention": kept.float()})
    with pytest.raises(TypeError, match="must be a dict of masks by name, got Tensor"):
        encoder_layer(x, params, config, dropout_masks=kept)
