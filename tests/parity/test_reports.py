"""How rows are shown: text, JSON lines, Markdown, and the block that explains a failure."""

import json

import numpy as np
import pytest

from parity.case import Tensor
from parity.coverage import Coverage
from parity.judging import compare_tensor
from parity.report import jsonlines, markdown
from parity.report.failure import explain, number, size
from parity.report.text import Text
from parity.rows import RAISED, Label, Row, Skip

EXACT = np.linspace(-1.0, 2.0, 12).reshape(3, 4)
ROUNDED = EXACT.astype(np.float32)
SKIP = Skip("a/b[c|d]", "torch", "no torch")


def row(port=ROUNDED, reference=ROUNDED, case="a/b[c, d]"):
    expected = Tensor(EXACT, 1e-6, "made for a test", same_bits=True)
    return compare_tensor(Label(case, "scale", "cpu"), port, reference, expected)


GOOD = row()
BAD = row(port=ROUNDED * 2)
TORCH_OFF = row(reference=ROUNDED * 2)
RAISES = Row(
    case="a/b",
    tensor="",
    dtype="float32",
    device="cpu",
    verdict=RAISED,
    passed=False,
    cause="ValueError: no (x.py:1)",
    trace="Traceback\n  deep inside\nValueError: no",
)


def covered(*records):
    coverage = Coverage()
    for record in records:
        coverage.add(record)
    return coverage


def test_a_failure_names_term_place_guilty_side_cause_and_how_to_run_it_again():
    assert explain(BAD, "python -m parity run 'a/b[c, d]'").splitlines() == [
        "a/b[c, d], scale: the port is off",
        "  12 of 12 elements of the port are beyond the limit",
        "  worst at [2, 2]:   the port 3.4545455   torch 1.72727275   exact 1.72727273",
        "  greatest error: the port 2 (1.4e+07 ulp), torch 5.4e-08 (0.45 ulp)",
        "  limit: 1.6e-07 there (a small multiple of the other side's own error)",
        "  cause: every value is 2 times the exact one",
        "  again: python -m parity run 'a/b[c, d]'",
    ]


def test_the_guilty_side_may_be_torch():
    text = explain(TORCH_OFF)
    assert "scale: torch is the side that is off" in text
    assert "12 of 12 elements of torch are beyond the limit" in text
    assert "again" not in text


def test_bits_that_differ_are_counted():
    near = ROUNDED.copy()
    near[1, 1] = np.nextafter(near[1, 1], np.float32(-9))
    assert "1 of 12 elements differ in bits between the sides" in explain(row(port=near))


def test_an_exception_is_shown_by_its_last_line():
    assert explain(RAISES) == "a/b: raised\n  cause: ValueError: no (x.py:1)"


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (np.float32(0.1).item(), "float32", "0.100000001"),
        (0.1 + 0.2, "float64", "0.30000000000000004"),
        (3, "int32", "3"),
        (True, "bool", "True"),
        (None, "float32", "-"),
        (float("nan"), "float32", "nan"),
    ],
)
def test_values_have_the_digits_that_tell_them_apart(value, dtype, text):
    assert number(value, dtype) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.0, "0"), (1.234e-8, "1.2e-08"), (float("inf"), "inf")]
)
def test_errors_have_two_digits(value, text):
    assert size(value) == text


def lines_of(style, *records):
    return "".join([style.head(), *(style.record(record) for record in records)]).splitlines()


def test_text_has_a_line_a_tensor_in_columns():
    style = Text(colours=False, verbose=False)
    head, good, bad, skip = lines_of(style, GOOD, BAD, SKIP)
    assert head.split() == ["case", "tensor", "port", "torch", "limit", "ulp", "where", "verdict"]
    assert good.split()[:4] == ["ok", "a/b[c,", "d]", "scale"]
    assert good.endswith("same bits")
    assert bad.split()[:4] == ["FAIL", "a/b[c,", "d]", "scale"]
    assert bad.endswith("[2, 2]        the port is off")
    assert head.index("verdict") == good.index("same bits") == bad.index("the port is off")
    assert skip.split() == ["a/b[c|d]", "NOT", "RUN:", "torch:", "no", "torch"]


def test_text_tells_more_where_more_is_asked_for():
    style = Text(colours=False, verbose=True)
    assert "error over limit" in style.record(GOOD)
    assert "ceiling: made for a test" in style.record(GOOD)
    end = "".join(style.end([(RAISES, "again")], covered(RAISES), {"python": "3", "x": "y"}))
    assert "deep inside" in end
    assert "python: 3\nx: y" in end


def test_text_ends_on_failures_coverage_and_environment():
    style = Text(colours=False, verbose=False)
    facts = {"python": "3.11", "jax": "1", "flax": "2"}
    end = "".join(style.end([(BAD, "python -m parity run x")], covered(BAD, SKIP), facts))
    assert "cause: every value is 2 times" in end
    assert "1 tensor compared: 0 passed, 1 failed" in end
    assert "NOT RUN: 1 of 2 cases (torch: no torch)" in end
    assert end.endswith("python: 3.11; jax: 1\n")
    assert "deep inside" not in "".join(style.end([(RAISES, "")], covered(RAISES), facts))


def test_text_is_coloured_only_where_it_is_asked_for(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    plain = Text(colours=False, verbose=False)
    coloured = Text(colours=True, verbose=False)
    assert "\x1b[" not in plain.record(BAD)
    assert "\x1b[" in coloured.record(BAD)


def test_brackets_in_names_are_no_markup_and_long_lines_stay_whole():
    name = f"a/[bold]{'x' * 300}[/bold]"
    style = Text(colours=False, verbose=False)
    assert name in style.record(row(case=name))
    assert style.record(row(case=name)).count("\n") == 1


def test_json_lines_have_type_schema_and_every_field():
    good, skip = (json.loads(jsonlines.record(item)) for item in (GOOD, SKIP))
    assert (good["type"], skip["type"]) == ("row", "skip")
    assert good["schema"] == skip["schema"] == jsonlines.SCHEMA == 1
    assert {
        "case": "a/b[c, d]",
        "tensor": "scale",
        "dtype": "float32",
        "device": "cpu",
        "verdict": "same bits",
        "cause": "",
        "reason": "made for a test",
    }.items() <= good.items()
    assert good["port_error"] == good["reference_error"] == GOOD.port_error
    assert good["where"] == list(GOOD.where)
    assert {"limit", "ulp", "over_limit", "passed", "side"} <= set(good)
    assert skip["reason"] == "no torch"


def test_json_has_no_numbers_that_json_has_not():
    wrong = row(port=np.full_like(ROUNDED, np.nan))
    text = jsonlines.record(wrong)
    found = json.loads(text, parse_constant=pytest.fail)
    assert (found["port_error"], found["port_value"]) == ("inf", "nan")
    assert "Infinity" not in text
    assert "trace" not in json.loads(jsonlines.record(RAISES))


def test_json_ends_on_coverage_and_environment():
    summary = json.loads(jsonlines.summary(covered(GOOD, BAD, SKIP), 1.23456))
    assert (summary["type"], summary["exit_code"], summary["seconds"]) == ("summary", 1, 1.235)
    assert (summary["compared"], summary["passed"], summary["failed"]) == (2, 1, 1)
    assert summary["skipped"] == {"torch: no torch": 1}
    facts = json.loads(jsonlines.environment({"jax": "1"}))
    assert (facts["type"], facts["facts"]) == ("environment", {"jax": "1"})


def cells(line):
    """The cells of a table's line; an escaped bar is none."""
    return line.replace("\\|", "/").strip().strip("|").split("|")


def test_markdown_is_a_table_of_equal_lines():
    lines = lines_of(markdown, GOOD, BAD, SKIP)
    assert {len(cells(line)) for line in lines} == {9}
    assert "**FAIL**" in lines[3]
    assert "NOT RUN: torch: no torch" in lines[4]


def test_markdown_ends_on_failures_coverage_and_environment():
    end = "".join(markdown.end([(BAD, "again")], covered(BAD), {"XLA_FLAGS": "--a|b"}))
    assert "```text\na/b[c, d], scale: the port is off" in end
    assert "- 1 tensor compared: 0 passed, 1 failed" in end
    assert "| XLA\\_FLAGS | --a\\|b |" in end


def test_markdown_keeps_names_from_being_markup():
    line = markdown.record(row(case="<b>|x|</b>"))
    assert len(cells(line)) == 9
    assert "`<b>" in line
