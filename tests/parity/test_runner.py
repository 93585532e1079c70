"""Running cases: rows, skips, exceptions, and where the port runs."""

import threading
import time

import jax
import numpy as np
import pytest

from parity.case import Case, Tensor
from parity.needs import missing
from parity.rows import RAISED, Row, Skip
from parity.runner import Setting, run


def rows(cases, **setting):
    return list(run(cases, Setting(**setting)))


def tensor(exact):
    return Tensor(exact, 0.0, "made for a test", same_bits=True)


def test_rows_come_in_the_order_of_the_cases_and_of_what_they_expect():
    exact = {"b": np.arange(2.0), "a": np.ones(1)}

    def case(name):
        values = {key: value.copy() for key, value in reversed(exact.items())}
        expected = {key: tensor(value) for key, value in exact.items()}
        return Case(
            name, "float64", dict, lambda _: values, lambda _: values, lambda: expected, needs=()
        )

    found = rows([case(f"x/{number}") for number in range(20)])
    assert [row.case for row in found[::2]] == [f"x/{number}" for number in range(20)]
    assert [row.tensor for row in found[:2]] == ["b", "a"]
    assert all(row.passed for row in found)


def test_a_row_is_there_before_the_last_case_is_computed(fakes):
    begun = []

    def slow():
        begun.append(time.monotonic())
        time.sleep(0.3)
        return fakes.ROUNDED

    records = run([fakes.GOOD, *[fakes.case(f"s/{i}", slow) for i in range(12)]], Setting())
    next(records)
    assert len(begun) < 12
    records.close()


def broken(*_):
    raise ValueError("first line\nlast line")


@pytest.mark.parametrize("stages", [["inputs"], ["expected"], ["port", "reference"]])
def test_a_case_that_raises_is_a_row_and_the_others_still_run(fakes, stages):
    parts = dict.fromkeys(["inputs", "port", "reference", "expected"], dict)
    parts |= dict.fromkeys(stages, broken)
    bad, good = rows([Case("x/bad", "float32", **parts, needs=()), fakes.GOOD])
    assert (bad.verdict, bad.passed, bad.tensor, bad.dtype) == (RAISED, False, "", "float32")
    assert bad.cause.startswith("last line (test_runner.py:")
    assert "ValueError: first line" in bad.trace
    assert good.passed


@pytest.mark.parametrize(
    ("stage", "verdict"), [("port", "the port raised"), ("reference", "torch raised")]
)
def test_a_side_that_raises_where_the_other_computes_differs_in_each_term(fakes, stage, verdict):
    good = fakes.GOOD
    parts = {"port": good.port, "reference": good.reference, "expected": good.expected}
    parts |= {"inputs": good.inputs, stage: broken}
    bad = rows([Case("x/bad", "float32", **parts, needs=())])
    assert {row.tensor for row in bad} == set(good.expected())
    assert {(row.verdict, row.passed, row.side) for row in bad} == {(verdict, False, stage)}
    assert bad[0].cause.startswith("last line (test_runner.py:")


def test_an_exception_without_text_has_a_name(fakes):
    (bad,) = rows([fakes.case("x/bad", AssertionError())])
    assert bad.cause.startswith("AssertionError (")


def test_a_case_without_tensors_is_one_that_raises():
    (bad,) = rows([Case("x/empty", "float32", dict, dict, dict, dict, needs=())])
    assert "case 'x/empty' has no tensors" in bad.cause


@pytest.mark.parametrize("lacking", ["port", "reference", "expected"])
def test_a_tensor_that_is_missing_somewhere_is_a_failing_row(lacking):
    full = {
        "port": {"a": np.ones(1), "b": np.ones(1)},
        "reference": {"a": np.ones(1), "b": np.ones(1)},
        "expected": {"a": tensor(np.ones(1)), "b": tensor(np.ones(1))},
    }
    del full[lacking]["b"]
    parts = {name: (lambda *_, values=values: values) for name, values in full.items()}
    good, bad = rows([Case("x/y", "float64", dict, **parts, needs=())])
    assert (good.passed, bad.passed, bad.tensor) == (True, False, "b")


def test_a_need_that_is_not_met_skips_the_case(fakes):
    setting = Setting(lacks={"models": "no models here"})
    skipped, good = run([fakes.case("x/y", needs=("models",)), fakes.GOOD], setting)
    assert skipped == Skip("x/y", "models", "no models here")
    assert isinstance(good, Row)


def test_a_device_that_is_not_there_runs_nothing(fakes):
    reason = missing("tpu")
    if not reason:
        pytest.skip("there is a TPU")
    assert rows([fakes.GOOD], device="tpu") == [Skip(fakes.GOOD.id, "tpu", reason)]


def test_a_need_nobody_knows_is_an_error(fakes):
    with pytest.raises(ValueError, match="`needs` must be among torch"):
        rows([fakes.case("x/y", needs=("tourch",))])


def test_the_port_runs_on_the_device_and_with_the_precision_asked_for():
    seen = {}

    def port(_):
        seen["precision"] = jax.config.jax_default_matmul_precision
        seen["device"] = jax.numpy.ones(1).devices()
        return {"x": np.ones(1)}

    def reference(_):
        seen["outside"] = jax.config.jax_default_matmul_precision
        return {"x": np.ones(1)}

    case = Case("x/y", "f", dict, port, reference, lambda: {"x": tensor(np.ones(1))}, needs=())
    (row,) = rows([case], device="cpu", matmul_precision="highest")
    assert row.device == "cpu"
    assert seen["precision"] == "highest"
    assert seen["device"] == {jax.devices("cpu")[0]}
    assert seen["outside"] != "highest"


def test_the_device_is_told_when_none_is_asked_for(fakes):
    assert rows([fakes.GOOD])[0].device == jax.default_backend()


def test_a_run_that_is_left_stops_the_cases_that_wait(fakes, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    begun, go_on = set(), threading.Event()

    def port_of(number):
        def port():
            begun.add(number)
            go_on.wait(timeout=60)
            return fakes.ROUNDED

        return port

    waiting = [fakes.case(f"x/{number}", port_of(number)) for number in range(40)]
    records = run([fakes.GOOD, *waiting], Setting())
    next(records)
    records.close()
    go_on.set()
    time.sleep(0.2)
    assert len(begun) <= 1
