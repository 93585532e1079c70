"""Public functions and classes say what they take, return and raise."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = ["jax_input", "jax_input.linen", "jax_input.nnx", "torch_ref", "parity"]
PUBLIC = [
    (module, name)
    for module in MODULES
    for name in importlib.import_module(module).__all__
    if callable(getattr(importlib.import_module(module), name))
]


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_the_docstring_names_every_argument(module, name):
    public = getattr(importlib.import_module(module), name)
    text = inspect.getdoc(public) or ""
    assert text.strip(), f"{module}.{name} has no docstring"
    if inspect.isfunction(public):
        for argument in inspect.signature(public).parameters:
            assert f"\n  {argument}: " in text, f"{name}: `{argument}` is not described"
        assert "\nReturns:\n" in text


@pytest.mark.parametrize("module", MODULES)
def test_the_public_names_are_sorted(module):
    """Constants, then classes, then functions, as the linter sorts them."""
    names = importlib.import_module(module).__all__
    order = sorted(names, key=lambda n: (not n.isupper(), not n[0].isupper(), n))
    assert list(names) == order


def functions():
    for package in ("jax_input", "torch_ref", "parity"):
        for file in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield file.relative_to(ROOT), node


def test_every_argument_and_result_has_a_type():
    bare = [
        f"{file}:{node.lineno} {node.name}"
        for file, node in functions()
        for missing in [
            [
                a.arg
                for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                if a.annotation is None and a.arg not in ("self", "cls")
            ]
        ]
        if missing or node.returns is None
    ]
    assert bare == []


def test_a_function_fits_the_eye():
    """At most 40 lines without its docstring."""
    long = []
    for file, node in functions():
        body = node.body[1:] if ast.get_docstring(node) else node.body
        lines = (body[-1].end_lineno - body[0].lineno + 1) if body else 0
        if lines > 40:
            long.append(f"{file}:{node.lineno} {node.name} {lines}")
    assert long == []
