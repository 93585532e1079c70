"""What `parity.check` gives back: a verdict, its evidence, and what to write instead."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from parity.cause import Cause, in_any_layer
from parity.locate import Status
from parity.placement import Plan
from parity.report import check_html, check_text

SCHEMA = 1
# What is said by the way: a norm that is left out leaves its weights without a place.
_COVERED = {
    "norm-missing": ("weight-unplaced", "bias-missing"),
    "layer-missing": ("weight-unplaced", "bias-missing"),
    "layers-swapped": ("weight-unplaced", "bias-missing"),
    "scale-missing": ("weight-unplaced",),
}


@dataclass(frozen=True)
class Compared:
    """One tensor of the port against the reference's float64.

    Attributes:
      name: "output", or the path of one of several; a weight, of its gradient.
      error: of the port, absolutely.
      limit: how far off it may be.
      reference_error: what the reference is off by itself.
      words: what is wrong where no error can say it, a shape for example.
    """

    name: str
    error: float
    limit: float
    reference_error: float
    words: str = ""

    @property
    def used(self) -> float:
        """The error over its limit: at most 1 where it is kept."""
        if self.words:
            return float("inf")
        if self.error == 0:
            return 0.0
        return self.error / self.limit if self.limit else float("inf")

    @property
    def passed(self) -> bool:
        """Whether the port keeps the limit."""
        return self.used <= 1


@dataclass(frozen=True, eq=False, repr=False)
class CheckReport:
    """The outcome of a check.

    Attributes:
      outputs: each output.
      gradients: of each weight and input; () if they were not compared.
      updated: weights and statistics after training steps.
      plan: where each weight went; None if none did.
      wrong_weights: those that the port was given and that are not the reference's.
      causes: mistakes that explain the difference, in the order of computation.
      statuses: what became of each step of the reference in the port.
      forced: what is still off once the reference's value is put in at HERE; "" if not tried.
      backward: where gradients leave the reference, "" if nowhere.
      knobs: errors over their limit with one switch changed, by its name; NaN if it can't be run.
      hidden: weights that these inputs do not reach and others would: a check of them is blind.
      unused: weights that no input reaches.
      allowed: those of the hidden ones that the caller allowed.
      lines: of the port's code, by step.
      told: what was set for the caller, and left out.
      overrides: what the caller changed in the rule.
      sha256: of the reference: weights, inputs, outputs.
      environment: versions and flags.
    """

    outputs: tuple[Compared, ...]
    gradients: tuple[Compared, ...] = ()
    updated: tuple[Compared, ...] = ()
    plan: Plan | None = None
    wrong_weights: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
    statuses: tuple[Status, ...] = ()
    forced: str = ""
    backward: str = ""
    knobs: Mapping[str, float] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    lines: Mapping[str, str] = field(default_factory=dict)
    told: tuple[str, ...] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    sha256: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def compared(self) -> tuple[Compared, ...]:
        """All that was compared."""
        return (*self.outputs, *self.gradients, *self.updated)

    @property
    def blind(self) -> tuple[str, ...]:
        """The weights that this check can't see, and that nobody allowed."""
        return tuple(name for name in self.hidden if name not in self.allowed)

    @property
    def agrees(self) -> bool:
        """Whether something was compared, and all of it agrees."""
        return bool(self.outputs) and all(row.passed for row in self.compared)

    @property
    def passed(self) -> bool:
        """Whether all agrees, the weights too, and nothing was out of sight."""
        return self.agrees and not self.blind and not self.wrong_weights

    def with_wrong_weights(self, causes: list[Cause]) -> CheckReport:
        """Return the report of a port run with the right weights, with what its own are."""
        words = tuple(f"{cause.tensor}: {cause.cause}" for cause in causes)
        error = max((row.error for row in self.outputs), default=0.0)
        told = [replace(cause, error=error) if self.agrees else cause for cause in causes]
        # A bias without a place is found again where it should be added: once is enough. So is a
        # weight without a place, where all that it belongs to is left out.
        told = [c for c in told if not any(_covers(other, c) for other in self.causes)]
        named = {(cause.code, _module(cause)) for cause in told}
        rest = [cause for cause in self.causes if (cause.code, cause.tensor) not in named]
        return replace(self, wrong_weights=words, causes=(*told, *rest))

    @property
    def here(self) -> Status | None:
        """The first step of the reference that the port does not compute."""
        return next((status for status in self.statuses if status.state == "here"), None)

    def __bool__(self) -> bool:
        """Refuse to be a truth value, as any report does.

        Raises:
          TypeError: always.
        """
        raise TypeError("A report has no truth value. Ask `report.passed`.")

    def __str__(self) -> str:
        """Return the report as lines of text."""
        return check_text.text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the report for a notebook."""
        return check_html.html(self)

    def json(self) -> str:
        """Return the verdict as JSON text, whose keys are explained in `docs/check.md`."""
        here = self.here
        return json.dumps(
            {
                "schema": SCHEMA,
                "verdict": "pass" if self.passed else "fail",
                "reference": self.sha256,
                "here": here.step.key if here else None,
                "forced": self.forced,
                "backward": self.backward,
                "causes": [asdict(cause) for cause in self.causes],
                "outputs": [_row(row) for row in self.outputs],
                "gradients": [_row(row) for row in self.gradients],
                "updated": [_row(row) for row in self.updated],
                "wrong_weights": list(self.wrong_weights),
                "blind": list(self.blind),
                "allowed": list(self.allowed),
                "unused": list(self.unused),
                "knobs": {name: _finite(error) for name, error in self.knobs.items()},
                "overrides": dict(self.overrides),
                "told": list(self.told),
                "environment": dict(self.environment),
            },
            indent=2,
            allow_nan=False,
            default=str,
        )


def _row(row: Compared) -> dict[str, Any]:
    numbers = {"error": row.error, "limit": row.limit, "reference_error": row.reference_error}
    told = {name: _finite(value) for name, value in numbers.items()}
    return {"name": row.name, "passed": row.passed, **told, "words": row.words}


def _finite(value: float) -> float | str:
    """Return a number that JSON has, and the words for one that it has not."""
    return value if abs(value) < float("inf") else str(value)


def _scope(module: str, cause: Cause) -> str:
    """Return what a cause and another tensor have in common where that is in any layer."""
    return in_any_layer(module) if cause.everywhere else module


def _covers(cause: Cause, other: Cause) -> bool:
    """Say whether one cause says what another does: it is of the same module, or of all such."""
    is_same = _scope(cause.tensor, cause) == _scope(_module(other), cause)
    return is_same and other.code in _COVERED.get(cause.code, ())


def _module(cause: Cause) -> str:
    return cause.tensor.rpartition(".")[0]
