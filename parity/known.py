"""Differences that are accepted: each with its reason, its bound and the day it was measured.

An entry that is exceeded fails, and so does one that no longer occurs: the list can only shrink.
"""

from __future__ import annotations

import datetime
import math
import tomllib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from parity.needs import DEVICES
from parity.rows import Label, Row
from parity.usage import UsageError

GONE = "a known difference no longer occurs: take it off the list"
_MAX_BYTES = 1 << 20
OWN = Path(__file__).with_name("known.toml")


@dataclass(frozen=True)
class Known:
    """One accepted difference.

    Attributes:
      case: id.
      tensor: its name.
      side: which side is off: "port" or "reference".
      bound: the greatest absolute error of that side that is accepted.
      reason: why it is.
      date: when it was measured.
      device: platform that it is about; "" for all.
    """

    case: str
    tensor: str
    side: str
    bound: float
    reason: str
    date: datetime.date
    device: str = ""

    def is_about(self, case: str, tensor: str, device: str) -> bool:
        """Say whether a tensor of a case, on a platform, is this one's."""
        return (self.case, self.tensor) == (case, tensor) and self.device in ("", device)


def load(path: Path = OWN) -> tuple[Known, ...]:
    """Read a list of accepted differences: a ``[[difference]]`` each, with the fields of `Known`.

    Raises:
      UsageError: if it can't be read, or an entry is not one.
    """
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"--known must be a file of at most 1 MiB; got {str(path)!r}")
        listed = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"--known must be a TOML file; {str(path)!r}: {error}") from error
    entries = listed.pop("difference", [])
    if listed or not isinstance(entries, list):
        got = ", ".join(listed) or f"difference = {str(entries)[:40]}"
        raise UsageError(f"{path}: must be [[difference]] tables; got {got}")
    found = tuple(_known(path, number, entry) for number, entry in enumerate(entries, 1))
    places = [(entry.case, entry.tensor, entry.device) for entry in found]
    if twice := {place for place in places if places.count(place) > 1}:
        raise UsageError(f"{path}: {sorted(twice)[0]} is listed twice")
    return found


def _known(path: Path, number: int, entry: Any) -> Known:
    kinds = {field.name: field for field in fields(Known)}
    needed = set(kinds) - {"device"}
    if not isinstance(entry, dict) or not needed <= set(entry) <= set(kinds):
        raise UsageError(
            f"{path}: difference {number} must have {', '.join(sorted(needed))}, and may have "
            f"device; got {', '.join(sorted(entry)) if isinstance(entry, dict) else entry}"
        )
    bound = entry["bound"]
    texts = all(isinstance(entry[name], str) for name in entry.keys() - {"bound", "date"})
    if not texts or not entry["reason"].strip() or entry["side"] not in ("port", "reference"):
        raise UsageError(
            f"{path}: difference {number}: case, tensor, device and reason must be texts, side "
            f"'port' or 'reference'; got {entry}"
        )
    if type(bound) not in (int, float) or not 0 < bound < math.inf:
        raise UsageError(f"{path}: difference {number}: bound must be above 0, got {bound!r}")
    if entry.get("device", "") not in ("", *DEVICES):
        raise UsageError(
            f"{path}: difference {number}: device must be one of {', '.join(DEVICES)}; "
            f"got {entry['device']!r}"
        )
    if type(entry["date"]) is not datetime.date:
        raise UsageError(f"{path}: difference {number}: date must be one, got {entry['date']!r}")
    return Known(**entry)


def require_cases(listed: Collection[str], cases: Collection[str]) -> None:
    """Refuse a list that has a case which is none: it would never be found to be gone.

    Raises:
      UsageError: if there is one.
    """
    for case in sorted(set(listed) - set(cases)):
        raise UsageError(f"--known lists {case!r}, which is none; all: parity run --list --all")


def accepted(row: Row, known: Iterable[Known]) -> Row:
    """Let a listed difference pass; fail one that is larger than listed, or gone.

    Args:
      row: the verdict on a tensor.
      known: what is listed.
    """
    listed = [entry for entry in known if entry.is_about(row.case, row.tensor, row.device)]
    if not listed or row.limit is None:
        return row
    entry = max(listed, key=lambda entry: entry.device)  # of the device, rather than of all
    if row.side == "":
        return replace(row, passed=False, verdict=GONE, notes=(*row.notes, entry.reason))
    error = row.port_error if row.side == "port" else row.reference_error
    if row.side != entry.side or error is None:
        return replace(row, notes=(*row.notes, f"known is that the {entry.side} is off"))
    notes = (*row.notes, f"known since {entry.date}: {entry.reason}")
    if not error <= entry.bound:
        words = f"{row.verdict}: by {error:.2g}, known is {entry.bound:.2g}"
        return replace(row, passed=False, verdict=words, notes=notes)
    return replace(row, passed=True, verdict=f"known: {row.verdict}", notes=notes)


def unmatched(case: Label, tensors: Collection[str], known: Iterable[Known]) -> Iterator[Row]:
    """Yield a failing row for each listed tensor that a case does not have.

    Args:
      case: that has run, and where.
      tensors: the names of what it has.
      known: what is listed.
    """
    for entry in known:
        if entry.tensor not in tensors and entry.is_about(case.case, entry.tensor, case.device):
            yield Row(
                case=case.case,
                tensor=entry.tensor,
                dtype="",
                device=case.device,
                verdict=f"{GONE}; there is no such tensor",
                passed=False,
            )
