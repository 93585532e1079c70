"""Markdown, for a pull request or the summary of a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from parity.coverage import Coverage, sentences
from parity.report.failure import explain, place, size
from parity.rows import Row, Skip

_COLUMNS = ("", "case", "tensor", "port", "torch", "limit", "ulp", "where", "verdict")


def head() -> str:
    """Return the head of the table."""
    return f"{_line(_COLUMNS)}{_line(['---'] * len(_COLUMNS))}"


def record(item: Row | Skip) -> str:
    """Return the table's line of a row or a skip."""
    if isinstance(item, Skip):
        words = f"NOT RUN: {item.missing}: {item.reason}"
        return _line(["-", _code(item.case), *[""] * 6, _escape(words)])
    errors = (item.port_error, item.reference_error, item.limit, item.ulp)
    return _line([
        "ok" if item.passed else "**FAIL**",
        _code(item.case),
        _code(item.tensor),
        *(size(error) for error in errors),
        _escape(place(item)),
        _escape(item.verdict),
    ])


def end(
    failures: Sequence[tuple[Row, str]], coverage: Coverage, facts: Mapping[str, str]
) -> Iterator[str]:
    """Yield what follows the table: a block a failure, coverage, environment."""
    for row, again in failures:
        yield f"\n```text\n{explain(row, again)}\n```\n"
    yield "\n" + "".join(f"- {_escape(line)}\n" for line in sentences(coverage))
    listed = "".join(_line([_escape(name), _escape(fact)]) for name, fact in facts.items())
    body = f"{_line(['', ''])}{_line(['---', '---'])}{listed}"
    yield f"\n<details><summary>environment</summary>\n\n{body}\n</details>\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`" if text else ""


def _escape(text: str) -> str:
    """Keep a text from ending its cell, or being read as markup."""
    for mark in "\\|<>*_`[]":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
