"""PyTorch: which mistakes are tried at which calls, the likely ones first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from parity.cause import in_any_layer
from parity.frameworks.torch_calls import Call, tensors
from parity.frameworks.torch_search import Search
from parity.frameworks.torch_side import to_float64
from parity.frameworks.torch_trace import Run
from parity.hidden_scores import level
from parity.locate import Status
from parity.mistakes.catalogue import UNKNOWN, guesses
from parity.mistakes.guess import Guess
from parity.mistakes.modules import module_mistakes
from parity.mistakes.scopes import TOGETHER

# Steps around HERE: those that it comes from, and those that follow.
NEAR = 12
_AROUND = 48


@dataclass(frozen=True, eq=False)
class Try:
    """A guess at one call, at every call of some functions, or at a module.

    Attributes:
      call: where it was found.
      guess: what it is.
      everywhere: whether other calls are meant as well.
      names: of the functions that are meant.
      layers: what all calls have in common that are meant, one in each layer; "" for others.
      module: path of the first module, None if the guess is about calls.
    """

    call: Call
    guess: Guess
    everywhere: bool
    names: tuple[str, ...] = ()
    layers: str = ""
    module: str | None = None

    @property
    def change(self) -> Callable[[Any], None] | None:
        """What it does to a copy of the reference before it runs."""
        return self.guess.change

    def is_about(self, call: Call) -> bool:
        """Say whether a call is one of those that are meant."""
        is_meant = call.key == self.call.key or (
            in_any_layer(call.key) == self.layers if self.layers else self.everywhere
        )
        return is_meant and call.name in (self.names or (self.call.name,))

    def __call__(self, call: Call) -> Any:
        """Answer a call if the guess is about it."""
        if self.change or not self.is_about(call):
            return NotImplemented
        same = (guess for guess in guesses(call) if guess.name == self.guess.name)
        found = next(same, None)
        if found is None and call.key == self.call.key:
            found = self.guess  # fitted to this very call
        return found.answer() if found is not None else NotImplemented


def tries(search: Search, run: Run, statuses: tuple[Status, ...]) -> Iterator[tuple[int, Try]]:
    """Yield guesses with their rank: 0 where the port holds the very tensor that they give."""
    calls = {status.step.key: run.results[status.step.key].call for status in statuses}
    counts: dict[str, set[str]] = {}
    for call in calls.values():
        counts.setdefault(call.name, set()).add(call.key)
    seen: set[tuple[str, str]] = set()
    places = sites(statuses)
    for path, guess in module_mistakes(search.reference):
        yield 1, Try(calls[places[0]], guess, True, module=path)
    for place, key in enumerate(places):
        call = calls[key]
        for guess in guesses(call):
            if guess.needs_held and place >= NEAR:
                continue
            rank = _rank(search, run, call, guess)
            if rank is None or (guess.needs_held and rank > 0):
                continue
            if (call.name, guess.name) not in seen:
                seen.add((call.name, guess.name))
                for names in TOGETHER.get(guess.code, ()):
                    if call.name in names and (str(names), guess.name) not in seen:
                        seen.add((str(names), guess.name))
                        yield rank, Try(call, guess, True, names)
                yield rank, Try(call, guess, len(counts[call.name]) > 1)
            if len(counts[call.name]) > 1 and place < NEAR:
                yield rank, Try(call, guess, False)
                alike = [c for c in calls.values() if in_any_layer(c.key) == in_any_layer(call.key)]
                if 1 < len(alike) < len(counts[call.name]):
                    yield rank, Try(call, guess, True, layers=in_any_layer(call.key))


def sites(statuses: tuple[Status, ...]) -> list[str]:
    """Return the steps that may be wrong: HERE, what it comes from, what follows and is lost."""
    by_key = {status.step.key: status for status in statuses}
    here = next(status.step.key for status in statuses if status.state == "here")
    queue, before = [here], list[str]()
    while queue and len(before) < NEAR:
        key = queue.pop(0)
        if key in before or key not in by_key:
            continue
        before.append(key)
        queue.extend(by_key[key].step.sources)
    after: list[str] = []
    for status in statuses:
        if status.state in ("off", "elsewhere"):
            after += [*_constants(status.step.sources, by_key), status.step.key]
    return before + [k for k in dict.fromkeys(after) if k not in before][:_AROUND]


def _constants(keys: Sequence[str], by_key: Mapping[str, Status]) -> Iterator[str]:
    """Yield what no input goes into, so that it can't be HERE: positions, a first state."""
    for key in keys:
        if key in by_key and by_key[key].state == "constant":
            yield from _constants(by_key[key].step.sources, by_key)
            yield key


def _rank(search: Search, run: Run, call: Call, guess: Guess) -> int | None:
    """Say how likely a guess is: 0 if the port holds its answer, None if it changes nothing."""
    try:
        with torch.no_grad():
            answers = [
                to_float64(value) for value in tensors(guess.answer()) if value.is_floating_point()
            ]
    except UNKNOWN:
        return None
    results = [r for r in run.results.values() if r.call is call]
    if len(answers) != len(results):
        return 2
    if all(_same(a, to_float64(r.value)) for a, r in zip(answers, results, strict=True)):
        return None
    given = [
        to_float64(value)
        for value in tensors((call.places, call.named))
        if value.is_floating_point()
    ]
    if any(_same(a, value) for a in answers for value in given):
        return 1
    is_held = all(
        np.isfinite(level(a)).all()
        and search.values.holds(a, _limit(search, a, r.key, r.value))[0]
        <= _limit(search, a, r.key, r.value)
        for a, r in zip(answers, results, strict=True)
    )
    return 0 if is_held else 2


def _limit(search: Search, answer: np.ndarray, key: str, value: torch.Tensor) -> float:
    """Return the limit of a step, scaled by how much larger a mistake makes it."""
    own = float(value.detach().double().square().mean()) ** 0.5
    its = float(np.sqrt(np.mean(answer**2))) if answer.size else 0.0
    return search.limits.get(key, 0.0) * max(1.0, its / own if own else 1.0)


def _same(ours: np.ndarray, theirs: np.ndarray) -> bool:
    return ours.shape == theirs.shape and np.array_equal(ours, theirs, equal_nan=True)
