"""A progress bar over the cases, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from parity.case import Case


def tracked(cases: Sequence[Case], *, shown: bool) -> Iterator[Case]:
    """Yield the cases, with a bar on stderr below what is written to stdout.

    Args:
      cases: to go through.
      shown: whether there is a bar at all.
    """
    if not shown:
        yield from cases
        return
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    progress = Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        # Where stdout is a file or a pipe, rows must not be drawn on the terminal.
        redirect_stdout=sys.stdout.isatty(),
    )
    with progress:
        task = progress.add_task("", total=len(cases))
        for case in cases:
            progress.update(task, description=case.id)
            yield case
            progress.advance(task)
