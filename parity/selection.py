"""Which cases a command line means."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence

from parity.case import Case
from parity.needs import missing
from parity.usage import UsageError, require_one_of, require_pattern

Source = Callable[[], Iterable[Case]]


def load(source: Source) -> tuple[list[Case], str]:
    """Return all cases, and why there are none where PyTorch is missing.

    Raises:
      ValueError: if two cases have one id.
    """
    try:
        cases = list(source())
    except ImportError:
        if not (reason := missing("torch")):
            raise
        return [], reason
    ids = [case.id for case in cases]
    if twice := {name for name in ids if ids.count(name) > 1}:
        raise ValueError(f"two cases have the id {min(twice)!r}")
    return cases, ""


def choose(
    cases: Sequence[Case],
    wanted: Sequence[str] = (),
    *,
    everything: bool = False,
    pattern: str | None = None,
    dtype: str | None = None,
) -> list[Case]:
    """Return the cases that are meant, in their own order.

    Args:
      cases: all there are.
      wanted: ids, or prefixes of ids that end at a "/" or a "[". An id always gets its case; a
        prefix those of its cases that run by default, or all if none of them does.
      everything: whether those that do not run by default are meant too.
      pattern: a regular expression to be found in the id.
      dtype: the case's.

    Raises:
      UsageError: if something wanted matches no case, the pattern is none, or no case has the
        dtype.
    """
    expression = require_pattern(pattern)
    if dtype is not None:
        require_one_of("--dtype", dtype, sorted({case.dtype for case in cases}))
    named = {case.id for name in wanted for case in _meant(cases, name, everything)}
    return [
        case
        for case in cases
        if (case.id in named if wanted else everything or case.default)
        and (expression is None or expression.search(case.id))
        and dtype in (None, case.dtype)
    ]


def _meant(cases: Sequence[Case], name: str, everything: bool) -> list[Case]:
    if exactly := [case for case in cases if case.id == name]:
        return exactly
    under = [case for case in cases if is_prefix(name, case.id)]
    if not under:
        raise UsageError(_unknown(cases, name))
    usual = [case for case in under if case.default]
    return under if everything or not usual else usual


def is_prefix(name: str, case_id: str) -> bool:
    """Say whether a name is what comes before a "/" or "[" of an id, the slash included or not."""
    rest = case_id.removeprefix(name)
    return bool(name) and rest != case_id and (rest[0] in "/[" or name.endswith("/"))


def _unknown(cases: Sequence[Case], name: str) -> str:
    concepts = list(dict.fromkeys(case.concept for case in cases))
    prefixes = {case.id.partition("[")[0] for case in cases}
    near = difflib.get_close_matches(name, [*prefixes, *concepts, *(case.id for case in cases)], 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return (
        f"CASE must be an id, or one up to a '/' or '['; {name!r} is none{hint} "
        f"Concepts: {', '.join(concepts)}; all ids: parity run --list --all"
    )
