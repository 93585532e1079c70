"""Data flows one way: which file may import what, how long it may be, and what an import loads."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("jax_input", "torch_ref", "parity")
SOURCES = sorted(file for name in PACKAGES for file in (ROOT / name).rglob("*.py"))

# The longest prefix that fits a file decides; what is not named may import only the standard
# library, numpy, jaxtyping and its own package.
MAY_IMPORT = {
    "jax_input/": {"jax"},
    "jax_input/linen/": {"jax", "flax"},
    "jax_input/nnx/": {"jax", "flax"},
    "jax_input/plots.py": {"jax", "matplotlib"},
    "jax_input/training.py": {"jax", "flax", "optax"},
    "torch_ref/": {"torch"},
    "parity/": set(),
    "parity/cli.py": {"typer", "click", "rich"},
    "parity/formats.py": {"ml_dtypes"},
    "parity/progress.py": {"rich"},
    "parity/report/text.py": {"rich"},
    "parity/frameworks/jax_side.py": {"jax", "ml_dtypes"},
    "parity/frameworks/jax_": {"jax"},
    "parity/frameworks/linen_port.py": {"jax", "flax"},
    "parity/frameworks/nnx_port.py": {"jax", "flax"},
    "parity/frameworks/equinox_port.py": {"jax", "equinox"},
    "parity/frameworks/torch_side.py": {"torch", "ml_dtypes"},
    "parity/frameworks/torch_": {"torch"},
    "parity/mistakes/": {"torch"},
    "parity/placement_pairs.py": {"scipy"},
    "parity/placement_mapping.py": {"yaml"},
    "parity/recording.py": {"safetensors"},
    "parity/cases/": {"jax", "flax", "torch", "jax_input", "torch_ref"},
    "parity/cases/stepping.py": {"jax", "optax", "torch"},
    "parity/cases/minilm.py": {
        *("jax", "flax", "torch", "jax_input", "torch_ref"),
        *("safetensors", "tokenizers"),
    },
}
EVERYWHERE = {"numpy", "jaxtyping"}


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module.split(".")[0]


def foreign(name, text):
    """Return what a file imports and may not."""
    prefix = max((p for p in MAY_IMPORT if name.startswith(p)), key=len)
    allowed = MAY_IMPORT[prefix] | EVERYWHERE | {name.split("/")[0]} | sys.stdlib_module_names
    return set(imported(ast.parse(text))) - allowed


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_file_imports_only_from_its_own_layer(file):
    assert foreign(str(file.relative_to(ROOT)), file.read_text()) == set()


def test_a_file_that_reaches_over_is_found():
    assert foreign("jax_input/embedding.py", "import flax.linen") == {"flax"}
    assert foreign("torch_ref/inputs.py", "from jax_input import dropout") == {"jax_input"}
    assert foreign("parity/compare.py", "def f():\n  import torch") == {"torch"}


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_file_is_at_most_250_lines(file):
    assert len(file.read_text().splitlines()) <= 250


LOADS = [
    ("jax_input", {"flax", "optax", "torch", "parity", "torch_ref"}),
    ("torch_ref", {"jax", "flax", "jax_input", "parity"}),
    ("parity", {"jax", "torch", "flax", "rich", "typer", "ml_dtypes", "jax_input", "torch_ref"}),
]


def loaded_by(module):
    code = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(("module", "absent"), LOADS)
def test_an_import_leaves_the_other_frameworks_alone(module, absent):
    assert loaded_by(module) & absent == set()


def test_a_framework_that_is_loaded_is_seen():
    assert "flax" in loaded_by("jax_input.linen")


def test_no_module_shares_its_name_with_a_public_function():
    """Otherwise the package attribute is the function, and the module can't be reached."""
    for name in ("jax_input", "torch_ref", "parity"):
        package = __import__(name)
        modules = {file.stem for file in (ROOT / name).glob("*.py")}
        callables = {public for public in package.__all__ if callable(getattr(package, public))}
        assert callables & modules - {"compare"} == set()
