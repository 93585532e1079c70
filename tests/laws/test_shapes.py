"""Shapes are what the signatures say, checked at every call in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
from jaxtyping import install_import_hook

with install_import_hook("jax_input", "beartype.beartype"):
    import jax_input
    from tests.catalogue import EXAMPLES

import jax
{body}
"""
WHOLE_CATALOGUE = """
for example in EXAMPLES:
    arguments = [jax.numpy.asarray(argument) for argument in example.arguments]
    example.call(*arguments)
    jax.eval_shape(example.call, *arguments)
    if example.smooth:
        jax.eval_shape(lambda *traced: jax.vjp(example.call, *traced)[0], *arguments)
"""
WRONG_SHAPE = """
from jax_input.embedding import read_rows
read_rows(jax.numpy.zeros(3), jax.numpy.zeros(2, int))
"""


def run(body):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM.format(body=body)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},  # nothing here runs twice
    )


def test_every_example_keeps_to_the_shapes_of_the_signatures():
    result = run(WHOLE_CATALOGUE)
    assert result.returncode == 0, result.stderr


def test_the_check_can_fail():
    result = run(WRONG_SHAPE)
    assert result.returncode == 1
    assert "read_rows" in result.stderr
    assert "TypeCheckError" in result.stderr
