"""Trees of parameters of every kind, flat by path and back (parity.frameworks.jax_leaves)."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx
from flax.core import FrozenDict, meta

from parity.frameworks.jax_leaves import flatten, require_same_paths


def zeros(*paths):
    return {path: np.zeros(2) for path in paths}


def doubled(leaves):
    return {path: leaf * 2 for path, leaf in leaves.items()}


def same(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for ours, theirs in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(ours, theirs, strict=True)


class Net(nnx.Module):
    def __init__(self, rngs):
        self.zebra = nnx.Linear(2, 3, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(3, 3, rngs=rngs) for _ in range(11)])
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.apple = nnx.BatchNorm(3, rngs=rngs)

    def __call__(self, x):
        return self.apple(self.drop(self.zebra(x)))


@pytest.mark.parametrize("kind", [dict, FrozenDict, collections.OrderedDict])
def test_nested_dicts_come_back_as_they_were(kind):
    tree = kind({"Dense_0": kind({"kernel": jnp.ones((2, 3)), "bias": jnp.zeros(3)})})
    leaves, rebuild = flatten(tree)
    assert list(leaves) == ["Dense_0/kernel", "Dense_0/bias"]
    again = rebuild(doubled(leaves))
    assert type(again) is kind
    assert type(again["Dense_0"]) is kind
    same(again, jax.tree.map(lambda leaf: leaf * 2, tree))


def test_a_default_dict_keeps_its_default():
    tree = collections.defaultdict(list, a=np.ones(2))
    _, rebuild = flatten(tree)
    again = rebuild({"a": np.zeros(2)})
    assert again.default_factory is list
    assert again["a"].sum() == 0
    assert tree["a"].sum() == 2


def test_lists_tuples_and_numbers_of_python_keep_their_places():
    pair = collections.namedtuple("Pair", "left right")
    tree = {"layers": [np.ones(1), pair(np.ones(2), None)], "rate": 0.1, "act": jax.nn.relu}
    leaves, rebuild = flatten(tree)
    assert list(leaves) == ["layers/0", "layers/1/left"]
    again = rebuild(doubled(leaves))
    assert again["layers"][1].left.tolist() == [2, 2]
    assert (again["layers"][1].right, again["rate"], again["act"]) == (None, 0.1, jax.nn.relu)


def test_an_array_alone_is_the_leaf_without_a_path():
    leaves, rebuild = flatten(np.ones(2))
    assert list(leaves) == [""]
    assert rebuild({"": 3}) == 3


def test_none_has_no_leaves():
    leaves, rebuild = flatten(None)
    assert leaves == {}
    assert rebuild({}) is None


def test_dicts_that_jax_sorted_are_in_natural_order():
    names = [f"Dense_{index}" for index in range(12)]
    leaves, _ = flatten(jax.tree.map(lambda leaf: leaf, dict.fromkeys(sorted(names), np.ones(1))))
    assert list(leaves) == names


def test_dicts_in_the_order_of_creation_stay_so():
    names = ["embed", "Dense_10", "Dense_2", "attention"]
    leaves, _ = flatten({name: np.ones(1) for name in names})
    assert list(leaves) == names


def test_collections_of_linen_are_no_part_of_the_paths():
    norm, other = {"scale": np.ones(2)}, {"mean": np.zeros(2)}
    tree = {"batch_stats": {"BatchNorm_0": other}, "params": {"BatchNorm_0": norm}}
    leaves, rebuild = flatten(tree)
    assert list(leaves) == ["BatchNorm_0/scale", "BatchNorm_0/mean"]
    again = rebuild(leaves)
    assert list(again) == ["batch_stats", "params"]
    same(again, tree)


def test_collections_with_one_path_are_told_apart():
    tree = {"params": {"norm": {"mean": np.ones(1)}}, "stats": {"norm": {"mean": np.zeros(1)}}}
    leaves, rebuild = flatten(tree)
    assert list(leaves) == ["norm/mean", "stats/norm/mean"]
    same(rebuild(leaves), tree)


def test_a_layer_named_params_beside_an_array_is_a_layer():
    leaves, _ = flatten({"params": {"kernel": np.ones(1)}, "scale": np.ones(1)})
    assert list(leaves) == ["params/kernel", "scale"]


@pytest.mark.parametrize("box", [nn.Partitioned, nn.LogicallyPartitioned])
def test_boxes_are_unboxed_and_boxed_again(box):
    tree = {"kernel": box(jnp.ones((2, 3)), names=("in", "out"))}
    leaves, rebuild = flatten(tree)
    assert list(leaves) == ["kernel"]
    again = rebuild(doubled(leaves))
    assert again["kernel"].names == ("in", "out")
    same(meta.unbox(again), {"kernel": 2 * jnp.ones((2, 3))})


def test_an_nnx_module_is_flat_in_the_order_in_which_it_was_built():
    leaves, _ = flatten(Net(nnx.Rngs(0)))
    layers = [f"layers/{index}/{name}" for index in range(11) for name in ("kernel", "bias")]
    norm = ["apple/mean", "apple/var", "apple/scale", "apple/bias"]
    assert [p for p in leaves if not p.startswith("apple")] == [
        "zebra/kernel",
        "zebra/bias",
        *layers,
    ]
    assert sorted(p for p in leaves if p.startswith("apple")) == sorted(norm)
    assert list(leaves)[-4:-2] == norm[:2]


def test_an_nnx_module_is_built_anew_and_the_old_one_stays():
    net = Net(nnx.Rngs(0))
    before = jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(net, nnx.Not(nnx.RngState))))
    leaves, rebuild = flatten(net)
    new = rebuild(doubled(leaves))
    new(jnp.ones((4, 2)))
    assert isinstance(new, Net)
    np.testing.assert_array_equal(new.zebra.kernel[...], 2 * net.zebra.kernel[...])
    assert net.drop.rngs.count[...] == 0
    assert new.drop.rngs.count[...] == 1
    same(nnx.to_pure_dict(nnx.state(net, nnx.Not(nnx.RngState))), before)


def test_a_tied_nnx_module_has_its_leaves_once_and_stays_tied():
    class Tied(nnx.Module):
        def __init__(self, rngs):
            self.one = nnx.Linear(2, 2, rngs=rngs)
            self.two = self.one

    leaves, rebuild = flatten(Tied(nnx.Rngs(0)))
    assert len(leaves) == 2
    again = rebuild(leaves)
    assert again.one is again.two


def test_an_nnx_state_comes_back_as_a_state():
    state = nnx.state(Net(nnx.Rngs(0)))
    leaves, rebuild = flatten(state)
    assert not any("rngs" in path for path in leaves)
    assert "layers/10/kernel" in leaves
    again = rebuild(doubled(leaves))
    assert isinstance(again, nnx.State)
    assert isinstance(again["zebra"]["kernel"], nnx.Param)
    np.testing.assert_array_equal(again["zebra"]["kernel"][...], 2 * leaves["zebra/kernel"])
    net = Net(nnx.Rngs(1))
    nnx.update(net, again)
    np.testing.assert_array_equal(net.layers[3].kernel[...], 2 * leaves["layers/3/kernel"])


def test_keys_are_no_leaves():
    tree = {"key": jax.random.key(0), "kernel": np.ones(2)}
    leaves, rebuild = flatten(tree)
    assert list(leaves) == ["kernel"]
    assert rebuild(leaves)["key"] is tree["key"]


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32, jnp.int32, bool])
def test_arrays_of_every_kind_of_number_are_leaves(dtype):
    leaves, _ = flatten({"a": jnp.zeros(2, dtype), "b": jax.ShapeDtypeStruct((2,), dtype)})
    assert list(leaves) == ["a", "b"]


def test_an_equinox_module_is_flat_by_its_fields_and_comes_back():
    eqx = pytest.importorskip("equinox")
    mlp = eqx.nn.MLP(2, 3, 4, depth=2, key=jax.random.key(0))
    leaves, rebuild = flatten(mlp)
    names = ("weight", "bias")
    assert list(leaves) == [f"layers/{i}/{name}" for i in range(3) for name in names]
    again = rebuild(doubled(leaves))
    assert type(again) is type(mlp)
    np.testing.assert_array_equal(again.layers[1].weight, 2 * mlp.layers[1].weight)


def test_two_leaves_with_one_path_are_refused():
    with pytest.raises(ValueError, match=r"`params` has two leaves at `a/b`. Rename one"):
        flatten({"a/b": np.ones(1), "a": {"b": np.ones(1)}})


def test_rebuilding_from_other_paths_is_refused():
    _, rebuild = flatten(zeros("a", "b"))
    with pytest.raises(ValueError, match=r"`leaves` lacks `b` and has the unexpected `c`."):
        rebuild(zeros("a", "c"))
    _, rebuild = flatten({"params": zeros("a", "b")})
    with pytest.raises(ValueError, match=r"`leaves` lacks `b`."):
        rebuild(zeros("a"))


def test_the_first_paths_that_do_not_fit_are_listed():
    with pytest.raises(ValueError, match=r"`params` lacks `0`, `1`, `2` and 6 more."):
        require_same_paths([], "012345678", "params")


def test_no_framework_is_loaded_to_recognise_it(python):
    code = """
import sys, numpy
from parity.frameworks.jax_leaves import flatten
assert list(flatten({"params": {"a": numpy.ones(1)}})[0]) == ["a"]
print(sorted({"flax", "equinox", "torch"} & sys.modules.keys()))
"""
    assert python(code).stdout.strip() == "[]"
