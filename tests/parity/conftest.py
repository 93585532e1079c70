"""What several tests of the suite's machinery share."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import jax
import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def fakes():
    """The module of cases made for these tests."""
    spec = importlib.util.spec_from_file_location("fake_command", HERE / "fake_command.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def command(fakes, capfd):
    """Run the command in this process on a set of cases: its exit code, stdout and stderr."""
    pytest.importorskip("torch")  # without it that is said on stderr
    from parity.cli import main

    def call(cases, *arguments):
        source = fakes.SETS[cases] if isinstance(cases, str) else cases
        code = main(["run", *arguments], source=lambda: source)
        return (code, *capfd.readouterr())

    return call


@pytest.fixture
def python():
    """Run Python code in a process of its own, from the root of the checkout."""

    def call(code, *arguments):
        return subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=HERE.parent.parent,
        )

    return call


@pytest.fixture
def ports_may_broadcast():
    """People add a vector to a matrix, which the tests of this package forbid."""
    with jax.numpy_rank_promotion("allow"):
        yield
