"""The suite can fail: each fault, put into a copied source tree, is named by `parity run`.

It is named live, beside PyTorch, and replayed, where PyTorch is absent and recordings stand for
it. A fault of the reference can only be seen live: a recording is immune to it.
"""

import compileall
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.mutants import (
    faults_encoder,
    faults_inputs,
    faults_look_up,
    faults_modules,
    faults_positions,
    faults_reference,
    faults_table,
)
from tests.mutants.fault import PORT_RAISED

pytestmark = [pytest.mark.mutants, pytest.mark.slow]

FAULTS = (
    *faults_positions.FAULTS,
    *faults_table.FAULTS,
    *faults_look_up.FAULTS,
    *faults_inputs.FAULTS,
    *faults_modules.FAULTS,
    *faults_encoder.FAULTS,
    *faults_reference.FAULTS,
)
ROOT = Path(__file__).parents[2]
REPLAYED = ("--against", "parity/recordings")
LOADED = ("jax.numpy", "flax.linen", "flax.nnx", "optax", "typer", "rich.console", "safetensors")


@pytest.fixture(scope="session")
def sources(tmp_path_factory):
    """A copy of the packages, as they are."""
    tree = tmp_path_factory.mktemp("sources")
    for package in ("jax_input", "torch_ref", "parity"):
        shutil.copytree(
            ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    compileall.compile_dir(tree, quiet=1)
    return tree


@pytest.fixture(scope="session")
def without_torch(tmp_path_factory):
    """The variables of a process that can't import PyTorch."""
    stub = tmp_path_factory.mktemp("stub")
    (stub / "torch.py").write_text('raise ImportError("there is no torch here")\n')
    return os.environ | {"PYTHONPATH": str(stub)}


def _warm(variables, *modules):
    """Yield what runs the command: its exit code, rows, and what it complained of."""
    command = [sys.executable, Path(__file__).with_name("warm.py"), *modules]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=variables) as process:

        def run(tree, *arguments):
            process.stdin.write(json.dumps([str(tree), ["run", *arguments]]) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield run
        process.stdin.close()


@pytest.fixture(scope="session")
def live():
    if find_spec("torch") is None:
        pytest.skip("the reference is not there")
    yield from _warm(os.environ, *LOADED, "torch")


@pytest.fixture(scope="session")
def replayed(without_torch):
    yield from _warm(without_torch, *LOADED)


def _rows(stdout):
    records = [json.loads(line) for line in stdout.splitlines()]
    return [record for record in records if record["type"] == "row"]


def _seed(fault, sources, tree):
    shutil.copytree(sources, tree, dirs_exist_ok=True)
    source = tree / fault.file
    text = source.read_text()
    assert text.count(fault.right) == 1, "the line is not there, or more than once"
    source.write_text(text.replace(fault.right, fault.wrong))
    return tree


def _require_caught(fault, done):
    assert done["code"] == 1, f"it survives: {done['stderr']}"
    failed = [row for row in _rows(done["stdout"]) if not row["passed"]]
    assert {row["tensor"] for row in failed} == set(fault.tensors.split())
    for row in failed:
        assert row["case"] == fault.case
        assert (row["verdict"], row["side"]) == (fault.verdict, fault.side)
        assert row["where"] or fault.verdict == PORT_RAISED or fault.verdict.startswith("dtype")


def test_names_are_not_used_twice():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_the_tree_passes_without_a_fault(sources, live, replayed):
    cases = sorted({fault.case for fault in FAULTS})
    for done in (live(sources, *cases), replayed(sources, *cases, *REPLAYED)):
        assert done["code"] == 0, done["stdout"] + done["stderr"]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_is_caught(fault, sources, live, replayed, tmp_path):
    tree = _seed(fault, sources, tmp_path)
    _require_caught(fault, live(tree, fault.case, "--format", "json"))
    done = replayed(tree, fault.case, "--format", "json", *REPLAYED)
    if fault.side == "reference":
        assert done["code"] == 0, done["stdout"]
    else:
        _require_caught(fault, done)


def test_a_new_process_says_the_same(sources, live, replayed, without_torch, tmp_path):
    fault = FAULTS[0]
    tree = _seed(fault, sources, tmp_path)
    arguments = fault.case, "--format", "json"
    for warm, variables, against in ((live, os.environ, ()), (replayed, without_torch, REPLAYED)):
        command = [sys.executable, "-m", "parity", "run", *arguments, *against]
        new = subprocess.run(command, cwd=tree, env=variables, capture_output=True, text=True)
        done = warm(tree, *arguments, *against)
        assert (done["code"], _rows(done["stdout"])) == (new.returncode, _rows(new.stdout))


def test_torch_is_absent_where_a_fault_is_replayed(sources, replayed):
    done = replayed(sources, FAULTS[0].case, "--require", "torch")
    assert done["code"] == 2
    assert "there is no torch here" in done["stderr"]
