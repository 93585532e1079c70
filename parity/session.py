"""One ``parity run``: choose, run, show each record as it comes, end with what was covered."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from parity import environment, usage
from parity.case import Case
from parity.coverage import Coverage, sentences
from parity.exit_codes import NOTHING_COMPARED, PASSED
from parity.known import OWN, require_cases
from parity.known import load as load_known
from parity.needs import missing
from parity.progress import tracked
from parity.recording import RecordingError
from parity.report import jsonlines, markdown
from parity.report.failure import explain
from parity.report.text import Text
from parity.rows import Row, Skip
from parity.selection import Source, Stream, choose, require_unique
from parity.suite_recording import SHIPPED, Recorder, Replay, replay
from parity.usage import UsageError
from parity.whole_file import whole_file

if TYPE_CHECKING:
    from parity.runner import Setting


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
    against: Path | None = None
    record: Path | None = None
    known: Path | None = None
    noise: bool = False


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
    usage.require_recordings(options.against, options.record)
    chosen = choose(
        require_unique(source),
        options.wanted,
        everything=options.everything,
        pattern=options.pattern,
        dtype=options.dtype,
    )
    if options.only_list:
        return _list(chosen)
    coverage = Coverage(required=_unmet(options.required))
    try:
        setting = _setting(options, source)
        kept = whole_file(options.report) if options.report else nullcontext()
        with kept as report:
            _show(_records(Stream(chosen), setting, options), coverage, setting, options, report)
    except RecordingError as error:
        option = "--record: " if options.record else "--against: " if options.against else ""
        raise UsageError(f"{option}{error}") from error
    return coverage.exit_code


def _list(chosen: Iterable[Case]) -> int:
    cases = list(chosen)
    sys.stdout.write("".join(f"{case.id}\n" for case in cases))
    return PASSED if cases else NOTHING_COMPARED


def _unmet(required: Iterable[str]) -> dict[str, str]:
    reasons = {name: missing(name) for name in required}
    return {name: reason for name, reason in reasons.items() if reason}


def _setting(options: Options, source: Source) -> Setting:
    known = load_known(options.known or OWN)
    if options.known is not None:
        require_cases({entry.case for entry in known}, {case.id for case in source()})
    stands_in, recorder = _replay(options), _recorder(options)
    from parity.runner import Setting  # which loads JAX, and is not needed to refuse a file

    return Setting(
        device=options.device,
        matmul_precision=options.matmul_precision,
        replay=stands_in,
        recorder=recorder,
        alone=options.noise,
        known=known,
    )


def _replay(options: Options) -> Replay | None:
    """Return what stands for the reference: what is asked for, or ours where PyTorch is absent."""
    if options.against is not None:
        return replay(options.against)
    if options.record is not None or not (reason := missing("torch")):
        return None
    found = replay(SHIPPED)
    sys.stderr.write(f"parity: torch: {reason}\nparity: in its place: {found}\n")
    return found


def _recorder(options: Options) -> Recorder | None:
    if options.record is None:
        return None
    if reason := missing("torch"):
        raise UsageError(f"--record needs the reference: torch: {reason}")
    facts = environment.installed() | environment.running(load=True)
    return Recorder(options.record, {"torch": facts["torch"]}, facts)


def _records(cases: Stream, setting: Setting, options: Options) -> Iterator[Row | Skip]:
    from parity import runner

    records = runner.run(cases, setting)
    # The bar would run through JSON lines on the same terminal.
    bar = sys.stderr.isatty() and not (options.output == "json" and sys.stdout.isatty())
    yield from tracked(records, cases) if bar else records
    if setting.recorder is not None:  # before the summary: it says that all is well
        try:
            sys.stderr.write(f"parity: {setting.recorder.write()}\n")
        except OSError as error:
            raise UsageError(f"--record can't be written: {error}") from error


def _show(
    records: Iterable[Row | Skip],
    coverage: Coverage,
    setting: Setting,
    options: Options,
    report: BinaryIO | None,
) -> None:
    started = time.monotonic()
    style = _style(options)
    failures = []
    _write(style.head())
    for record in records:
        coverage.add(record)
        _write(style.record(record))
        if report is not None:
            report.write(jsonlines.record(record).encode())
        if isinstance(record, Row) and not record.passed:
            failures.append((record, again(record.case, options)))
    facts = {**environment.installed(), **environment.running(load=False)}
    if setting.alone:
        facts |= {"noise": "each side twice, and on one example alone"}
    if setting.replay is not None:
        facts |= {"reference": str(setting.replay)}
        facts |= {f"sha256 of {file}": digest for file, digest in setting.replay.hashes.items()}
    seconds = time.monotonic() - started
    if report is not None:
        end = jsonlines.summary(coverage, seconds) + jsonlines.environment(facts)
        report.write(end.encode())
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
    for option, path in (("--against", options.against), ("--known", options.known)):
        words += [option, str(path)] if path else []
    words += ["--noise"] if options.noise else []
    return shlex.join(words)
