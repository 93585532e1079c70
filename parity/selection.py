"""Which cases a command line means."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import islice

from parity.case import Case
from parity.usage import UsageError, require_one_of, require_pattern

Source = Callable[[], Iterable[Case]]
# So many cases are run before the files of the other concepts are loaded.
_AT_ONCE = 6


class Stream:
    """Cases as their files are loaded: a few at once, then all others.

    Attributes:
      total: how many there are, None until that is known.
    """

    def __init__(self, cases: Iterable[Case]) -> None:
        """Take cases that may still have to be loaded, or a list of them."""
        self.total = len(cases) if isinstance(cases, Sized) else None
        self._cases = iter(cases)

    def __iter__(self) -> Iterator[Case]:
        """Yield the cases, once."""
        first = list(islice(self._cases, _AT_ONCE))
        yield from first
        rest = list(self._cases)
        self.total = len(first) + len(rest)
        yield from rest


def require_unique(source: Source) -> Iterator[Case]:
    """Yield all cases.

    Raises:
      ValueError: if two of them have one id.
    """
    seen = set()
    for case in source():
        if case.id in seen:
            raise ValueError(f"two cases have the id {case.id!r}")
        seen.add(case.id)
        yield case


def choose(
    cases: Iterable[Case],
    wanted: Sequence[str] = (),
    *,
    everything: bool = False,
    pattern: str | None = None,
    dtype: str | None = None,
) -> Iterable[Case]:
    """Return the cases that are meant, in their own order.

    Args:
      cases: all there are. They are gone through at once only if something has to be looked up.
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
        cases = list(cases)
        require_one_of("--dtype", dtype, sorted({case.dtype for case in cases}))
    if wanted:
        cases = list(cases)
        named = {case.id for name in wanted for case in _meant(cases, name, everything)}
        cases = [case for case in cases if case.id in named]
    return (
        case
        for case in cases
        if (wanted or everything or case.default)
        and (expression is None or expression.search(case.id))
        and dtype in (None, case.dtype)
    )


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
    if not name or not case_id.startswith(name):
        return False
    return name.endswith("/") or case_id[len(name) :].startswith(("/", "["))


def _unknown(cases: Sequence[Case], name: str) -> str:
    concepts = list(dict.fromkeys(case.concept for case in cases))
    prefixes = {case.id.partition("[")[0] for case in cases}
    near = difflib.get_close_matches(name, [*prefixes, *concepts, *(case.id for case in cases)], 1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return (
        f"CASE must be an id, or one up to a '/' or '['; {name!r} is none{hint} "
        f"Concepts: {', '.join(concepts)}; all ids: parity run --list --all"
    )
