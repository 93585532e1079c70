"""What a case of the suite is: two sides, and the exact value that both are held against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

Arrays = Mapping[str, np.ndarray]

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

ExactKind = Literal["exact", "reference in float64"]


@dataclass(frozen=True, eq=False)
class Tensor:
    """What both sides should have computed, and how far off they may be.

    Attributes:
      exact: float64, or integers or truth values.
      ceiling: the largest absolute error that dtype, operation and data allow: one for all
        elements, or one for each (where sums have very different lengths). Derived, never tried
        out.
      reason: what it is derived from, in a few words.
      same_bits: whether both sides promise the same bits.
      deviation: of the roundings on the way, where somebody derived it: an error within it tells
        nothing about a side, however near the other happens to be.
      exact_kind: "exact" is a closed form or integer arithmetic; the same computation done in
        float64 is a "reference in float64".
      uniform: why it is right that the value is the same everywhere, or along an axis, or NaN.
        Without a reason that fails: see `parity.vacuous`.
      mistakes: what known mistakes would have given instead, by name, of the shape of ``exact``;
        the one that fits is told as the cause.
    """

    exact: Shaped[np.ndarray, "*shape"]
    ceiling: float | np.ndarray
    reason: str
    same_bits: bool
    deviation: float | np.ndarray = 0.0
    exact_kind: ExactKind = "exact"
    uniform: str = ""
    mistakes: Mapping[str, Float[np.ndarray, "*shape"]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what would make a verdict meaningless.

        Raises:
          TypeError: if ``exact`` is neither float64 nor whole.
          ValueError: if a ceiling is none, or has no reason; if a mistake has another shape.
        """
        if self.exact.dtype != np.float64 and self.exact.dtype.kind not in "iub":
            raise TypeError(
                f"`exact` must hold float64, integers or bools, got {self.exact.dtype.name}. "
                "Compute it in float64: what float32 holds has been rounded."
            )
        for name in ("ceiling", "deviation"):
            _require_errors(name, getattr(self, name), self.exact.shape)
        if not self.reason.strip():
            raise ValueError("`reason` must say what `ceiling` is derived from, got nothing.")
        for name, values in self.mistakes.items():
            if values.shape != self.exact.shape:
                raise ValueError(
                    f"`mistakes[{name!r}]` has shape {values.shape}, `exact` {self.exact.shape}. "
                    "Compute it from the same inputs."
                )


def _require_errors(name: str, errors: float | np.ndarray, shape: tuple[int, ...]) -> None:
    if isinstance(errors, np.ndarray) and errors.shape != shape:
        raise ValueError(
            f"`{name}` has shape {errors.shape}, `exact` {shape}. Give one number, or one each."
        )
    if not np.all((np.asarray(errors) >= 0) & np.isfinite(errors)):
        raise ValueError(f"`{name}` must be finite and at least 0, got {errors}.")


@dataclass(frozen=True)
class Case:
    """One comparison of the suite.

    Attributes:
      id: ``<concept>/<case>[parameters]``.
      dtype: name of the dtype that it is about.
      inputs: gives what both sides are called with, by name; "cotangent" is that of the output.
      port: computes the tensors of the side under test from the inputs, by name.
      reference: computes the same with the reference.
      expected: gives the exact values.
      default: whether a plain ``parity run`` runs it.
      needs: what has to be there: "torch" (not where a recording is replayed), "models".
      drops: tensors of which the port drew what is dropped; they are zero there on both sides.
      batch: inputs with an example along the first axis, and tensors that have them too.
    """

    id: str
    dtype: str
    inputs: Callable[[], Arrays]
    port: Callable[[Arrays], Arrays]
    reference: Callable[[Arrays], Arrays]
    expected: Callable[[], Mapping[str, Tensor]]
    default: bool = True
    needs: tuple[str, ...] = ("torch",)
    drops: tuple[str, ...] = ()
    batch: tuple[str, ...] = ()

    @property
    def concept(self) -> str:
        """The part of the id before the first slash."""
        return self.id.partition("/")[0]
