"""The block that explains one row that did not pass: term, place, guilty side, cause."""

from __future__ import annotations

from parity.rows import RAISED, Row, Value


def explain(row: Row, again: str = "") -> str:
    """Return some indented lines about a row.

    Args:
      row: that did not pass.
      again: the command that runs just its case again.
    """
    lines = [
        f"{title(row)}: {row.verdict}",
        *([] if row.limit is None else _numbers(row)),
        *([f"cause: {row.cause}"] if row.cause else []),
        *(f"note: {note}" for note in row.notes),
        *([f"again: {again}"] if again else []),
    ]
    return "\n  ".join(lines)


def title(row: Row) -> str:
    """Return what a row is about: its case and its tensor."""
    parts = [row.case, row.tensor or ("" if row.verdict == RAISED else "array")]
    return ", ".join(part for part in parts if part)


def _numbers(row: Row) -> list[str]:
    """Return where it is worst, with all values there, and what the limit is."""
    ours, theirs = row.names
    shown = ours if row.side != "reference" else theirs
    values = [(ours, row.port_value), (theirs, row.reference_value), ("exact", row.exact_value)]
    if row.reference_error is None:
        values = [(ours, row.port_value), (theirs, row.exact_value)]
    at = "   ".join(f"{name} {number(value, row.dtype)}" for name, value in values)
    return [
        f"{row.beyond or row.differing:,} of {row.elements:,} elements {_apart(row, shown)}",
        f"worst at {list(row.where)}:   {at}",
        f"greatest error: {_errors(row)}",
        f"limit: {_limit(row)}",
    ]


def _apart(row: Row, shown: str) -> str:
    if not row.beyond:
        return "differ in bits between the sides"
    return f"of {shown} are beyond the limit"


def _errors(row: Row) -> str:
    ours, theirs = row.names
    text = f"{ours} {size(row.port_error)} ({size(row.ulp)} ulp)"
    if row.reference_error is None:
        return text
    return f"{text}, {theirs} {size(row.reference_error)} ({size(row.reference_ulp)} ulp)"


def _limit(row: Row) -> str:
    sources = {
        "one ulp": "one ulp",
        "ratio": "a small multiple of the other side's own error",
        "deviation": "one standard deviation of the roundings on the way",
        "ceiling": f"the ceiling: {row.reason}",
        "equality": "integers are compared for equality",
        "override": row.reason,
    }
    return f"{size(row.limit)} there ({sources[row.limit_source]})"


def number(value: Value, dtype: str) -> str:
    """Return a value with as many digits as tell it from its neighbours in a format."""
    digits = 17 if dtype == "float64" else 9
    return (
        "-" if value is None else f"{value:.{digits}g}" if isinstance(value, float) else str(value)
    )


def place(row: Row) -> str:
    """Return where a row's error is greatest, "" if there is none."""
    return str(list(row.where)) if row.elements and row.limit is not None else ""


def size(value: float | None) -> str:
    """Return an error or a limit in two or three digits."""
    return "-" if value is None else "0" if value == 0 else f"{value:.2g}"
