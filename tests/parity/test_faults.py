"""The suite can fail: known port faults, put into a copied source tree, are named by `parity run`.

A fault replaces a line in the function's own module; no case is touched.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_INPUTS = "inputs/transformer_input[padding right, float32, jit]"
_ROWS = "sinusoidal/positions"

# What is wrong: file, line as it stands, line with the fault, cases that are run, terms that fail.
FAULTS = {
    "scale left out": (
        "jax_input/embedding.py",
        "        return math.sqrt(d_model)\n",
        "        return 1.0\n",
        _INPUTS,
        {"scale", "sum", "gradient/embedding"},
    ),
    "positions off by one": (
        "jax_input/positions.py",
        "table[:seq_len]",
        "table[1 : seq_len + 1]",
        _INPUTS,
        {"table", "sum"},
    ),
    "base 1000": (
        "jax_input/sinusoidal.py",
        "base: float = 10_000.0",
        "base: float = 1_000.0",
        _ROWS,
        {"table"},
    ),
    "halves for interleaved": (
        "jax_input/sinusoidal.py",
        'sinusoid.layout == "interleaved"',
        'sinusoid.layout != "interleaved"',
        _ROWS,
        {"table"},
    ),
    "sine and cosine swapped": (
        "jax_input/sinusoidal.py",
        "is_second != sinusoid.cos_first",
        "is_second == sinusoid.cos_first",
        _ROWS,
        {"table"},
    ),
    "table in bfloat16": (
        "jax_input/sinusoidal.py",
        "fixed_point.round_to(total, dtype)",
        "fixed_point.round_to(total, np.dtype(jnp.bfloat16)).astype(dtype)",
        _INPUTS,
        {"table", "sum"},
    ),
    "padding row not zero at init, linen": (
        "jax_input/linen.py",
        "zero_padding_row(table, shape, padding_idx)",
        "table",
        "linen/init",
        {"init/padding"},
    ),
    "padding row not zero at init, nnx": (
        "jax_input/nnx.py",
        "zero_padding_row(parameter[...], shape, padding_idx)",
        "parameter[...]",
        "nnx/init",
        {"init/padding"},
    ),
    "padding gradient let through": (
        "jax_input/embedding.py",
        "lax.stop_gradient(rows)",
        "rows",
        "embedding/padding",
        {"gradient/embedding"},
    ),
    "dropout not rescaled": (
        "jax_input/inputs.py",
        "product(jnp.where(kept, wide, 0), 1 / (1 - rate))",
        "product(jnp.where(kept, wide, 0), 1.0)",
        "inputs/dropout[rate 0.1, float32, jit]",
        {"dropout", "gradient/x"},
    ),
    "gradient summed in bfloat16": (
        "jax_input/embedding.py",
        "_gather(tangent.astype(wide), indices)",
        "_gather(tangent.astype(jnp.bfloat16), indices).astype(wide)",
        "embedding/hits",
        {"gradient/embedding"},
    ),
    "the reference's scale left out": (
        "torch_ref/embedding.py",
        "        return math.sqrt(d_model)\n",
        "        return 1.0\n",
        _INPUTS,
        {"scale", "sum", "gradient/embedding"},
    ),
}


def run(tree, *arguments):
    command = [sys.executable, "-m", "parity", "run", *arguments]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True)


def copied(tree):
    for package in ("jax_input", "torch_ref", "parity"):
        shutil.copytree(
            ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    return tree


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_with_its_term_place_and_guilty_side(fault, tmp_path):
    file, right, wrong, cases, terms = FAULTS[fault]
    source = copied(tmp_path) / file
    assert source.read_text().count(right) == 1
    source.write_text(source.read_text().replace(right, wrong))

    done = run(tmp_path, cases, "--format", "json")
    assert done.returncode == 1, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    failed = [record for record in records if record.get("passed") is False]
    assert {record["tensor"] for record in failed} == terms
    side = "torch is the side that is off" if file.startswith("torch_ref") else "the port is off"
    for record in failed:
        assert record["verdict"] == side
        assert record["where"]
        assert record["case"].startswith(cases)


@pytest.mark.slow
def test_the_copied_tree_passes_without_a_fault(tmp_path):
    done = run(copied(tmp_path), _INPUTS, _ROWS, "embedding/hits", "linen/init", "nnx/init")
    assert done.returncode == 0, done.stdout
