import subprocess
import sys
from pathlib import Path

import pytest

import torch_ref

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
{extra}
import torch_ref, torch_ref.published
foreign = {{"jax", "jaxlib", "flax", "jax_input", "parity"}}
sys.exit(len(foreign & {{name.partition(".")[0] for name in sys.modules}}))
"""


def run(extra=""):
    program = PROGRAM.format(extra=extra)
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode


def test_importing_the_reference_loads_no_jax():
    assert run() == 0


def test_the_test_above_can_fail():
    assert run("import jax") > 0


@pytest.mark.parametrize("name", torch_ref.__all__)
def test_every_public_name_exists(name):
    assert getattr(torch_ref, name) is not None


def test_no_module_hides_behind_a_public_name():
    modules = {path.stem for path in (ROOT / "torch_ref").glob("*.py")}
    assert not modules & set(torch_ref.__all__)
