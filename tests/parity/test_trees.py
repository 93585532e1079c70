"""Trees of leaves, as NumPy arrays by path."""

from collections import OrderedDict
from typing import NamedTuple

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

from parity.trees import flatten


class Loss(NamedTuple):
    value: float
    parts: list


def test_paths_say_where_a_leaf_is():
    tree = OrderedDict(layers=[{"kernel": np.ones(2)}, {"kernel": np.ones(3)}], bias=np.ones(1))
    assert list(flatten(tree, "x")) == ["layers[0]/kernel", "layers[1]/kernel", "bias"]


def test_named_tuples_are_trees_and_none_is_no_leaf():
    tree = {"loss": Loss(1.5, [np.ones(1), None]), "empty": {}, "none": None}
    assert list(flatten(tree, "x")) == ["loss/value", "loss/parts[0]"]


def test_plain_numbers_in_a_list_are_one_array():
    assert flatten([1, -1], "x")[""].tolist() == [1, -1]
    assert flatten((0.5, True), "x")[""].dtype == np.float64


@pytest.mark.parametrize(
    ("leaf", "dtype"),
    [
        (1, "int64"),
        (True, "bool"),
        (2.5, "float64"),
        (np.float32(1), "float32"),
        (jnp.ones(2, jnp.bfloat16), "bfloat16"),
        (torch.ones(2, dtype=torch.bfloat16, requires_grad=True), "bfloat16"),
        (torch.nn.Parameter(torch.ones(2)), "float32"),
        (np.ones(2, ml_dtypes.bfloat16), "bfloat16"),
    ],
)
def test_leaves_of_every_kind_keep_their_dtype(leaf, dtype):
    assert flatten(leaf, "x")[""].dtype.name == dtype


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": ["text"]}, r"`actual` at `a\[0\]` is str"),
        ("text", "`actual` is str"),
        ({"a": np.ones(2, complex)}, "`actual` at `a` is complex128"),
        ({"a": object()}, "`actual` at `a` is object"),
        ({"a": np.array(["x"])}, "`actual` at `a` is ndarray"),
    ],
)
def test_other_leaves_are_refused_with_their_place(tree, message):
    with pytest.raises(TypeError, match=f"{message}. Give arrays of floats, integers or bools"):
        flatten(tree, "actual")


def test_two_leaves_of_one_path_are_refused():
    with pytest.raises(ValueError, match="`actual` has two leaves at `1`"):
        flatten({1: np.ones(1), "1": np.ones(1)}, "actual")
