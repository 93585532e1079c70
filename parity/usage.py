"""What the command line may be given, refused in one line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from parity.needs import DEVICES, NAMES

FORMATS = ("text", "json", "markdown")
PRECISIONS = (
    "default",
    "high",
    "highest",
    "bfloat16",
    "tensorfloat32",
    "float32",
)


class UsageError(Exception):
    """The command line asks for something that there is not."""


def require_one_of(option: str, value: str, allowed: Iterable[str]) -> None:
    """Refuse a value that is not among those of an option."""
    choices = list(allowed)
    if value not in choices:
        raise UsageError(f"{option} must be one of {', '.join(choices)}; got {value!r}")


def require_options(
    output: str, device: str | None, precision: str | None, required: Iterable[str]
) -> None:
    """Refuse what no run could do, before anything is loaded."""
    require_one_of("--format", output, FORMATS)
    if device is not None:
        require_one_of("--device", device, DEVICES)
    if precision is not None:
        require_one_of("--matmul-precision", precision, PRECISIONS)
    for name in required:
        require_one_of("--require", name, NAMES)


def require_pattern(text: str | None) -> re.Pattern[str] | None:
    """Return a regular expression, or say what is wrong with it."""
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise UsageError(
            f"--filter must be a regular expression such as 'jit|eager'; {text!r}: {error}"
        ) from error


def require_recordings(against: Path | None, record: Path | None) -> None:
    """Refuse recordings that are not there, or a folder that could not get them."""
    if against is not None and record is not None:
        raise UsageError("--record needs the reference itself: give it without --against")
    try:
        if against is not None and not against.exists():
            raise UsageError(f"--against must be a file or a folder; {str(against)!r} is not there")
        if record is not None:
            _require_folder(record.resolve())
    except (OSError, RuntimeError) as error:  # RuntimeError: a circle of links
        raise UsageError(f"--record and --against must be paths; {error}") from error


def _require_folder(record: Path) -> None:
    nearest = next(folder for folder in (record, *record.parents) if folder.exists())
    if not nearest.is_dir():
        raise UsageError(f"--record must be a folder; {str(nearest)!r} is a file")
    if not os.access(nearest, os.W_OK):
        raise UsageError(f"--record must be in a folder you may write to; got {str(nearest)!r}")


def require_writable(path: Path | None) -> None:
    """Refuse a report that could not be written at the end of the run."""
    if path is None:
        return
    got = repr(str(path))
    try:
        target = path.resolve()
        folder = target.parent
        if path.is_dir():
            raise UsageError(f"--report must be a file; {got} is a folder")
        if path.exists() and not path.is_file():
            raise UsageError(
                f"--report must be a regular file, which it replaces; {got} is a device or pipe. "
                "For JSON lines on stdout give --format json"
            )
        if not folder.is_dir():
            raise UsageError(f"--report must be in a folder that exists; {str(folder)!r} is none")
    except (OSError, RuntimeError) as error:  # RuntimeError: a circle of links
        raise UsageError(f"--report must be a file; {got} can be none: {error}") from error
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--report must be in a folder you may write to; got {str(folder)!r}")
    if target.exists() and not os.access(target, os.W_OK):
        raise UsageError(f"--report must be a file you may write to; got {got}")
