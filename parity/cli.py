"""The command ``parity``: what it can be asked, and what its exit code says."""

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parity.exit_codes import BROKEN_PIPE, INTERRUPTED, PASSED, TROUBLE
from parity.usage import UsageError

if TYPE_CHECKING:
    from parity.case import Case

app = typer.Typer(
    add_completion=False,
    add_help_option=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 within limits, 1 a difference, 2 usage, environment or an unexpected "
    "exception, 3 nothing compared, 130 interrupted.",
)


def main(
    argv: Sequence[str] | None = None, *, source: "Callable[[], Iterable[Case]] | None" = None
) -> int:
    """Run the command and return its exit code.

    Args:
      argv: what follows the command's name; by default what the process was given.
      source: a callable that gives the cases; by default those of `parity.cases`.
    """
    try:
        app(args=None if argv is None else list(argv), prog_name="parity", obj=source or own_cases)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else TROUBLE
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        _complain(f"parity: what there is to say can't be written: {error}\n")
        return TROUBLE
    return PASSED


def own_cases() -> "Iterable[Case]":
    """Return the cases of this package's own suite."""
    from parity import cases

    return cases.all_cases()


def show_help(context: typer.Context, wanted: bool) -> None:
    """Print what a command can do, and stop."""
    if wanted:
        try:
            typer.echo(context.get_help())
        except BrokenPipeError as error:
            raise typer.Exit(_unread()) from error
        raise typer.Exit(PASSED)


# Typer's own help option has a value that is none yet, for which it loads pydantic (0.15 s).
HelpOption = Annotated[
    bool,
    typer.Option(
        "--help", "-h", is_eager=True, callback=show_help, help="Show this message and exit."
    ),
]


@app.callback()
def parity(_help: HelpOption = False) -> None:
    """Hold a port and its reference against exact values: who is off, by how much, where."""


@app.command(add_help_option=False)
def run(
    context: typer.Context,
    case: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CASE", help="Ids of cases, or what comes before a '/' or '[' of ids."
        ),
    ] = None,
    only_list: Annotated[bool, typer.Option("--list", help="Print the ids and stop.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Tell limits, notes, traces, environment.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what does not run by default.")
    ] = False,
    pattern: Annotated[
        str | None, typer.Option("--filter", metavar="RE", help="Ids with a match of this.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="D", help="Where the port runs: cpu, cuda, gpu, rocm or tpu."),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(metavar="T", help="Cases of this dtype: float32, bfloat16, ...")
    ] = None,
    matmul_precision: Annotated[
        str | None, typer.Option(metavar="P", help="JAX's: default, high, highest, ...")
    ] = None,
    require: Annotated[
        str,
        typer.Option(metavar="NAME,...", help="Fail if not there: torch, models, flax, a device."),
    ] = "",
    output: Annotated[
        str, typer.Option("--format", metavar="F", help="text, json or markdown.")
    ] = "text",
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write JSON lines to a file.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Replay a recording, or a folder of them, as reference."),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Record what the reference computes.")
    ] = None,
    known: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Accepted differences (TOML).")
    ] = None,
    noise: Annotated[
        bool, typer.Option("--noise", help="Also each side on one example alone: its noise floor.")
    ] = False,
    _help: HelpOption = False,
) -> None:
    """Compare the port with its reference, tensor by tensor."""
    from parity.session import Options, execute

    options = Options(
        wanted=tuple(case or ()),
        only_list=only_list,
        verbose=verbose,
        everything=everything,
        pattern=pattern,
        device=device,
        dtype=dtype,
        matmul_precision=matmul_precision,
        required=tuple(name.strip() for name in require.split(",") if name.strip()),
        output=output,
        report=report,
        against=against,
        record=record,
        known=known,
        noise=noise,
    )
    raise typer.Exit(guarded(lambda: execute(options, context.obj)))


@app.command(add_help_option=False)
def env(
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Load the frameworks and ask them too."),
    ] = False,
    _help: HelpOption = False,
) -> None:
    """Print versions, machine and variables that numbers may depend on."""
    raise typer.Exit(guarded(lambda: _print_environment(verbose)))


def _print_environment(verbose: bool) -> int:
    from parity import environment

    facts = environment.installed() | (environment.running(load=True) if verbose else {})
    width = max(len(name) for name in facts)
    sys.stdout.write("".join(f"{name:{width}}  {fact}\n" for name, fact in facts.items()))
    return PASSED


def guarded(action: Callable[[], int]) -> int:
    """Return the exit code of an action, whichever way it ends."""
    try:
        code = action()
        sys.stdout.flush()  # what can't be written must be trouble before the code is said
        return code
    except UsageError as error:
        _complain(f"parity: {error}\n")
        return TROUBLE
    except KeyboardInterrupt:
        _complain("parity: interrupted; no report was written\n")
        return INTERRUPTED
    except BrokenPipeError:
        return _unread()
    except Exception:  # Python's own exit code would be 1, which says that there is a difference
        _complain(traceback.format_exc())
        return TROUBLE


def _unread() -> int:
    """Return the exit code where nobody reads on, and complain no more about what is buffered."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


def _complain(text: str) -> None:
    """Write to stderr if that can be done: the exit code tells the rest."""
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
