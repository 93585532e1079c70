"""Accepted differences: within their bound they pass, beyond it or gone they fail."""

import datetime
import os
import re
from pathlib import Path

import numpy as np
import pytest

from parity.cases import all_cases
from parity.known import GONE, OWN, Known, accepted, load
from parity.rows import Row
from parity.usage import UsageError

DATE = datetime.date(2026, 11, 30)
ENTRY = Known("a/b[c]", "rows", "reference", 1e-3, "the sines of torch", DATE)
FIELDS = {
    "case": '"a/b[c]"',
    "tensor": '"rows"',
    "side": '"reference"',
    "bound": "1e-3",
    "reason": '"because"',
    "date": "2026-11-30",
}


def row(**change):
    fields = {
        "case": "a/b[c]",
        "tensor": "rows",
        "dtype": "float32",
        "device": "cpu",
        "verdict": "torch is the side that is off",
        "passed": False,
        "side": "reference",
        "port_error": 0.0,
        "reference_error": 9e-4,
        "limit": 1e-7,
    }
    return Row(**fields | change)


def test_a_difference_within_its_bound_passes_with_its_reason():
    found = accepted(row(), [ENTRY])
    assert (found.passed, found.verdict) == (True, "known: torch is the side that is off")
    assert found.notes == ("known since 2026-11-30: the sines of torch",)
    assert found.side == "reference"


@pytest.mark.parametrize("error", [1.1e-3, np.inf, np.nan])
def test_one_that_is_exceeded_fails(error):
    found = accepted(row(reference_error=error), [ENTRY])
    assert not found.passed
    assert f"by {error:.2g}, known is 0.001" in found.verdict


def test_one_that_no_longer_occurs_fails():
    found = accepted(row(side="", passed=True, reference_error=0.0, verdict="same bits"), [ENTRY])
    assert not found.passed
    assert found.verdict == GONE


@pytest.mark.parametrize(
    "other",
    [
        row(case="a/b[d]"),
        row(tensor="table"),
        row(limit=None, verdict="missing on the side of torch"),
    ],
)
def test_another_difference_is_not_accepted(other):
    assert accepted(other, [ENTRY]) == other


@pytest.mark.parametrize("side", ["port", "both"])
def test_another_side_is_not_accepted_and_that_is_said(side):
    found = accepted(row(side=side, verdict="off"), [ENTRY])
    assert (found.passed, found.verdict) == (False, "off")
    assert found.notes == ("known is that the reference is off",)


@pytest.mark.parametrize(("device", "passed"), [("", True), ("cpu", True), ("gpu", False)])
def test_an_entry_may_be_about_one_device(device, passed):
    entry = Known(ENTRY.case, "rows", "reference", 1e-3, "reason", DATE, device)
    assert accepted(row(), [entry]).passed is passed


@pytest.mark.parametrize("entries", [("", "cpu"), ("cpu", "")])
def test_of_two_entries_that_of_the_device_counts(entries):
    bounds = {"": 1.0, "cpu": 1e-5}
    known = [Known("a/b[c]", "rows", "reference", bounds[d], "reason", DATE, d) for d in entries]
    assert not accepted(row(), known).passed


def test_the_own_list_is_of_tensors_that_there_are():
    cases = {case.id: case for case in all_cases()}
    assert load(OWN)
    for entry in load(OWN):
        assert entry.tensor in cases[entry.case].expected()


def test_a_tensor_that_a_case_does_not_have_is_gone(command, tmp_path):
    listed = written(tmp_path / "known.toml", case='"fine/case[a]"', tensor='"table"')
    code, out, _ = command("good", "--known", str(listed))
    assert code == 1
    assert "fine/case[a], table: a known difference no longer occurs" in out
    assert "there is no such tensor" in out
    assert f"--known {listed}" in out


def test_a_case_that_is_none_is_refused(command, tmp_path):
    listed = written(tmp_path / "known.toml", case='"fine/case[x]"')
    code, _, err = command("good", "--known", str(listed))
    assert code == 2
    assert "--known lists 'fine/case[x]', which is none" in err


def written(path, **change):
    fields = {**FIELDS, **change}
    body = "\n".join(f"{name} = {value}" for name, value in fields.items() if value is not None)
    path.write_text(f"[[difference]]\n{body}\n")
    return path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reason": None}, "difference 1 must have bound, case, date, reason, side, tensor"),
        ({"extra": "1"}, "got bound, case, date, extra"),
        ({"reason": '" "'}, "case, tensor, device and reason must be texts"),
        ({"side": '"torch"'}, "side 'port' or 'reference'"),
        ({"case": "1"}, "case, tensor, device and reason must be texts"),
        ({"device": "1"}, "case, tensor, device and reason must be texts"),
        ({"device": '"cpuu"'}, "device must be one of cpu, cuda, gpu, rocm, tpu; got 'cpuu'"),
        ({"bound": "0"}, "bound must be above 0, got 0"),
        ({"bound": "inf"}, "bound must be above 0, got inf"),
        ({"bound": "nan"}, "bound must be above 0, got nan"),
        ({"bound": "true"}, "bound must be above 0, got True"),
        ({"bound": '"1"'}, "bound must be above 0, got '1'"),
        ({"date": '"today"'}, "date must be one, got 'today'"),
        ({"date": "2026-13-01"}, "--known must be a TOML file"),
    ],
)
def test_an_entry_that_is_none_is_refused(tmp_path, change, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        load(written(tmp_path / "known.toml", **change))


def test_lists_that_are_none_are_refused(tmp_path):
    path = tmp_path / "known.toml"
    with pytest.raises(UsageError, match="--known must be a file of at most 1 MiB"):
        load(path)
    with pytest.raises(UsageError, match="--known must be a file of at most 1 MiB"):
        load(Path("/dev/zero"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="--known must be a file of at most 1 MiB"):
        load(tmp_path / "pipe")
    path.write_text("x = " + "[" * 100_000)
    with pytest.raises(UsageError, match="--known must be a TOML file"):
        load(path)
    path.write_text("difference = 3\n")
    with pytest.raises(UsageError, match=r"must be .* tables"):
        load(path)
    path.write_text("[[differences]]\n")
    with pytest.raises(UsageError, match="got differences"):
        load(path)
    text = written(path).read_text()
    path.write_text(text + text)
    with pytest.raises(UsageError, match="is listed twice"):
        load(path)


def test_the_command_takes_a_list(command, tmp_path):
    path = written(tmp_path / "known.toml", case='"wrong/torch"', bound="10.0")
    code, out, _ = command("torch off", "--known", str(path))
    assert code == 0
    assert "known: torch is the side that is off" in out
    assert command("torch off", "--known", str(written(path, case='"wrong/torch"')))[0] == 1
    assert command("torch off", "--known", str(tmp_path / "absent"))[0] == 2
    fine = written(path, case='"fine/case[a]"')
    code, out, _ = command("good", "--known", str(fine))
    assert code == 1
    assert "no longer occurs" in out
