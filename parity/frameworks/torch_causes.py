"""PyTorch: which mistake explains a port: the reference is run with each, until it is the port.

Every known mistake at the step where the port leaves the reference, and at the steps around it,
is put into the reference. The one with which it computes what the port returns is the cause.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

import numpy as np
import torch

from parity.cause import Cause
from parity.evidence import Explained
from parity.frameworks.torch_calls import Rewrite
from parity.frameworks.torch_search import ABOVE, Search
from parity.frameworks.torch_side import to_float64
from parity.frameworks.torch_trace import Run
from parity.frameworks.torch_tries import NEAR, Try, sites, tries
from parity.hidden_scores import level
from parity.locate import Status
from parity.mistakes.catalogue import UNKNOWN
from parity.mistakes.fits import fits

# How much of the gap a cause must close; of lost digits, of the root mean square.
_CLOSED, _SPREAD = 0.25, 0.3
_MISTAKES = 4
# Which part of what is lost has to be found again, where a cause does not explain all.
_RECOVERED = 0.3
_RUNS = 400
# A large reference is not run as often: a person waits for the answer.
_SECONDS = 30.0
# How many of a port's values are fitted to a step, how many fits are tried, and what of the error
# one may leave over: the factor that is read off has been rounded.
_HELD, _FITS, _LEFT = 128, 8, 1e-3


Statuses = tuple[Status, ...]


def causes(search: Search, exact: Run) -> Explained:
    """Name the mistakes that make a reference compute what its port does.

    Args:
      search: the port.
      exact: the reference in float64.

    Returns:
      The mistakes in the order of computation, as far as they are known; and what became of each
      step of the reference.
    """
    search = replace(search, exact=exact)
    run, first = exact, search.located(exact, 1)
    statuses = first
    found: list[tuple[Try, bool]] = []
    rewrites: list[Rewrite] = []
    deadline = time.monotonic() + _SECONDS
    for _ in range(_MISTAKES):
        before = search.error(run)
        if before <= 1 or not any(status.state == "here" for status in statuses):
            break
        best = _best(search, run, statuses, rewrites, deadline)
        best = best or _fitted(search, run, statuses, rewrites, deadline)
        if best is None:
            break
        attempt, run = best
        rewrites.append(attempt)
        before_it, statuses = statuses, search.located(run)
        found.append((attempt, _is_sure(attempt, run, before_it, statuses)))
    left = max(
        (error * search.limits[key] for key, error in search.errors(run).items()),
        default=0.0,
    )
    is_whole = search.error(run) <= ABOVE
    if is_whole:
        return [_named(attempt, left) for attempt, _ in found], first
    sure = itertools.takewhile(lambda entry: entry[1], found)
    parts = [_named(attempt) for attempt, _ in sure]
    return [replace(c, cause=f"{c.cause}, which explains a part of it") for c in parts], first


def causes_of_gradients(search: Search, exact: Run, key: str) -> Explained:
    """Name the mistake with which a reference has the gradients of its port.

    Args:
      search: the port; all that it computes forward agrees.
      exact: the reference in float64, with its gradients.
      key: of the step, going backward, whose gradient is the first to differ; "" if none does by
        itself: then it is the step that is nearest to its limit.
    """
    statuses = search.located(exact)
    if not statuses:  # what computes nothing has nothing to be mistaken in
        return [], statuses
    if not key:
        key = max((s for s in statuses if s.state == "ok"), key=_used, default=statuses[0]).step.key
    statuses = tuple(
        replace(status, state="here") if status.step.key == key else status for status in statuses
    )
    deadline = time.monotonic() + _SECONDS
    search = replace(search, exact=exact)
    found = _best(search, exact, statuses, [], deadline, whole=True)
    if found is None or search.error(found[1]) > ABOVE:
        return [], statuses
    return [_named(found[0])], statuses


def _used(status: Status) -> float:
    return status.error / status.step.limit if status.step.limit else 0.0


def _named(attempt: Try, error: float | None = None) -> Cause:
    guess, call = attempt.guess, attempt.call
    tensor = (
        guess.tensor or attempt.module or call.module or call.key.removeprefix(":").split("#")[0]
    )
    return Cause(
        guess.code, tensor, guess.cause, guess.fix, error=error, everywhere=attempt.everywhere
    )


def _best(
    search: Search,
    run: Run,
    statuses: tuple[Status, ...],
    rewrites: list[Rewrite],
    deadline: float,
    *,
    whole: bool = False,
) -> tuple[Try, Run] | None:
    """Return the mistake that explains the port, or else the one that gets furthest.

    With ``whole``, one that explains a part is none, and is not looked for.
    """
    before, spread = search.error(run), search.spread(run)
    half = (time.monotonic() + deadline) / 2
    found = itertools.takewhile(lambda _: time.monotonic() < half, tries(search, run, statuses))
    ranked = sorted(found, key=lambda pair: pair[0])
    explained: list[tuple[float, Try, Run]] = []
    further: list[tuple[int, Try, Run]] = []
    for rank, attempt in itertools.islice(ranked, _RUNS):
        if (explained and rank > 1) or time.monotonic() > deadline:
            break
        other = _tried(search, attempt, rewrites)
        if other is None:
            continue
        error = search.error(other)
        is_near = attempt.guess.rounds and search.spread(other) <= _SPREAD * spread < np.inf
        if (error <= ABOVE and error <= _CLOSED * before) or is_near:
            explained.append((error, attempt, other))
        elif not (explained or whole) and (rank == 0 or (rank == 1 and error < before)):
            left = _lost(search.located(other), set())
            if left < _lost(statuses, set()):
                further.append((left, attempt, other))
    if explained:
        least = min(error for error, *_ in explained)
        alike = [(a, r) for error, a, r in explained if error <= 1.5 * least]
        attempt, other = min(alike, key=lambda entry: entry[0].guess.generality)
        return _alone(search, attempt, rewrites, 1.5 * least) or (attempt, other)
    if further:
        _, attempt, other = min(further, key=lambda entry: entry[0])
        return attempt, other
    return None


def _alone(
    search: Search, attempt: Try, rewrites: list[Rewrite], most: float
) -> tuple[Try, Run] | None:
    """Return a mistake made at one call, where at the others it changes nothing that is seen."""
    if not attempt.everywhere or attempt.change is not None:
        return None
    alone = replace(attempt, everywhere=False, names=(), layers="")
    other = _tried(search, alone, rewrites)
    return (alone, other) if other is not None and search.error(other) <= most else None


def _fitted(
    search: Search, run: Run, statuses: Statuses, rewrites: list[Rewrite], deadline: float
) -> tuple[Try, Run] | None:
    """Return what the port has made of a step, where no known mistake explains it."""
    before, spread = search.error(run), search.spread(run)

    def is_time(_: object) -> bool:
        return time.monotonic() < deadline

    for key in itertools.takewhile(is_time, sites(statuses)[:NEAR]):
        result = run.results[key]
        value, limit = result.value, search.limits.get(key, 0.0)

        def holds(other: torch.Tensor, limit: float = limit) -> bool:
            array = to_float64(other)
            return (
                bool(np.isfinite(level(array)).all())
                and search.values.holds(array, limit)[0] <= limit
            )

        held = search.values.of_size(value.numel())[:_HELD]
        found = itertools.islice(fits(result.call, value, held, holds), _FITS)
        for guess in itertools.takewhile(is_time, found):
            attempt = Try(result.call, guess, False)
            other = _tried(search, attempt, rewrites)
            if other is None:
                continue
            error = search.error(other)
            is_near = search.spread(other) <= _LEFT * spread
            if error <= _CLOSED * before and (error <= ABOVE or is_near):
                return attempt, other
    return None


def _is_sure(attempt: Try, run: Run, before: Statuses, after: Statuses) -> bool:
    """Say whether a mistake that does not explain all is likely one all the same.

    That the port holds what it gives says little: it holds many values on its way. Much of what
    follows has to be found as well; but for digits, which the last bit of what was there decides.
    """
    own = {key for key, result in run.results.items() if attempt.is_about(result.call)}
    if attempt.change is not None:  # it is about a module, and no call of its own
        own = set()
    lost = _lost(before, own)
    return attempt.guess.rounds or lost - _lost(after, own) >= _RECOVERED * max(lost, 1)


def _lost(statuses: tuple[Status, ...], apart: set[str]) -> int:
    return sum(s.state in ("here", "off") for s in statuses if s.step.key not in apart)


def _tried(search: Search, attempt: Try, rewrites: list[Rewrite]) -> Run | None:
    """Run the reference with one mistake more; None where that can't be computed."""
    try:
        return search.run([*rewrites, attempt])
    except UNKNOWN:
        return None
