"""Pinning, with and without an accelerator; what one would do is played where there is none."""

import re
import warnings
from collections import defaultdict
from typing import NamedTuple

import pytest
import torch

from torch_ref.memory import pin_memory

HAS_ACCELERATOR = torch.accelerator.is_available()
NEEDS_ONE = pytest.mark.skipif(not HAS_ACCELERATOR, reason="pinning needs an accelerator")
HAS_NONE = pytest.mark.skipif(HAS_ACCELERATOR, reason="nothing is refused where there is one")


class Cache(NamedTuple):
    key: torch.Tensor
    value: torch.Tensor


def tree():
    return {"layers": [Cache(torch.ones(2, 3), torch.zeros(2)), (torch.arange(4),)], "empty": []}


@pytest.fixture
def pinned(monkeypatch):
    """Let a copy stand for pinning, and note what was pinned."""
    found = []

    def pin(tensor):
        found.append(tensor.clone())
        return found[-1]

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda x: any(x is each for each in found))
    return found


def test_every_tensor_of_a_tree_is_pinned_and_the_tree_keeps_its_kinds(pinned):
    before, after = tree(), pin_memory(tree())
    assert len(pinned) == 3
    cache, (counts,) = after["layers"]
    assert type(cache) is Cache
    assert type(after["layers"][1]) is tuple
    assert after["empty"] == []
    assert cache.key is pinned[0]
    assert torch.equal(cache.key, before["layers"][0].key)
    assert torch.equal(cache.value, before["layers"][0].value)
    assert counts.dtype == torch.int64


def test_a_dict_with_a_default_keeps_it(pinned):
    after = pin_memory(defaultdict(list, key=torch.ones(2)))
    assert after["key"] is pinned[0]
    assert after["other"] == []


def test_a_tensor_alone_is_a_tree(pinned):
    assert pin_memory(torch.ones(2)) is pinned[0]


def test_what_is_pinned_already_stays_as_it_is(pinned):
    once = pin_memory([torch.ones(2)])
    assert pin_memory(once)[0] is once[0]
    assert len(pinned) == 1


@HAS_NONE
def test_without_an_accelerator_all_come_back_with_one_warning():
    before = tree()
    with pytest.warns(UserWarning, match="accelerator") as caught:
        after = pin_memory(before)
    assert len(caught) == 1
    assert str(caught[0].message).startswith("Of the tensors, 3 were not pinned: ")
    assert caught[0].filename == __file__
    assert after["layers"][0].key is before["layers"][0].key
    assert after["layers"][1][0] is before["layers"][1][0]


def test_a_tensor_without_values_comes_back_with_the_warning(pinned):
    meta = torch.ones(2, device="meta")
    with pytest.warns(UserWarning, match="1 were not pinned: one on the device meta has no values"):
        assert pin_memory([meta, torch.ones(2)])[0] is meta
    assert len(pinned) == 1


@pytest.mark.usefixtures("pinned")
def test_what_goes_wrong_while_pinning_is_raised(monkeypatch):
    def fail(_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(torch.Tensor, "pin_memory", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        pin_memory([torch.ones(2)])


def test_a_tree_without_tensors_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pin_memory({"a": [], "b": ()}) == {"a": [], "b": ()}


@NEEDS_ONE
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_with_an_accelerator_tensors_are_pinned_on_the_host(device):
    before = {"cache": [torch.ones(2, 3, device=device), torch.arange(4, device=device)]}
    after = pin_memory(before)
    for old, new in zip(before["cache"], after["cache"], strict=True):
        assert new.is_pinned()
        assert new.device.type == "cpu"
        assert torch.equal(new, old.cpu())


@pytest.mark.parametrize(
    ("wrong", "place"), [({"a": [1.0]}, "`tree`['a'][0] must be"), ([None], "`tree`[0] must be")]
)
def test_what_is_no_tensor_is_refused_with_its_place(wrong, place):
    with pytest.raises(TypeError, match=re.escape(f"{place} a torch.Tensor, got ")):
        pin_memory(wrong)
