"""Layers that are stacked in one leaf (parity.stacked_weights)."""

import numpy as np
import pytest

from parity.placement import plan
from parity.placement_units import Layer
from parity.weight_causes import weight_causes

COUNT = 12
WEIGHTS = {f"layers.{k}.weight": np.random.default_rng(k).normal(size=(3, 2)) for k in range(COUNT)}
LAYERS = {
    f"layers.{k}": Layer("Linear", {"in_features": 2, "out_features": 3}) for k in range(COUNT)
}
RIGHT = {"layers/kernel": np.stack([w.T for w in WEIGHTS.values()])}


@pytest.fixture(scope="module")
def found():
    return plan(WEIGHTS, LAYERS, RIGHT)


def cause(found, leaf):
    causes = weight_causes(found, {"layers/kernel": leaf}, RIGHT)
    return causes[0] if causes else None


def test_right_layers_have_no_cause(found):
    assert cause(found, RIGHT["layers/kernel"].copy()) is None


def test_layers_in_the_order_of_their_names(found):
    order = sorted(range(COUNT), key=str)
    named = cause(found, RIGHT["layers/kernel"][order])
    assert (named.code, named.tensor) == ("layers-swapped", "layers.2.weight")
    assert "(0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9)" in named.cause


def test_a_layer_that_is_there_twice(found):
    leaf = RIGHT["layers/kernel"].copy()
    leaf[11] = leaf[10]
    named = cause(found, leaf)
    assert (named.code, named.tensor) == ("layers-swapped", "layers.11.weight")


def test_one_layer_that_is_wrong_is_told_apart(found):
    leaf = RIGHT["layers/kernel"].copy()
    leaf[4] += 1
    named = cause(found, leaf)
    assert (named.code, named.tensor) == ("weight-differs", "layers.4.weight")
    assert "the other layers are right" in named.cause


def test_a_mistake_of_all_layers_is_that_mistake(found):
    assert cause(found, -RIGHT["layers/kernel"]).code == "sign"
