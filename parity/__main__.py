"""The command ``parity``, and ``python -m parity``."""

import gc
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from parity.cli import main

if TYPE_CHECKING:
    from parity.case import Case


def command(
    argv: Sequence[str] | None = None, *, source: "Callable[[], Iterable[Case]] | None" = None
) -> NoReturn:
    """Run the command as ``parity.cli.main`` does, and end the process with its exit code."""
    # What JAX traces and compiles lives until the end. Going through it again and again is a tenth
    # of a run, and freeing it piece by piece at exit takes seconds.
    gc.set_threshold(50_000, 20, 100)
    code = main(argv, source=source)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    command()
