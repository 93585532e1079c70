"""The command as a process: pipes, terminals, Ctrl-C."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FAKE = str(Path(__file__).parent / "fake_command.py")
ROOT = Path(__file__).parent.parent.parent


def start(*arguments, **options):
    pytest.importorskip("torch")  # without it that is said on stderr
    return subprocess.Popen(
        [sys.executable, FAKE, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options,
    )


@pytest.mark.parametrize(("cases", "code"), [("good", 0), ("off", 1), ("raises", 2), ("none", 3)])
def test_the_process_ends_on_the_exit_code(cases, code):
    with start(cases, "run") as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == code
    assert "compared" in out
    assert err == ""


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_a_pipe_that_nobody_reads_to_the_end_is_quiet(form):
    with start("many", "run", "--format", form) as process:
        assert process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
    assert process.returncode == 141
    assert err == ""


@pytest.mark.parametrize("form", ["text", "json"])
def test_ctrl_c_is_130_one_line_and_no_report(tmp_path, form):
    report = tmp_path / "r.jsonl"
    report.write_text("old\n")
    with start("slow", "run", "--format", form, "--report", str(report)) as process:
        while "fine/case" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()
    assert process.returncode == 130
    assert err == "parity: interrupted; no report was written\n"
    assert report.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [report]


def test_the_end_asked_for_is_143_and_no_report(tmp_path):
    report = tmp_path / "r.jsonl"
    report.write_text("old\n")
    with start("slow", "run", "--report", str(report)) as process:
        while "fine/case" not in process.stdout.readline():
            pass
        process.terminate()
        err = process.stderr.read()
    assert process.returncode == 143
    assert err == ""
    assert report.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [report]


def test_ctrl_c_while_the_command_is_loaded_is_130_and_quiet(tmp_path):
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    done = subprocess.run(
        [sys.executable, "-m", "parity", "env"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("run >&-", 0),
        ("run 2>&-", 0),
        ("env >&-", 0),
        ("env 2>&-", 0),
        ("nope 2>&-", 2),
        ("--help >/dev/full", 2),
        ("env >/dev/full", 2),
        ("run --list >/dev/full", 2),
        ("run --format json 2>/dev/full", 2),
        ("run nope 2>/dev/full", 2),
        ("--bogus 2>/dev/full", 2),
        ("2>/dev/full", 2),
    ],
)
def test_a_stream_that_takes_nothing_is_never_a_difference(arguments, code):
    pytest.importorskip("torch")  # without it that is said on stderr
    done = subprocess.run(
        ["bash", "-c", f'"$0" "$1" good {arguments}', sys.executable, FAKE],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert "Exception ignored" not in done.stderr


def test_help_that_nobody_reads_is_quiet():
    ours, theirs = os.pipe()
    os.close(ours)
    with start("good", "--help", stdout=theirs) as process:
        os.close(theirs)
        err = process.stderr.read()
    assert process.returncode == 141
    assert err == ""


def test_a_row_is_shown_while_the_next_case_still_runs():
    with start("slow", "run", "--format", "json") as process:
        first = json.loads(process.stdout.readline())
        assert first["case"] == "fine/case[a]"
        assert process.poll() is None
        process.kill()


def on_terminal(*arguments, stdout=None):
    """Run with stderr, and stdout unless it is given, on a terminal; what that shows."""
    ours, theirs = pty.openpty()
    process = start(*arguments, stdout=theirs if stdout is None else stdout, stderr=theirs)
    os.close(theirs)
    shown, deadline = b"", time.monotonic() + 120
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.5)[0]:
            try:
                shown += os.read(ours, 65_536)
            except OSError:  # the other end is closed
                break
        elif process.poll() is not None:
            break
    os.close(ours)
    with process:
        return process.wait(timeout=60), shown.decode()


def test_a_terminal_sees_rows_and_a_progress_bar():
    code, shown = on_terminal("good", "run")
    assert code == 0
    assert "fine/case[b]" in shown
    assert "2/2" in shown
    assert "2 tensors compared" in shown


def test_rows_go_to_the_file_and_only_the_bar_to_the_terminal(tmp_path):
    with (tmp_path / "out").open("w") as stream:
        code, shown = on_terminal("off", "run", "--format", "json", stdout=stream)
    lines = (tmp_path / "out").read_text().splitlines()
    assert code == 1
    assert [json.loads(line)["type"] for line in lines] == ["row", "row", "summary", "environment"]
    assert '"type"' not in shown
    assert "2/2" in shown


def test_json_lines_on_a_terminal_have_no_bar_between_them():
    code, shown = on_terminal("good", "run", "--format", "json")
    assert code == 0
    assert "2/2" not in shown
    rows = [line for line in shown.splitlines() if line.startswith("{")]
    assert [json.loads(line)["type"] for line in rows] == ["row", "row", "summary", "environment"]
