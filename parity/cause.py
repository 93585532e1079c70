"""A mistake that explains what a port computes."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """One mistake, named.

    Attributes:
      code: its section in `docs/causes.md`.
      tensor: path of the reference's module, weight or step that it is about.
      cause: what the port does, and what the reference does.
      fix: what to write.
      line: of the port, "model.py:14"; "" if it can't be told.
      error: of the output once it is mended, absolutely; None if that could not be tried.
      everywhere: whether it is made at every call of that function.
    """

    code: str
    tensor: str
    cause: str
    fix: str
    line: str = ""
    error: float | None = None
    everywhere: bool = False


def in_any_layer(path: str) -> str:
    """Return a path, or the key of a step, without the number of a layer: "layers.*.norm1"."""
    return re.sub(r"(^|\.)\d+(?=[.:]|$)", r"\1*", path)
