"""What importing parity, and asking it for help, loads."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

LOADED_BY = """
import sys
before = set(sys.modules)
{code}
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(*sorted(loaded - set(sys.stdlib_module_names) - {{"parity"}}))
"""


def foreign(python, code):
    """The packages outside the standard library that some code loads."""
    done = python(LOADED_BY.format(code=code))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize(
    "code", ["import parity", "from parity import compare, Report, ParityError"]
)
def test_importing_parity_loads_numpy_only(python, code):
    assert foreign(python, code) in ([], ["numpy"])


@pytest.mark.parametrize("package", ["rich", "ml_dtypes", "jaxtyping"])
def test_the_test_above_sees_a_package_that_is_loaded(python, package):
    assert package in foreign(python, f"import parity, {package}")


def test_comparing_loads_no_framework(python):
    code = "import parity, numpy; parity.compare(numpy.ones(3), numpy.ones(3))"
    assert foreign(python, code) == ["numpy"]


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["env"]])
def test_help_and_env_load_neither_numpy_nor_a_framework(python, arguments):
    code = f"from parity.cli import main; main({arguments})"
    heavy = {"numpy", "jax", "torch", "flax", "rich", "ml_dtypes", "pydantic"}
    assert not heavy & set(foreign(python, code))


def test_public_names_are_listed_and_others_are_refused():
    import parity

    assert parity.__all__ == sorted(parity.__all__) == dir(parity)
    assert callable(parity.compare)
    with pytest.raises(AttributeError, match="has no attribute 'comparee'"):
        _ = parity.comparee


def test_module_runs_from_a_plain_checkout(tmp_path):
    """Nothing but the folder on the path: no installed distribution, no entry point."""
    (tmp_path / "parity").symlink_to(ROOT / "parity")
    done = subprocess.run(
        [sys.executable, "-m", "parity", "env"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "python" in done.stdout
    assert done.stderr == ""
