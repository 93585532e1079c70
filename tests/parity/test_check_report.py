"""What a report says of weights beside what it says of the code (parity.check_report)."""

import pytest

from parity.cause import Cause
from parity.check_report import CheckReport, Compared
from parity.report.check_text import knobs

WRONG = Compared("output", 1.0, 1e-6, 1e-7)
RIGHT = Compared("output", 0.0, 1e-6, 1e-7)


def codes(*causes, weights):
    report = CheckReport((WRONG,), causes=causes).with_wrong_weights(weights)
    return [cause.code for cause in report.causes]


@pytest.mark.parametrize("turned", [1, -1])
def test_a_bias_without_a_place_is_covered_by_any_cause_of_its_module(turned):
    causes = [Cause("norm-missing", "norm", "", ""), Cause("scale-missing", "norm", "", "")]
    weights = [Cause("bias-missing", "norm.bias", "", "")]
    assert "bias-missing" not in codes(*causes[::turned], weights=weights)
    other = [Cause("bias-missing", "other.bias", "", "")]
    assert "bias-missing" in codes(*causes, weights=other)


def test_a_cause_everywhere_covers_all_layers():
    weights = [Cause("weight-unplaced", f"layers.{k}.norm.weight", "", "") for k in (0, 1)]
    cause = Cause("norm-missing", "layers.0.norm", "", "")
    assert codes(cause, weights=weights) == ["weight-unplaced", "norm-missing"]
    every = Cause("norm-missing", "layers.0.norm", "", "", everywhere=True)
    assert codes(every, weights=weights) == ["norm-missing"]


def test_a_switch_that_can_not_be_set_is_told():
    tried = {"no jit": 5.0, "x64": float("nan"), "no scan": 7.0}
    said = knobs(CheckReport((WRONG,), knobs=tried))
    assert said == "none alone explains it (no jit, no scan); can't be run with x64"
    assert knobs(CheckReport((WRONG,), knobs={**tried, "no scan": 1.0})).startswith("no scan: that")
