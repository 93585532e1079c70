"""What a run says, one record at a time: a row a tensor, a skip a case."""

from __future__ import annotations

from dataclasses import dataclass

from parity.distance import Place

TORCH = ("the port", "torch")
RAISED = "raised"
VACUOUS = "compares nothing"

Value = float | int | bool | None


@dataclass(frozen=True)
class Label:
    """What a row is about, and what its sides are called."""

    case: str
    tensor: str
    device: str = ""
    names: tuple[str, str] = TORCH


@dataclass(frozen=True, kw_only=True)
class Row:
    """The verdict on one tensor.

    Attributes:
      case: id.
      tensor: its name.
      dtype: of the port's array.
      device: that the port ran on.
      verdict: in words.
      passed: whether the run may go on being called a success.
      side: which side is off: "", "port", "reference", "both".
      port_error: greatest absolute error against the exact value.
      reference_error: the same of the reference, None where there is only one side.
      limit: of the side shown, at ``where``.
      limit_source: what set it: "one ulp", "ratio", "deviation", "ceiling",
        "equality", "override".
      reason: what the ceiling is derived from, or which numbers override it.
      over_limit: error over limit, at most 1 where it is kept.
      ulp: the port's greatest error in units; see `parity.distance`.
      reference_ulp: the reference's.
      where: the element that is furthest over its limit; of a tensor within its limits, the one
        with the greatest error.
      port_value: of that element.
      reference_value: the same.
      exact_value: the same.
      beyond: number of elements beyond the limit.
      differing: number of elements whose bits differ between the sides.
      elements: number of all.
      cause: which known mistake fits, or the last line of the exception.
      notes: what else a reader should know.
      names: what the sides are called.
      trace: of the exception. Not part of the JSON form.
    """

    case: str
    tensor: str
    dtype: str
    device: str
    verdict: str
    passed: bool
    side: str = ""
    port_error: float | None = None
    reference_error: float | None = None
    limit: float | None = None
    limit_source: str = ""
    reason: str = ""
    over_limit: float | None = None
    ulp: float | None = None
    reference_ulp: float | None = None
    where: Place = ()
    port_value: Value = None
    reference_value: Value = None
    exact_value: Value = None
    beyond: int = 0
    differing: int = 0
    elements: int = 0
    cause: str = ""
    notes: tuple[str, ...] = ()
    names: tuple[str, str] = TORCH
    trace: str = ""


@dataclass(frozen=True)
class Skip:
    """A case that was not run.

    Attributes:
      case: id.
      missing: what it lacks: "torch", "models", "gpu".
      reason: in words.
    """

    case: str
    missing: str
    reason: str
