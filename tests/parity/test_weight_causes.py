"""What is wrong with a leaf that a port was given (parity.weight_causes)."""

import ml_dtypes
import numpy as np
import pytest

from parity.placement import plan
from parity.placement_units import Layer
from parity.weight_causes import weight_causes

RANDOM = np.random.default_rng(0)
LINEAR = Layer("Linear")


def causes(weights, layers, right, path, wrong):
    """Name what is wrong with one leaf; the others are right."""
    found = plan(weights, layers, right)
    right = found.place(weights)
    return weight_causes(found, {**right, path: wrong(right[path])}, right)


def linear(wrong, shape=(3, 5), **more):
    weights = {"fc.weight": RANDOM.normal(size=shape), **more}
    leaves = {"Dense_0/kernel": shape[::-1]}
    (cause,) = causes(weights, {"fc": LINEAR}, leaves, "Dense_0/kernel", wrong)
    return cause


def lstm(wrong):
    weights = {"lstm.weight_ih_l0": RANDOM.normal(size=(16, 3))}
    weights |= {"lstm.weight_hh_l0": RANDOM.normal(size=(16, 4))}
    leaves = {f"cell/i{gate}/kernel": (3, 4) for gate in "ifgo"}
    leaves |= {f"cell/h{gate}/kernel": (4, 4) for gate in "ifgo"}
    stored = weights["lstm.weight_ih_l0"][4:8]
    path = "cell/if/kernel"
    return causes(weights, {"lstm": Layer("LSTM")}, leaves, path, lambda _: wrong(stored))


def test_a_gate_of_a_packed_tensor_that_is_only_reshaped():
    (cause,) = lstm(lambda stored: stored.reshape(3, 4))
    assert (cause.code, cause.tensor) == ("untransposed", "lstm.weight_ih_l0")


def test_a_kernel_of_attention_that_is_only_reshaped():
    weights = {"a.in_proj_weight": RANDOM.normal(size=(24, 8))}
    weights |= {"a.out_proj.weight": RANDOM.normal(size=(8, 8))}
    leaves = {f"a/{name}/kernel": (8, 2, 4) for name in ("query", "key", "value")}
    leaves |= {"a/out/kernel": (2, 4, 8)}
    layers = {"a": Layer("MultiheadAttention"), "a.out_proj": LINEAR}
    stored = weights["a.in_proj_weight"][8:16].reshape(8, 2, 4)
    (cause,) = causes(weights, layers, leaves, "a/key/kernel", lambda _: stored)
    assert cause.code == "untransposed-square"


def fused(wrong):
    names = [f"a.{name}_proj" for name in "qkv"]
    weights = {f"{name}.weight": RANDOM.normal(size=(4, 4)) for name in names}
    leaves = {"a/qkv/kernel": (4, 12)}
    return causes(weights, dict.fromkeys(names, LINEAR), leaves, "a/qkv/kernel", wrong)


def test_query_and_key_that_change_places_in_one_kernel_are_no_layers():
    (cause,) = fused(lambda kernel: kernel[:, [*range(4, 8), *range(4), *range(8, 12)]])
    assert cause.code == "qkv-permuted"


def test_one_projection_of_a_kernel_that_is_wrong_is_told_apart():
    (cause,) = fused(lambda kernel: np.hstack([kernel[:, :8], kernel[:, 8:] + 0.1]))
    assert (cause.code, cause.tensor) == ("weight-differs", "a.v_proj.weight")
    assert "the rest of it is right" in cause.cause


def test_a_factor_of_all_or_of_each_row_or_column():
    cause = linear(lambda kernel: 3 * kernel)
    assert (cause.code, cause.cause.endswith("is 3 times what it should be")) == (
        "weight-scale",
        True,
    )
    for axis in (0, 1):
        factors = np.expand_dims(RANDOM.uniform(1, 2, (5, 3)[axis]), 1 - axis)
        cause = linear(lambda kernel, factors=factors: kernel * factors)
        assert cause.code == "weight-scale"
        assert f"along axis {axis}" in cause.cause


@pytest.mark.parametrize("shape", [(1, 5), (5, 1)])
def test_one_row_is_not_scaled_by_a_factor_for_each_entry(shape):
    assert linear(lambda kernel: kernel + 0.1, shape).code == "weight-differs"


def test_zeros_in_a_part_of_a_weight():
    cause = linear(lambda kernel: np.where(np.arange(3) == 1, 0, kernel))
    assert cause.code == "weight-missing"
    assert "has zeros at 5 of its 15 entries" in cause.cause


@pytest.mark.parametrize("kind", ["GRU", "GRUCell"])
def test_gates_of_a_gru_in_another_order_though_the_weight_is_cast(kind):
    shapes = {"gru.weight_ih": (12, 3), "gru.weight_hh": (12, 4)}
    weights = {name: RANDOM.normal(size=shape).astype("f4") for name, shape in shapes.items()}
    leaves = {
        name.replace(".", "/"): np.zeros(shape, ml_dtypes.bfloat16)
        for name, shape in shapes.items()
    }
    order = [*range(4, 8), *range(4), *range(8, 12)]
    layers = {"gru": Layer(kind)}
    (cause,) = causes(weights, layers, leaves, "gru/weight_ih", lambda weight: weight[order])
    assert cause.code == "gate-order"
