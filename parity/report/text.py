"""Text for a terminal: a line a tensor as it is computed, then a block a failure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console

from parity.coverage import Coverage, sentences
from parity.report.failure import explain, place, size
from parity.rows import Row, Skip

_TENSOR_WIDTH = 20
_PLACE_WIDTH = 12
_CASE_WIDTH = 66


class Text:
    """Turns records into lines, with colours where they are shown on a terminal."""

    def __init__(self, *, colours: bool, verbose: bool) -> None:
        """Say how lines look."""
        self.verbose = verbose
        self.console = Console(
            force_terminal=colours, no_color=None if colours else True, highlight=False
        )

    def head(self) -> str:
        """Return the names of the columns."""
        names = ("port", "torch", "limit", "ulp")
        return self._line("", "case", "tensor", names, "where", "verdict", style="bold")

    def record(self, item: Row | Skip) -> str:
        """Return the line of a row or a skip, and of its notes where more is asked for."""
        if isinstance(item, Skip):
            text = f"     {item.case:{_CASE_WIDTH}}  NOT RUN: {item.missing}: {item.reason}"
            return self._styled(text, "yellow")
        errors = (item.port_error, item.reference_error, item.limit, item.ulp)
        line = self._line(
            "ok" if item.passed else "FAIL",
            item.case,
            item.tensor,
            tuple(size(error) for error in errors),
            place(item),
            item.verdict,
            style="" if item.passed else "bold red",
        )
        if not self.verbose:
            return line
        return line + "".join(self._styled(f"       {note}", "dim") for note in _details(item))

    def end(
        self, failures: Sequence[tuple[Row, str]], coverage: Coverage, facts: Mapping[str, str]
    ) -> Iterator[str]:
        """Yield what follows the rows: a block a failure, coverage, environment."""
        for row, again in failures:
            trace = f"\n{row.trace}" if self.verbose and row.trace else ""
            yield self._styled(f"\n{explain(row, again)}{trace}", "red")
        style = "green" if coverage.exit_code == 0 else "bold red"
        yield self._styled("\n" + "\n".join(sentences(coverage)), style)
        shown = facts if self.verbose else {name: facts[name] for name in _BRIEF if name in facts}
        text = "\n".join(f"{name}: {fact}" for name, fact in shown.items())
        yield self._styled(text if self.verbose else "; ".join(text.splitlines()), "dim")

    def _line(
        self,
        mark: str,
        case: str,
        tensor: str,
        numbers: Sequence[str],
        where: str,
        verdict: str,
        *,
        style: str,
    ) -> str:
        columns = "  ".join(f"{number:>7}" for number in numbers)
        text = (
            f"{mark:4} {case:{_CASE_WIDTH}}  {tensor:{_TENSOR_WIDTH}} {columns}"
            f"  {where:{_PLACE_WIDTH}}  {verdict}"
        )
        return self._styled(text, style)

    def _styled(self, text: str, style: str) -> str:
        with self.console.capture() as captured:
            self.console.print(text, style=style, markup=False, soft_wrap=True)
        return captured.get()


_BRIEF = (
    "python",
    "jax",
    "jax devices",
    "jax x64",
    "jax matmul precision",
    "torch",
    "noise",
    "reference",
)


def _details(row: Row) -> Iterator[str]:
    if row.reason:
        used = "-" if row.over_limit is None else f"{row.over_limit:.2g}"
        source = row.limit_source or "-"
        yield f"error over limit {used}; limit by {source}; ceiling: {row.reason}"
    yield from row.notes
