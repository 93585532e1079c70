"""Every block that the README prints is run, and says what it says there."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)

DOCS = sorted((ROOT / "docs").glob("*.md"))
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_the_readme_is_short():
    assert len(TEXT.splitlines()) < 165


def test_every_block_is_of_a_kind_that_is_run():
    assert {kind for kind, _ in BLOCKS} == {"sh", "python", "console"}


def test_python_blocks_print_what_they_show():
    examples = "".join(text for kind, text in BLOCKS if kind == "python")
    # The details of exceptions count; only what an ellipsis stands for does not.
    flags = FLAGS & ~doctest.IGNORE_EXCEPTION_DETAIL
    test = doctest.DocTestParser().get_doctest(examples, {}, "README.md", "README.md", 0)
    result = doctest.DocTestRunner(optionflags=flags).run(test)
    assert result.attempted > 15
    assert result.failed == 0


def test_the_first_check_says_what_the_readme_shows(tmp_path):
    """Figures and line breaks are those of one machine; all else has to be as it is printed."""
    (program,) = [text for kind, text in BLOCKS if text.startswith("# test_port.py\n")]
    (shown,) = [text for kind, text in BLOCKS if text.startswith("FAIL")]
    (tmp_path / "test_port.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_port.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    said = [line[1:].strip() for line in done.stdout.splitlines() if line.startswith("E ")]
    # Whether bits move where a port is looked at step by step is an affair of the machine too.
    text = " ".join(said).partition("FAIL")[2].partition(" set ")[0]
    assert plain(f"FAIL{text}") == plain(shown), done.stdout


def plain(text):
    words = re.sub(r"\d\.\de[-+]\d\d", "#", text).split()
    return [word for word in words if word != "|"]


@pytest.mark.parametrize(
    "block", [text for kind, text in BLOCKS if kind == "console" and text.startswith("$")]
)
def test_commands_print_what_they_show(block):
    command, _, shown = block.removeprefix("$ ").partition("\n")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
    )
    assert doctest.OutputChecker().check_output(shown, done.stdout, FLAGS), done.stdout


@pytest.mark.parametrize(
    "file", [file for file in DOCS if ">>> " in file.read_text()], ids=lambda file: file.name
)
def test_examples_of_the_docs_print_what_they_show(file):
    examples = "".join(block for block in PYTHON.findall(file.read_text()) if ">>> " in block)
    test = doctest.DocTestParser().get_doctest(examples, {}, file.name, str(file), 0)
    result = doctest.DocTestRunner(optionflags=FLAGS).run(test)
    assert result.attempted > 5
    assert result.failed == 0


def test_python_blocks_of_the_docs_run(tmp_path):
    """In a folder of their own: they write files."""
    text = "".join(file.read_text() for file in DOCS)
    blocks = [block for block in PYTHON.findall(text) if not block.startswith(">>>")]
    assert len(blocks) > 0
    for block in blocks:
        done = subprocess.run(
            [sys.executable, "-c", block],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr


def test_commands_that_set_up_are_the_ones_that_ci_runs():
    (block,) = [text for kind, text in BLOCKS if kind == "sh"]
    ci = (ROOT / ".ci" / "run").read_text()
    for line in block.splitlines():
        assert line.startswith("python3 -m venv ")
        assert line.endswith(("parity run", "pytest"))
    assert "grep -m1 '^python3 -m venv .*parity run$' README.md" in ci
    assert "grep -m1 '^python3 -m venv .*pytest$' README.md" in ci
