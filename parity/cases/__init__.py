"""The suite's own cases, a concept a file: ``jax_input`` and optax against PyTorch."""

import importlib
from collections.abc import Iterator

from parity.case import Case

CONCEPTS = (
    "positions",
    "sinusoidal",
    "embedding",
    "inputs",
    "gradients",
    "optimizers",
    "masks",
    "attention",
    "layers",
    "encoder",
    "linen",
    "nnx",
    "minilm",
)


def all_cases() -> Iterator[Case]:
    """Yield every case, concept by concept; a concept's file is loaded when its turn comes."""
    for concept in CONCEPTS:
        yield from importlib.import_module(f"parity.cases.{concept}").cases()
