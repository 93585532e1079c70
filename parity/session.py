"""One ``parity run``: choose, run, show each record as it comes, end with what was covered."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from parity import environment, usage
from parity.case import Case
from parity.coverage import Coverage, sentences
from parity.exit_codes import NOTHING_COMPARED, PASSED
from parity.needs import missing
from parity.progress import tracked
from parity.report import jsonlines, markdown
from parity.report.failure import explain
from parity.report.text import Text
from parity.rows import Row, Skip
from parity.selection import Source, Stream, choose, load


@dataclass(frozen=True)
class Options:
    """What the command line asks for; see ``parity run --help``."""

    wanted: tuple[str, ...] = ()
    only_list: bool = False
    verbose: bool = False
    everything: bool = False
    pattern: str | None = None
    device: str | None = None
    dtype: str | None = None
    matmul_precision: str | None = None
    required: tuple[str, ...] = ()
    output: str = "text"
    report: Path | None = None


def execute(options: Options, source: Source) -> int:
    """Do what the options say, and return the exit code.

    Args:
      options: from the command line.
      source: gives all cases.

    Raises:
      UsageError: if the options ask for something that there is not.
    """
    usage.require_options(
        options.output, options.device, options.matmul_precision, options.required
    )
    usage.require_pattern(options.pattern)
    usage.require_writable(options.report)
    cases, without = load(source)
    chosen = () if without else _chosen(cases, options)
    if options.only_list:
        return _list(chosen, without)
    coverage = Coverage(required=_unmet(options.required))
    kept = jsonlines.whole_file(options.report) if options.report else nullcontext()
    with kept as report:
        _show(_records(Stream(chosen), without, options), coverage, options, report)
    return coverage.exit_code


def _chosen(cases: Iterable[Case], options: Options) -> Iterable[Case]:
    return choose(
        cases,
        options.wanted,
        everything=options.everything,
        pattern=options.pattern,
        dtype=options.dtype,
    )


def _list(chosen: Iterable[Case], without: str) -> int:
    cases = list(chosen)
    sys.stdout.write("".join(f"{case.id}\n" for case in cases))
    if without:
        sys.stderr.write(f"parity: no case can be listed: torch: {without}\n")
    return PASSED if cases else NOTHING_COMPARED


def _unmet(required: Iterable[str]) -> dict[str, str]:
    reasons = {name: missing(name) for name in required}
    return {name: reason for name, reason in reasons.items() if reason}


def _records(cases: Stream, without: str, options: Options) -> Iterator[Row | Skip]:
    if without:
        yield Skip("*", "torch", without)
        return
    from parity import runner

    setting = runner.Setting(options.device, options.matmul_precision)
    records = runner.run(cases, setting)
    # The bar would run through JSON lines on the same terminal.
    bar = sys.stderr.isatty() and not (options.output == "json" and sys.stdout.isatty())
    yield from tracked(records, cases) if bar else records


def _show(
    records: Iterable[Row | Skip],
    coverage: Coverage,
    options: Options,
    report: TextIO | None,
) -> None:
    started = time.monotonic()
    style = _style(options)
    failures = []
    _write(style.head())
    for record in records:
        coverage.add(record)
        _write(style.record(record))
        if report is not None:
            report.write(jsonlines.record(record))
        if isinstance(record, Row) and not record.passed:
            failures.append((record, again(record.case, options)))
    facts = {**environment.installed(), **environment.running(load=False)}
    seconds = time.monotonic() - started
    if report is not None:
        report.writelines([jsonlines.summary(coverage, seconds), jsonlines.environment(facts)])
    if options.output == "json":
        _write(jsonlines.summary(coverage, seconds) + jsonlines.environment(facts))
        sys.stderr.write("".join(f"{explain(row, command)}\n" for row, command in failures))
        sys.stderr.write("".join(f"{line}\n" for line in sentences(coverage)))
    else:
        _write("".join(style.end(failures, coverage, facts)))


def _style(options: Options) -> Any:
    if options.output == "text":
        return Text(colours=sys.stdout.isatty(), verbose=options.verbose)
    return markdown if options.output == "markdown" else jsonlines


def _write(text: str) -> None:
    """Write to what stdout is now (a progress bar puts itself before it), and at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def again(case_id: str, options: Options) -> str:
    """Return the command that runs just one case again, under the same switches."""
    words = ["python", "-m", "parity", "run", case_id]
    if options.device:
        words += ["--device", options.device]
    if options.matmul_precision:
        words += ["--matmul-precision", options.matmul_precision]
    return shlex.join(words)
