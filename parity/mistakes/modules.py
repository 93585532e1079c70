"""PyTorch: mistakes that a whole module makes: set on a copy of the reference before it runs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import nn

from parity.mistakes.guess import Guess

_BEFORE = ("norm_first", "normalize_before", "pre_norm", "prenorm", "do_layer_norm_before")


def module_mistakes(reference: Any) -> Iterator[tuple[str, Guess]]:
    """Yield the path of the first module that can make a mistake, and the mistake."""
    if not isinstance(reference, nn.Module):
        return
    for name in (*_BEFORE, "batch_first"):
        having = [(path, m) for path, m in reference.named_modules() if _has(m, name)]
        if having:
            path, module = having[0]
            yield path, _guess(name, bool(getattr(module, name)))


def _has(module: nn.Module, name: str) -> bool:
    return isinstance(vars(module).get(name), bool)


def _guess(name: str, own: bool) -> Guess:
    answer = partial(_no_answer)
    change = partial(_turned_over, name)
    if name == "batch_first":
        axes = ("[batch, time]", "[time, batch]")
        cause = f"the first axes are {axes[own]} in the port, {axes[not own]} in torch"
        fix = f"time_major={not own}"
        return Guess("axes-swapped", cause, fix, answer, change=change)
    sides = ("before", "after")
    cause = f"norms come {sides[own]} the sublayers in the port, {sides[not own]} in torch"
    fix = "x + f(norm(x))" if own else "norm(x + f(x))"
    return Guess("norm-order", cause, fix, answer, change=change)


def _no_answer() -> Any:
    return NotImplemented


def _turned_over(name: str, model: nn.Module) -> None:
    for module in model.modules():
        if _has(module, name):
            setattr(module, name, not getattr(module, name))
