"""What the wheel holds, and what the project says of itself."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.slow
def test_the_wheel_holds_the_three_packages_and_the_license(tmp_path):
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path]
    subprocess.run([*command, ROOT], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
    wanted = {
        str(file.relative_to(ROOT))
        for package in ("jax_input", "torch_ref", "parity")
        for file in (ROOT / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert held == wanted
    recordings = {name for name in held if name.startswith("parity/recordings/")}
    assert len(recordings) == len(list((ROOT / "parity/recordings").glob("*.safetensors"))) > 5
    assert "parity/known.toml" in held


def requirements():
    yield from PROJECT["dependencies"]
    for extra in PROJECT["optional-dependencies"].values():
        yield from extra


def test_dependencies_have_lower_bounds_only():
    for requirement in requirements():
        assert re.fullmatch(r"[\w-]+(\[[\w,]+\])?(>=[\d.]+)?", requirement), requirement


def test_constraints_pin_every_dependency():
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line
    )
    for requirement in requirements():
        name = re.match(r"[\w-]+", requirement).group()
        assert name == "jax-input" or name in pinned, name
    assert pinned["torch"] == "2.13.0"
