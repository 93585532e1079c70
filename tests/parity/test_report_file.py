"""``--report``: what it writes to, what it refuses, and when."""

import os
import re
from pathlib import Path

import pytest


@pytest.mark.parametrize("linked", [False, True])
def test_a_report_that_is_a_pipe_is_refused_and_stays(command, tmp_path, linked):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    code, out, err = command("good", "--report", str(link if linked else pipe))
    assert (code, out) == (2, "")
    assert re.search(r"--report must be a regular file.* is a device or pipe", err)
    assert pipe.is_fifo()
    assert link.is_symlink()


@pytest.mark.parametrize("name", ["circle", "r" * 256])
def test_a_report_that_can_be_no_file_is_refused_in_one_line(command, tmp_path, name):
    (tmp_path / "circle").symlink_to("circle")
    code, out, err = command("good", "--report", str(tmp_path / name))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--report must be a file" in err


def test_a_report_that_may_not_be_written_is_refused(command, tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    path.write_text("old")
    # Root may write anything.
    monkeypatch.setattr("os.access", lambda at, mode: (Path(at), mode) != (path, os.W_OK))
    code, _, err = command("good", "--report", str(path))
    assert code == 2
    assert "--report must be a file you may write to" in err
    assert path.read_text() == "old"


def test_a_run_that_is_refused_leaves_the_old_report(command, tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text("old")
    assert command("good", "nowhere", "--report", str(path))[0] == 2
    assert path.read_text() == "old"


def test_a_report_that_is_a_pipe_without_a_name_is_refused(command):
    ours, theirs = os.pipe()
    code, out, err = command("good", "--report", f"/dev/fd/{theirs}")
    os.close(ours)
    os.close(theirs)
    assert (code, out) == (2, "")
    assert "is a device or pipe" in err
