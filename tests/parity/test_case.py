"""What a case is made of, and what it refuses."""

import numpy as np
import pytest

from parity.case import Case, Tensor

EXACT = np.ones((2, 3))


@pytest.mark.parametrize("exact", [EXACT, np.ones(3, np.int32), np.ones(3, bool)])
def test_exact_values_are_float64_or_whole(exact):
    assert Tensor(exact, 0.0, "equal", same_bits=True).exact_kind == "exact"


def test_exact_values_in_float32_are_refused():
    with pytest.raises(TypeError, match="`exact` must hold float64, integers or bools, got float3"):
        Tensor(EXACT.astype(np.float32), 0.0, "equal", same_bits=True)


@pytest.mark.parametrize("ceiling", [-1.0, np.inf, np.nan, np.full((2, 3), np.nan)])
def test_a_ceiling_that_is_none_is_refused(ceiling):
    with pytest.raises(ValueError, match="`ceiling` must be finite and at least 0, got"):
        Tensor(EXACT, ceiling, "derived", same_bits=True)


def test_a_ceiling_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"`ceiling` has shape \(3,\), `exact` \(2, 3\)"):
        Tensor(EXACT, np.ones(3), "derived", same_bits=True)


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_ceiling_without_a_reason_is_refused(reason):
    with pytest.raises(ValueError, match="`reason` must say what `ceiling` is derived from"):
        Tensor(EXACT, 1.0, reason, same_bits=True)


def test_the_concept_comes_before_the_slash():
    case = Case("embedding/rows[a/b]", "float32", dict, dict, dict, dict)
    assert case.concept == "embedding"
    assert (case.default, case.needs) == (True, ("torch",))
