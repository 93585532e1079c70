"""JAX: where a port leaves its reference, forward and backward, and what explains it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from parity.cause import Cause
from parity.check_report import CheckReport
from parity.formats import widen
from parity.frameworks import jax_knobs, jax_run
from parity.frameworks.jax_held import Held
from parity.frameworks.jax_run import PortRun
from parity.frameworks.jax_trace import Value
from parity.gradient_causes import gradient_causes
from parity.locate import Status, Values, located, with_nearest
from parity.pairing import turned

Arrays = dict[str, np.ndarray]
# At how many places the reference's values are put in: each is a program of its own.
_FED = 4
# Of the error of a port that draws: how much of it the draws make at least, and how much larger
# it may be without them.
_MOVED, _LOUDER = 0.1, 2.0


def explained(
    held: Held, report: CheckReport, run: PortRun, values: Arrays, gradients: Arrays
) -> CheckReport:
    """Return a report with what explains the differences in it.

    Args:
      held: the port.
      report: with rows that do not pass.
      run: of the port.
      values: of its leaves.
      gradients: by the names and in the shapes of the reference.
    """
    if not all(row.passed for row in report.outputs):
        return _forward(held, report, run, values)
    causes = [*report.causes, *_gradient_causes(held, report, gradients)]
    off = {
        row.name: gradients[row.name]
        for row in report.gradients
        if not row.passed and not row.words
    }
    if not off:
        return replace(report, causes=tuple(causes))
    key, line, seen = _backward(held, run, values)
    if held.evidence.explain is not None and not causes:
        # What explains one gradient and spoils another, or an output, is no cause.
        named = {row.name for row in report.gradients if not row.words}
        given = {f"gradients/{n}": gradient for n, gradient in gradients.items() if n in named}
        given |= {f"outputs/{name}": array for name, array in held.turned(run.outputs).items()}
        found, _ = held.evidence.explain(given, seen, key)
        causes += [replace(cause, line=line) for cause in found]
    at = f" ({line})" if line else ""
    name = key.removeprefix(":").split("#")[0]
    words = f"{name} <- HERE: the gradient of its result differs, those after it agree{at}"
    return replace(report, causes=tuple(causes), backward=words if key else "")


def _forward(held: Held, report: CheckReport, run: PortRun, values: Arrays) -> CheckReport:
    evidence = held.evidence
    held, is_drawing, (outputs, computed) = _kept(held, run, values)
    ours, seen = held.turned(outputs), Values(value.value for value in computed)
    if evidence.explain is not None:
        given = {f"outputs/{name}": array for name, array in ours.items()}
        causes, statuses = evidence.explain(given, seen)
    else:
        causes, statuses = [], located(evidence.steps, seen, held.ends(outputs))
    statuses = tuple(with_nearest(status, seen) for status in statuses)
    lines = {s.step.key: computed[s.place].line for s in statuses if s.place >= 0}
    here = next((status for status in statuses if status.state == "here"), None)
    if here is not None and causes:
        causes[0] = replace(causes[0], line=lines.get(here.step.key, ""))
    causes = _in_training(causes) if is_drawing else causes
    shapes = _shapes(held, report, run)
    # A cast on the way is why the output has another dtype.
    is_end = here is not None and here.step.key in evidence.ends.values()
    is_cast = bool(causes) and causes[0].code == "dtype-cast" and not is_end
    causes = [*causes, *shapes] if is_cast else [*shapes, *causes]
    return replace(
        report,
        causes=(*report.causes, *causes),
        statuses=statuses,
        lines=lines,
        forced=_forced(held, values, here, computed) if here is not None else "",
        knobs={} if causes else jax_knobs.tried(held.port, values, held.inputs, held.used),
        told=(*report.told, *(() if is_drawing else _observed(run.outputs, outputs))),
    )


@np.errstate(over="ignore", invalid="ignore")
def _kept(held: Held, run: PortRun, values: Arrays) -> tuple[Held, bool, Any]:
    """Return a port that keeps what it would drop, whether it drops, and all that it computes.

    Kept and scaled all the same, values are about as far off as dropped at random. That tells
    dropout from other draws, which are of no use, or of noise: without it they are further off.
    """
    if held.evidence.drawn:
        return held, False, jax_run.values_of(held.port, values, held.inputs)
    port, draws = jax_run.undrawn(held.port, values, held.inputs)
    if draws:
        found = jax_run.values_of(port, values, held.inputs)
        ours, still = held.turned(run.outputs), held.turned(found[0])
        for name, kept in still.items():
            theirs = held.evidence.outputs[name]
            off = _size(ours[name] - theirs)
            if _size(kept - ours[name]) > _MOVED * off and _size(kept - theirs) < _LOUDER * off:
                return replace(held, port=port), True, found
    return held, False, jax_run.values_of(held.port, values, held.inputs)


def _size(apart: np.ndarray) -> float:
    return float(np.sqrt(np.mean(apart**2))) if apart.size else 0.0


def _in_training(causes: list[Cause]) -> list[Cause]:
    """Name the mode of a port that draws where torch has no dropout, or has it off.

    What it drops is kept while the causes are looked for, and still scaled.
    """
    cause, fix = (
        "dropout is on in the port, and off in torch",
        "deterministic=True, or model.eval()",
    )
    found = [
        replace(c, code="train-mode", cause=cause, fix=fix) if c.code == "dropout-scale" else c
        for c in causes
    ]
    if any(c.code == "train-mode" for c in found):
        return found
    return [Cause("train-mode", "", cause, fix), *found]


def _observed(whole: Mapping[str, np.ndarray], stepwise: Mapping[str, np.ndarray]) -> list[str]:
    """Say by how much it changes a port to be looked at."""
    apart = [np.abs(widen(whole[n]) - widen(x)) for n, x in stepwise.items()]
    worst = max((float(a[np.isfinite(a)].max(initial=0.0)) for a in apart), default=0.0)
    return [f"seen step by step, the output moves by {worst:.1e}"] if worst else []


def _forced(held: Held, values: Arrays, here: Status, computed: tuple[Value, ...]) -> str:
    """Feed the reference's values where the port's differ, and say what differs by itself."""
    keys = [step.key for step in held.evidence.steps]
    forced: dict[int, np.ndarray] = {}
    names: list[str] = []
    at: Status | None = here
    while at is not None and at.place >= 0 and len(forced) < _FED:
        forced[at.place] = _laid_out(at.step.value, computed[at.place].value)
        outputs, after = jax_run.values_of(held.port, values, held.inputs, forced)
        seen = Values(found.value for found in after)
        statuses = located(held.evidence.steps, seen, held.ends(outputs))
        lost = (with_nearest(status, seen) for status in statuses if status.state == "here")
        rest = next(lost, None)
        if rest is not None and keys.index(rest.step.key) <= keys.index(at.step.key):
            return ""  # what is nearest there is something else
        names += [rest.step.module or rest.step.name] if rest is not None else []
        at = rest
    if not forced:
        return ""
    fed = "with the reference's value put in there"
    if not names:
        return f"{fed}, all that follows agrees"
    if at is not None:
        return f"{fed}, {names[0]} is the next to differ"
    verb = "differ" if len(set(names)) > 1 else "differs"
    return f"{fed}, {', '.join(dict.fromkeys(names))} {verb} as well; all else agrees"


def _laid_out(theirs: np.ndarray, like: np.ndarray) -> np.ndarray:
    axes = turned(theirs, widen(like)) if theirs.shape != like.shape else None
    most = float(jnp.finfo(like.dtype).max)
    value = np.where(np.isfinite(theirs), np.clip(theirs, -most, most), theirs)
    return value.transpose(axes) if axes is not None else value


def _shapes(held: Held, report: CheckReport, run: PortRun) -> list[Cause]:
    """Name a difference of dtype or layout, which no mistake in a value explains."""
    causes = []
    for pair, row in zip(held.pairs(run.outputs)[0], report.outputs, strict=True):
        ours, theirs = run.outputs[pair.port], held.evidence.outputs[pair.reference]
        if row.words.startswith("dtype"):
            cause = f"the port returns {ours.dtype.name}"
            wanted = held.evidence.dtypes[pair.reference]
            fix = f"compute in {wanted}: dtype=jnp.{wanted} in the modules"
            causes.append(Cause("output-dtype", row.name, cause, fix))
        elif pair.axes is None and (axes := turned(ours, theirs)) is not None:
            cause = f"the port returns its axes in another order: {list(ours.shape)}"
            causes.append(Cause("layout", row.name, cause, f"jnp.transpose(y, {axes})"))
    return causes


def _gradient_causes(held: Held, report: CheckReport, ours: Arrays) -> list[Cause]:
    off = {row.name: row.limit for row in report.gradients if not row.passed and not row.words}
    causes = gradient_causes(ours, held.evidence.gradients, off)
    for row in report.gradients:
        if row.words.startswith("tied"):
            fix = "share one parameter: embed.attend(x), or x @ embedding.T"
            causes.append(Cause("tied-copied", row.name, row.words, fix))
    return causes


def _backward(held: Held, run: PortRun, values: Arrays) -> tuple[str, str, Values]:
    """Return the step at which, going backward, a gradient is the first to differ.

    Returns:
      Its key and its line of the port, "" if there is none; and all that the port computes.
    """
    evidence = held.evidence
    outputs, computed = jax_run.values_of(held.port, values, held.inputs)
    seen = Values(value.value for value in computed)
    if not evidence.step_gradients:
        return "", "", seen
    statuses = located(evidence.steps, seen, held.ends(outputs))
    places = {s.step.key: s.place for s in statuses if s.state == "ok" and s.place >= 0}
    cotangents = held.cotangents(run.outputs)
    found = jax_run.gradients_at(
        held.port, values, held.inputs, cotangents, sorted(set(places.values()))
    )
    for key in reversed(places):
        exact, limit = evidence.step_gradients.get(key, (None, 0.0))
        ours = found[places[key]]
        if exact is None or ours.size != exact.size:
            continue
        if Values([ours], masked=False).holds(exact, limit)[0] > limit:
            return key, computed[places[key]].line, seen
    return "", "", seen
