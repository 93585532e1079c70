import math

import pytest
import torch

from torch_ref.config import EncoderConfig
from torch_ref.dropout_masks import encoder_dropout_masks
from torch_ref.inputs import dropout

CONFIG = EncoderConfig(num_layers=3, d_model=64, num_heads=4, d_ff=96, dropout_rate=0.5)
SHAPES = {
    "attention_weights": (3, 2, 4, 16, 16),
    "attention": (3, 2, 16, 64),
    "feed_forward_hidden": (3, 2, 16, 96),
    "feed_forward": (3, 2, 16, 64),
}


def drawn(seed=0, **options):
    return encoder_dropout_masks(
        CONFIG, 2, 16, generator=torch.Generator().manual_seed(seed), **options
    )


def test_there_is_one_mask_for_each_place():
    masks = drawn()
    assert {name: tuple(mask.shape) for name, mask in masks.items()} == SHAPES
    assert {mask.dtype for mask in masks.values()} == {torch.bool}


@pytest.mark.parametrize("name", SHAPES)
def test_masks_differ_between_layers_examples_and_heads(name):
    mask = drawn()[name]
    for axis in (0, 1, 2) if name == "attention_weights" else (0, 1):
        first, second = mask.select(axis, 0), mask.select(axis, 1)
        # Of independent masks half the entries differ; six deviations of that.
        count = first.numel()
        differ = (first != second).double().mean().item()
        assert abs(differ - 0.5) <= 6 * 0.5 / math.sqrt(count)


def test_a_generator_gives_its_masks_again_and_then_others():
    one, same = drawn(), drawn()
    generator = torch.Generator().manual_seed(0)
    steps = [encoder_dropout_masks(CONFIG, 2, 16, generator=generator) for _ in range(2)]
    for name in SHAPES:
        assert torch.equal(one[name], same[name])
        assert torch.equal(one[name], steps[0][name])
        assert not torch.equal(one[name], steps[1][name])


def test_kept_entries_are_raised_so_that_the_mean_stays():
    ones = torch.ones(SHAPES["attention"])
    y = dropout(ones, 0.5, mask=drawn()["attention"])
    assert y.unique().tolist() == [0, 2]
    assert abs(y.mean().item() - 1) <= 5 / math.sqrt(y.numel())  # its deviation is 1 / sqrt(n)


def test_masks_come_to_the_device_that_is_asked_for():
    masks = encoder_dropout_masks(CONFIG, 2, 16, device=torch.device("meta"))
    assert {mask.device.type for mask in masks.values()} == {"meta"}
