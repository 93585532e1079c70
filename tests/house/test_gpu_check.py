"""The script for a card, where there is none."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there may be a card")
def test_without_a_card_it_says_so_and_writes_nothing(tmp_path):
    done = subprocess.run(
        ["bash", ROOT / "benchmarks/gpu_check.sh", tmp_path / "out"],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHON": sys.executable, "DEVICE": "gpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("gpu_check: no card here")
    assert list(tmp_path.iterdir()) == []
