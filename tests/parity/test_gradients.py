"""The second witness of gradients: right ones pass, and each kind of wrong one is named."""

from dataclasses import replace

import numpy as np
import pytest

from parity.cases import gradients
from parity.runner import Setting, run

CASES = {case.id: case for case in gradients.cases()}


def wrong(name, change):
    """Return a way to spoil a case's gradient on one side."""

    def spoil(side):
        return lambda arrays: (lambda results: {**results, name: change(results[name].copy())})(
            side(arrays)
        )

    return spoil


def zeroed(gradient):
    gradient[3] = 0
    return gradient


FAULTS = {
    "off by a thousandth": lambda gradient: gradient * np.float32(1.001),
    "one row wrongly zero": zeroed,
    "the sign": lambda gradient: -gradient,
    "the scale left out": lambda gradient: gradient / np.float32(48**0.5),
    "a column twice": lambda gradient: gradient * np.float32([2, *[1] * 47]),
}


def look_up():
    """Return a side whose gradient is right: a scaled look-up in NumPy."""

    def side(arrays):
        ids, table = arrays["token_ids"], arrays["embedding"]
        gradient = np.zeros_like(table, np.float64)
        np.add.at(gradient, ids, arrays["cotangent"].astype(np.float64) * 1.7)
        output = (table[ids] * np.float32(1.7)).astype(np.float32)
        return {"rows": output, "gradient/embedding": gradient.astype(np.float32)}

    return side


def given():
    random = np.random.default_rng(0)
    return {
        "token_ids": random.integers(0, 7, size=(3, 5)).astype(np.int32),
        "embedding": random.normal(size=(7, 48)).astype(np.float32),
        "cotangent": random.normal(size=(3, 5, 48)).astype(np.float32),
        "direction/embedding": random.normal(size=(7, 48)).astype(np.float32),
    }


def test_a_right_gradient_is_of_second_order():
    assert gradients.is_second_order(look_up(), given(), "rows").all()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_gradient_is_not(fault):
    side = wrong("gradient/embedding", FAULTS[fault])(look_up())
    assert not gradients.is_second_order(side, given(), "rows").all()


@pytest.mark.parametrize("witnessed", gradients._WITNESSED, ids=lambda parts: parts[1])
@pytest.mark.parametrize("guilty", ["port", "reference"])
def test_the_side_whose_gradient_is_wrong_is_named(witnessed, guilty):
    """Each side alone: the other is not asked."""
    pytest.importorskip("torch")
    module, case_id, output, padding_idx = witnessed
    case = next(case for case in module.cases() if case.id == case_id)
    moved = "embedding" if "embedding" in case.inputs() else "x"
    spoil = wrong(f"gradient/{moved}", FAULTS["off by a thousandth"])
    spoiled = replace(case, **{guilty: spoil(getattr(case, guilty))})
    (row,) = run([gradients._witnessed(spoiled, output, padding_idx)], Setting())
    assert (row.passed, row.side, row.tensor) == (False, guilty, "second order")


def test_all_of_them_pass():
    pytest.importorskip("torch")
    rows = list(run(CASES.values(), Setting()))
    assert len(rows) == len(CASES)
    assert all(row.passed for row in rows), rows
