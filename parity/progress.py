"""A progress bar over the cases, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from parity.rows import Row, Skip
from parity.selection import Stream


def tracked(records: Iterable[Row | Skip], cases: Stream) -> Iterator[Row | Skip]:
    """Yield the records of a run, with a bar on stderr below what is written to stdout.

    Args:
      records: those of one case come one after another.
      cases: where they come from; it knows how many there will be.
    """
    progress = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
        # Where stdout is a file or a pipe, rows must not be drawn on the terminal.
        redirect_stdout=sys.stdout.isatty(),
    )
    seen = ""
    with progress:
        task = progress.add_task("", total=None)
        for record in records:
            done = record.case != seen
            progress.update(task, description=record.case, advance=done, total=cases.total)
            seen = record.case
            yield record
