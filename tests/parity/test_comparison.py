"""``parity.compare``: strict by default (report B30), and its report."""

import pickle

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

import parity
from parity.verdict import BOTH_OFF

X = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)


def failing(actual, expected, **options):
    """The report of a comparison that must fail, by its exception and without it."""
    with pytest.raises(parity.ParityError) as caught:
        parity.compare(actual, expected, **options)
    report = parity.compare(actual, expected, raises=False, **options)
    assert not report.passed
    assert str(report) == str(caught.value) == str(caught.value.report)
    return report


def test_a_signed_sum_that_cancels_is_a_difference():
    assert failing([1, -1], [0, 0]).max_abs == 1.0
    assert failing(np.array([1.0, -1.0]), np.array([0.0, 0.0])).max_abs == 1.0


def test_nan_on_both_sides_fails_unless_asked_for():
    nan = np.array([1.0, np.nan])
    assert "`equal_nan=True` takes that for equal" in str(failing(nan, nan))
    assert parity.compare(nan, nan, equal_nan=True).passed
    assert failing(np.array([1.0, 2.0]), nan, equal_nan=True).max_abs == np.inf


@pytest.mark.parametrize("nan", [np.full(3, np.nan), np.array([1.0, np.nan])])
def test_nan_on_both_sides_has_no_likely_cause(nan):
    assert "cause:" not in str(failing(nan, nan))


def test_nan_is_right_where_the_exact_value_is_nan():
    nan = np.array([1.0, np.nan])
    assert parity.compare(nan, nan, exact=nan).passed
    assert BOTH_OFF in str(failing(nan, nan, exact=np.array([1.0, 2.0]), equal_nan=True))


def test_shapes_that_would_broadcast_differ():
    report = failing(np.ones((1, 4)), np.ones((3, 4)))
    assert "shape [1, 4], expected has [3, 4]" in str(report)
    assert report.max_abs == np.inf


def test_dtypes_that_hold_the_same_values_differ():
    report = failing(np.ones(3, ml_dtypes.bfloat16), np.ones(3, np.float32))
    assert "dtype bfloat16, expected has float32" in str(report)
    assert "dtype int64, expected has float64" in str(failing([1], [1.0]))


def test_zero_everywhere_on_both_sides_warns():
    with pytest.warns(UserWarning, match="`actual` is zero everywhere on both sides") as caught:
        assert parity.compare(np.zeros(3), np.zeros(3)).passed
    assert caught[0].filename == __file__


@pytest.mark.parametrize("empty", [np.zeros((0, 3)), {"a": np.zeros(0)}, {}, [None]])
def test_nothing_compared_is_a_failure(empty):
    assert "nothing" in str(failing(empty, empty))


def test_one_empty_leaf_among_others_is_a_failure():
    tree = {"full": np.ones(2), "empty": np.zeros(0)}
    assert "empty: nothing to compare: no elements" in str(failing(tree, tree))


def test_one_ulp_is_within_the_limit_and_two_are_not():
    next_one = np.nextafter(X, np.float32(np.inf))
    assert parity.compare(next_one, X).passed
    report = failing(np.nextafter(np.nextafter(X, np.float32(9)), np.float32(9)), X)
    assert report.ulp > 1


def test_the_report_says_worst_index_values_count_and_errors():
    actual = X.copy()
    actual[7, 2] += 1
    actual[9, 1] += 0.5
    report = failing(actual, X)
    (row,) = report.rows
    assert (row.where, row.beyond, row.differing, row.elements) == ((7, 2), 2, 2, 120)
    assert row.port_value == float(actual[7, 2])
    assert row.exact_value == float(X[7, 2])
    assert report.max_abs == pytest.approx(1.0)
    text = str(report)
    assert "FAIL  1 of 1 tensors" in text
    assert "2 of 120 elements of actual are beyond the limit" in text
    assert f"worst at [7, 2]:   actual {actual[7, 2]:.9g}   expected {X[7, 2]:.9g}" in text
    assert "(one ulp)" in text


def test_numpy_s_tolerances_override_the_rule_and_are_printed():
    expected = np.array([1.0, 100.0], np.float32)
    actual = expected + np.array([0.015, 1.015], np.float32)
    assert parity.compare(actual, expected, atol=0.01, rtol=0.0101).passed
    assert np.allclose(actual, expected, atol=0.01, rtol=0.0101)
    report = failing(actual, expected, atol=0.01, rtol=0.01)
    assert not np.allclose(actual, expected, atol=0.01, rtol=0.01)
    assert "overridden: 0.01 + 0.01 * |expected|" in str(report)
    assert report.rows[0].where == (1,)
    assert report.rows[0].limit == pytest.approx(1.01)
    assert parity.compare(actual, expected, atol=2).rows[0].limit_source == "override"


@pytest.mark.parametrize("name", ["atol", "rtol"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), 10**400])
def test_a_tolerance_that_is_none_is_refused(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be finite and at least 0, got {value}"):
        parity.compare(X, X, **{name: value})


@pytest.mark.parametrize("name", ["atol", "rtol"])
@pytest.mark.parametrize("value", [True, "1", 1j, np.array(0.1), X, [0.1]])
def test_a_tolerance_that_is_no_number_is_refused(name, value):
    with pytest.raises(TypeError, match=f"`{name}` must be a number such as 1e-6, .* got"):
        parity.compare(X, X, **{name: value})


@pytest.mark.parametrize("value", [0, 1, 0.5, np.float32(0.5), np.int64(1)])
def test_a_tolerance_may_be_any_real_number(value):
    assert parity.compare(X, X, atol=value, rtol=value).passed


@pytest.mark.parametrize("exact", ["x", X.astype(np.float64)])
@pytest.mark.parametrize("name", ["atol", "rtol"])
def test_an_exact_value_with_a_tolerance_is_refused(exact, name):
    with pytest.raises(ValueError, match="`exact` must be given without `atol` and `rtol`"):
        parity.compare(X, X, exact=exact, **{name: 1})


@pytest.mark.parametrize("name", ["equal_nan", "raises"])
@pytest.mark.parametrize("value", ["no", 0, None])
def test_a_switch_that_is_no_bool_is_refused(name, value):
    with pytest.raises(TypeError, match=f"`{name}` must be True or False, got"):
        parity.compare(X, X, **{name: value})


def test_with_an_exact_value_the_side_that_is_off_is_named():
    exact = X.astype(np.float64)
    report = failing(X, X * np.float32(2), exact=exact, atol=None)
    assert "expected is the side that is off" in str(report)
    assert "every value is 2 times the exact one" in str(report)
    assert "actual is off" in str(failing(X * np.float32(2), X, exact=exact))


def test_a_noisy_reference_is_named_and_passes():
    noisy = X + np.float32(1e-5)
    report = parity.compare(X, noisy, exact=X.astype(np.float64))
    assert report.rows[0].verdict == "expected is the side that is off"


def test_the_port_may_have_twice_the_error_of_the_reference():
    exact = np.linspace(1, 2, 2_000)
    reference = (exact + 5e-6).astype(np.float32)
    assert parity.compare((exact - 9e-6).astype(np.float32), reference, exact=exact).passed
    assert not parity.compare(
        (exact - 1.1e-5).astype(np.float32), reference, exact=exact, raises=False
    ).passed


def test_what_both_sides_got_wrong_alike_fails():
    text = str(failing(X * 2, X * 2, exact=X.astype(np.float64)))
    assert BOTH_OFF in text
    assert "the ceiling: half the digits of float32" in text


def test_an_exact_value_no_finer_than_what_it_judges_is_refused():
    with pytest.raises(TypeError, match="`exact` at `` is float32, no finer than `actual`"):
        parity.compare(X, X, exact=X)
    rough = X.astype(ml_dtypes.bfloat16)
    assert parity.compare(rough, rough, exact=X).passed


def test_integers_have_to_be_equal():
    report = failing(np.array([1, 2]), np.array([1, 3]))
    assert "integers are compared for equality" in str(report)
    assert parity.compare(np.array([1, 2]), np.array([1, 2])).passed
    failing(np.array([1, 2]), np.array([1, 3]), exact=np.array([1, 3]))


def test_leaves_that_one_side_lacks_are_named():
    text = str(failing({"a": X, "c": X}, {"a": X, "b": X}))
    assert "b: missing on the side of actual" in text
    assert "c: missing on the side of expected" in text
    text = str(failing({"a": X}, {"a": X}, exact={}))
    assert "a: there is no exact value to compare it with" in text


def test_lists_and_dicts_are_not_the_same():
    failing([X, X], {0: X, 1: X})


def test_jax_and_torch_are_compared_as_they_are():
    tree = {"jax": jnp.asarray(X), "torch": [torch.from_numpy(X)]}
    assert parity.compare(tree, {"jax": X, "torch": [X]}).passed
    assert parity.compare(jnp.ones(3, jnp.bfloat16), torch.ones(3, dtype=torch.bfloat16)).passed


def test_scalars_are_compared():
    assert parity.compare(1.5, 1.5).passed
    failing(np.float32(1.5), np.float32(1.6))


def test_a_report_has_no_truth_value():
    with pytest.raises(TypeError, match=r"Ask `report\.passed`"):
        bool(parity.compare(X, X))


def test_a_report_counts_what_passed():
    report = parity.compare({"a": X, "b": X}, {"a": X, "b": X})
    assert str(report) == repr(report) == "PASS  2 tensors, 240 elements compared"
    assert report.failures == ()


def test_the_error_is_an_assertion_and_travels_between_processes():
    with pytest.raises(AssertionError) as caught:
        parity.compare(X, X + 1)
    back = pickle.loads(pickle.dumps(caught.value))
    assert str(back) == str(caught.value)
    assert back.report.rows == caught.value.report.rows
