"""Files that have their name only once they are whole."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing.

    If what is inside raises, an interrupt included, a file that was there stays as it was.

    Args:
      path: in a folder that exists.
    """
    path = path.resolve()  # else a link would be replaced, not what it points to
    # Short whatever the name: with more added to it, a long one would be too long. Two threads
    # that write in one folder must not have one name.
    temporary = path.with_name(f".parity-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
