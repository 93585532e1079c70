"""Where PyTorch is absent, the tests that need it are left out by name, and no others."""

import ast
from fnmatch import fnmatch
from pathlib import Path

TESTS = Path(__file__).parents[1]


def imports_torch(code):
    """Whether PyTorch, or the reference in it, is imported as the file is."""
    names = set()
    for node in ast.parse(code).body:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module.partition(".")[0])
    return bool(names & {"torch", "torch_ref"})


def test_the_list_is_that_of_the_files_that_import_torch(pytestconfig):
    (listed,) = [
        plugin.NEED_TORCH
        for plugin in pytestconfig.pluginmanager.get_plugins()
        if hasattr(plugin, "NEED_TORCH")
    ]
    files = [str(file.relative_to(TESTS)) for file in TESTS.rglob("test_*.py")]
    left_out = {file for file in files if any(fnmatch(file, pattern) for pattern in listed)}
    assert left_out == {file for file in files if imports_torch((TESTS / file).read_text())}
    assert all(any(fnmatch(file, pattern) for file in files) for pattern in listed)


def test_an_import_is_seen_where_it_is_at_the_top_only():
    assert imports_torch("from torch.nn import functional")
    assert imports_torch("import numpy, torch_ref.published")
    assert not imports_torch("def f():\n    import torch")
    assert not imports_torch("import torchvision")
