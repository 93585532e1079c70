"""What a caller says settles the rest; what isn't there is refused with what is nearest."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

from parity.weights import MappingError, convert, weights_plan


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.register_buffer("angles", torch.ones(3))
        self.register_buffer("count", torch.tensor(1))


LEAVES = {
    "hidden": {"kernel": np.zeros((4, 4), np.float32)},
    "second": {"kernel": np.zeros((4, 4), np.float32)},
}
MAPPING = {"left": "second", "right.weight": "hidden/kernel", "angles": None}


def require_mapped(model, ours):
    np.testing.assert_array_equal(ours["second"]["kernel"], model.left.weight.detach().T)
    np.testing.assert_array_equal(ours["hidden"]["kernel"], model.right.weight.detach().T)


def test_modules_tensors_and_none_are_mapped():
    model = Model()
    require_mapped(model, convert(model, LEAVES, mapping=MAPPING))
    plan = weights_plan(model, LEAVES, mapping=MAPPING)
    assert plan.left_out == {"count": "holds integers", "angles": "as `mapping` says"}
    assert str(plan).endswith("angles: left out, as `mapping` says")


def test_a_tensor_of_a_module_that_is_left_out_may_have_a_place():
    model = Model()
    mapping = MAPPING | {"right": None}
    require_mapped(model, convert(model, LEAVES, mapping=mapping))


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_a_mapping_is_read_from_yaml(tmp_path, kind):
    path = tmp_path / "map.yaml"
    path.write_text("left: second\nright.weight: {leaf: hidden/kernel}\nangles: null\n")
    model = Model()
    require_mapped(model, convert(model, LEAVES, mapping=kind(path)))


def test_without_pyyaml_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ImportError, match=r"needs PyYAML\. Install it"):
        convert(Model(), LEAVES, mapping=tmp_path / "map.yaml")


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "map.yaml"
    path.write_text("- left\n")
    with pytest.raises(TypeError, match=r"`mapping` must be a dict or the path.*got list"):
        convert(Model(), LEAVES, mapping=path)


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"lef": "second"}, MappingError, "names `lef`, which is no tensor.*nearest is `left`"),
        ({"left": "secnd"}, MappingError, "sends `left` to `secnd`.*nearest is `second`"),
        ({"left.weight": "second/kernl"}, MappingError, "nearest is `second/kernel`"),
        ({"left.weight": "second"}, MappingError, "no leaf of the port"),
        ({"left.weight": 3}, TypeError, "must send `left.weight` to a leaf.*got {'leaf': 3}|got 3"),
        ({"left": ["second"]}, TypeError, "must send the module `left` to a path"),
        (
            {"left.weight": {"leaf": "second/kernel", "transposed": "yes"}},
            TypeError,
            "True or False for `transposed` of `left.weight`, got 'yes'",
        ),
        (
            {"left.weight": "second/kernel", "right.weight": "second/kernel"},
            MappingError,
            "fills the leaf `second/kernel` twice",
        ),
        ({"count": "second/kernel"}, MappingError, "`count`, which holds integers"),
        ({"angles": "second/kernel"}, MappingError, r"`angles` \[3\] to .* \[4,4\], which doesn't"),
    ],
)
def test_what_is_not_there_is_refused_with_the_nearest(wrong, error, text):
    with pytest.raises(error, match=text):
        convert(Model(), LEAVES, mapping=wrong)


def test_a_tensor_may_go_to_several_leaves():
    model = nn.ModuleDict({"embed": nn.Embedding(6, 4)})
    like = {
        "embed": {"embedding": np.zeros((6, 4), np.float32)},
        "head": {"kernel": np.zeros((4, 6), np.float32)},
    }
    mapping = {"embed.weight": ["embed/embedding", "head/kernel"]}
    ours = convert(model, like, mapping=mapping)
    np.testing.assert_array_equal(ours["head"]["kernel"], ours["embed"]["embedding"].T)
    back = convert(ours, like=model, mapping=mapping)
    assert torch.equal(back["embed.weight"], model.embed.weight)


def test_a_buffer_without_a_place_is_an_error_until_it_is_left_out():
    with pytest.raises(MappingError, match=r"angles \[3\]"):
        convert(Model(), LEAVES, mapping={"left": "second"})
