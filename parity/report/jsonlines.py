"""JSON lines: one record a line, each with its type and the version of this schema.

``row``: the fields of `parity.rows.Row` but ``trace``. ``skip``: those of `parity.rows.Skip`.
``summary``: those of `parity.coverage.Coverage`, ``exit_code`` and ``seconds``. ``environment``:
names to strings. Numbers that JSON does not have are the strings "inf", "-inf" and "nan".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from parity.coverage import Coverage
from parity.rows import Row, Skip

SCHEMA = 1


def head() -> str:
    """Return what comes before the records: nothing."""
    return ""


def record(item: Row | Skip) -> str:
    """Return the line of a row or a skip."""
    fields = asdict(item)
    fields.pop("trace", None)
    return _line("row" if isinstance(item, Row) else "skip", fields)


def summary(coverage: Coverage, seconds: float) -> str:
    """Return the line that says what was covered."""
    counts = {name: value for name, value in asdict(coverage).items() if name[0] != "_"}
    fields = {**counts, "exit_code": coverage.exit_code, "seconds": round(seconds, 3)}
    return _line("summary", fields)


def environment(facts: Mapping[str, str]) -> str:
    """Return the line that says what the numbers may depend on."""
    return _line("environment", {"facts": dict(facts)})


def _line(kind: str, fields: Mapping[str, Any]) -> str:
    return json.dumps({"type": kind, "schema": SCHEMA, **_plain(fields)}, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
