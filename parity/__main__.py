"""The command ``parity``, and ``python -m parity``."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from parity.exit_codes import INTERRUPTED, TERMINATED

try:
    from parity.cli import main
except KeyboardInterrupt:
    os._exit(INTERRUPTED)

if TYPE_CHECKING:
    from parity.case import Case


def command(
    argv: Sequence[str] | None = None, *, source: "Callable[[], Iterable[Case]] | None" = None
) -> NoReturn:
    """Run the command as ``parity.cli.main`` does, and end the process with its exit code."""
    # A stream that was closed by who started the process is None.
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    # By default it ends the process at once, and half a report stays.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
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
