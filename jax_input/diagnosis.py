"""Why an encoder does not train: symptoms in its gradients, updates and inner values, and causes.

The table that is published (update ratio, NaN, outputs of 0), and what practice adds to it. The
thresholds stand in ``symptoms`` and ``tap_symptoms``, each with its reason.
"""

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool

from jax_input.leaves import Leaf, Tree, norm, read_array, read_leaves
from jax_input.masks import Mask
from jax_input.symptoms import Finding, parameter_findings
from jax_input.tap_symptoms import SATURATED_SHARE, saturation, tap_findings
from jax_input.taps import Taps, first_not_finite, read_mask, read_taps

WIDTH = 100


@dataclass(frozen=True)
class Norms:
    """The norms of one layer, or of one parameter elsewhere: roots of the sums of squares.

    Attributes:
      place: such as "layers[0]", or the path of a parameter.
      parameter: of all its parameters.
      gradient: of all its gradients.
      update: of all its updates, where there are any.
    """

    place: str
    parameter: float
    gradient: float
    update: float | None


@dataclass(frozen=True)
class GradientReport:
    """What ``gradient_report`` found; ``print`` shows it.

    Attributes:
      findings: what is wrong, that of the published table first; empty where nothing is.
      norms: by layer.
    """

    findings: tuple[Finding, ...]
    norms: tuple[Norms, ...]

    def __str__(self) -> str:
        """Return the findings, and the norms by layer, in lines of at most 100 characters."""
        count = len(self.findings)
        lines = ["nothing found" if not count else f"{count} finding{'s' * (count > 1)}"]
        for finding in self.findings:
            lines += ["", *_row(f"[{finding.code}]", finding.place)]
            for name in ("symptom", "cause", "remedy"):
                lines += _row(name, getattr(finding, name))
        width = max([5, *(len(norms.place) for norms in self.norms)])
        head = "".join(f"{name:>13}" for name in ("|parameter|", "|gradient|", "|update|", "ratio"))
        lines += ["", f"{'layer':<{width}}{head}"]
        for norms in self.norms:
            known = (norms.parameter, norms.gradient, norms.update, _ratio(norms))
            cells = "".join(f"{'-' if x is None else format(x, '.2e'):>13}" for x in known)
            lines.append(f"{norms.place:<{width}}{cells}")
        return "\n".join(lines)


def gradient_report(
    params: Tree,
    gradients: Tree,
    updates: Tree | None = None,
    taps: Mapping[str, ArrayLike] | None = None,
    *,
    mask: Mask | None = None,
    frozen: Tree | Callable[[str], bool] | None = None,
    loss: ArrayLike | None = None,
) -> GradientReport:
    """Say what keeps an encoder from training, and what to do about it.

    It reads values, so it runs outside of jit, on what came out of it. The layers of an encoder are
    found wherever they are in ``params``; of other parameters it tells norms, gradients of exactly
    0, NaN, and those that are frozen and move.

    Args:
      params: of ``encoder``, or of a model that holds one; or any tree of floats.
      gradients: of the loss, with the paths of ``params``.
      updates: what the optimizer adds to ``params``, with the same paths.
      taps: of ``encoder(..., return_taps=True)``, better with ``return_weights=True`` too.
      mask: the mask of that call, True = may attend; read with "attention_weights" alone.
      frozen: what is not to move: a tree of booleans with the paths of ``params``, or a function of
        a path such as "layers[0].attention.query.kernel". Its gradients are not judged.
      loss: the value of the loss.

    Returns:
      The findings and the norms by layer, all in float64.

    Raises:
      TypeError: if something is traced, or of the wrong kind.
      ValueError: if paths or shapes don't fit, or ``frozen`` comes without ``updates``.

    Source: the published table has three rows: update ratio below 1e-6, NaN, and outputs of 0.
    """
    if frozen is not None and updates is None:
        raise ValueError("`frozen` is compared with `updates`, which are absent. Pass both.")
    leaves = read_leaves(params, gradients, updates, frozen)
    inside = {} if taps is None else read_taps(taps, leaves)
    allowed = None if mask is None else read_mask(mask, inside)
    findings = (
        *_not_finite(leaves, inside, allowed, _require_loss(loss)),
        *parameter_findings(leaves),
        *tap_findings(leaves, inside, allowed),
    )
    table = ("not_finite", "update_ratio", "zero_output", "residual")
    rank = {code: place for place, code in enumerate(table)}
    ordered = sorted(findings, key=lambda finding: rank.get(finding.code, len(table)))
    return GradientReport(tuple(ordered), _norms(leaves, has_updates=updates is not None))


def norms_of_gradients(gradients: Tree) -> tuple[Norms, ...]:
    """Return the norms by layer of gradients alone; those of the parameters are NaN.

    Raises:
      TypeError: if something is traced, or no floats.
    """
    found = _norms(read_leaves(gradients, gradients, None, None), has_updates=False)
    return tuple(Norms(norms.place, math.nan, norms.gradient, None) for norms in found)


def _row(name: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=f"{name:<20}", subsequent_indent=" " * 20)


def _ratio(norms: Norms) -> float | None:
    return None if norms.update is None or not norms.parameter else norms.update / norms.parameter


def _norms(leaves: list[Leaf], *, has_updates: bool) -> tuple[Norms, ...]:
    groups: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        groups.setdefault(leaf.layer or leaf.name, []).append(leaf)
    return tuple(
        Norms(
            place,
            norm(leaf.parameter for leaf in group),
            norm(leaf.gradient for leaf in group),
            norm(leaf.update for leaf in group if leaf.update is not None) if has_updates else None,
        )
        for place, group in groups.items()
    )


def _not_finite(
    leaves: list[Leaf],
    taps: Taps,
    mask: Bool[np.ndarray, "batch heads query key"] | None,
    loss: float | None,
) -> Iterator[Finding]:
    lost = {
        name: [x.place for x in leaves if not np.isfinite(getattr(x, name)).all()]
        for name in ("parameter", "gradient")
    }
    first = first_not_finite(leaves, taps)
    is_loss = loss is not None and not math.isfinite(loss)
    if not (is_loss or first or any(lost.values())):
        return
    seen = [f"the loss is {loss}"] if is_loss else []
    seen += [
        f"NaN or inf in {len(places)} of {len(leaves)} {name}s"
        for name, places in lost.items()
        if places
    ]
    seen += [f"inside first in {first[0]}"] if first else []
    known = [*lost["parameter"], *(first or ())[:1], *lost["gradient"], "loss"]
    cause = "Published: attention is not scaled by 1 / sqrt(head_dim), so that scores overflow."
    remedy = "Divide the scores by sqrt(head_dim), and take softmax in float32."
    if lost["parameter"]:
        cause, remedy = "An earlier step put it there.", "Go back to the last step that was finite."
    elif first and first[1] in ("attention", "attention_weights"):
        cause = (
            f"Attention is not scaled by 1 / sqrt(head_dim): scores overflow.{_before(taps, mask)}"
        )
    elif first:
        cause += f" Here {first[1]} is the first to overflow.{_before(taps, mask)}"
        remedy += " Look at the weights and at the input of this place."
    elif taps:
        cause += " Here all inside is finite: look at the loss and at the backward pass."
    else:
        remedy += " Pass `taps` to see where it starts."
    yield Finding("not_finite", known[0], "; ".join(seen), cause, remedy, math.nan)


def _before(taps: Taps, mask: Bool[np.ndarray, "batch heads query key"] | None) -> str:
    """Return a sentence on the first layer whose scores are saturated."""
    for layer, weights in enumerate(taps.get("attention_weights", ())):
        if (share := saturation(weights, mask)) >= SATURATED_SHARE:
            return f" {share:.0%} of the finite queries of layers[{layer}] are saturated."
    return ""


def _require_loss(loss: Any) -> float | None:
    if loss is None:
        return None
    value = read_array("loss", loss)
    if value.size != 1:
        raise ValueError(
            f"`loss` must be one number, got shape {list(value.shape)}. Take its mean."
        )
    return float(value.reshape(()))
