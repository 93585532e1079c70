"""What a known mistake would have made of one call: the guesses that are tried on a port."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from parity.frameworks.torch_calls import Call


@dataclass(frozen=True, eq=False)
class Guess:
    """One mistake at one call of the reference.

    Attributes:
      code: what `docs/causes.md` explains it under.
      cause: what the port does, and what the reference does.
      fix: the line to write in the port, or what to change.
      answer: computes what the call gives if the mistake is made.
      rounds: whether it is about digits that are lost: which way each value is rounded then hangs
        on the last bit of what was there, so that most values agree, and not all.
      change: makes the mistake in a copy of the reference before it runs, where no call shows it.
      is_general: whether any computation can have it; one that is known by name goes before it.
      needs_held: whether it is tried only where the port holds the very tensor that it gives.
      tensor: path of the module that it is about, where that is not the one that makes the call.
    """

    code: str
    cause: str
    fix: str
    answer: Callable[[], Any]
    rounds: bool = False
    change: Callable[[Any], None] | None = None
    is_general: bool = False
    needs_held: bool = False
    tensor: str = ""

    @property
    def generality(self) -> tuple[bool, bool]:
        """What sorts guesses that explain a port equally well, the specific ones first."""
        return self.is_general, self.needs_held

    @property
    def name(self) -> str:
        """What tells it from other guesses about the same call."""
        return f"{self.code}: {self.cause}"


def given_to(call: Call, *names: str) -> dict[str, Any]:
    """Return what a call was given by the names of its parameters."""
    return dict(zip(names, call.places, strict=False)) | dict(call.named)


def each(value: Any, count: int) -> tuple[int, ...]:
    """Return an option of each axis of an image: PyTorch takes one for all, or a list."""
    return tuple(value) if isinstance(value, list | tuple) else (value,) * count
