"""JAX: a port held against the evidence of its reference."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from parity.check_report import CheckReport, Compared
from parity.draws import with_draws
from parity.evidence import Evidence
from parity.frameworks import jax_leaves, jax_run
from parity.frameworks.jax_explain import explained
from parity.frameworks.jax_held import Held
from parity.frameworks.jax_port import Port
from parity.frameworks.jax_ports import port_of
from parity.frameworks.jax_run import Inputs, PortRun
from parity.frameworks.jax_trace import undrawn
from parity.frameworks.jax_updated import updated
from parity.one_sided_weights import placed
from parity.pairing import layouts_of, turned
from parity.placement import MappingError, Plan
from parity.trees import to_array
from parity.weight_causes import weight_causes

Arrays = dict[str, np.ndarray]


def checked(
    port: Any,
    evidence: Evidence,
    inputs: Mapping[str, np.ndarray],
    *,
    params: Any,
    mapping: Any,
    training: bool,
    grad: bool,
    steps: int,
    tolerance: tuple[float, float] | None,
    allow_blind: tuple[str, ...],
    environment: Mapping[str, str],
) -> CheckReport:
    """Run a port, compare it, and find out why it differs; see `parity.checking.check`."""
    for name in allow_blind:
        if name not in evidence.weights:
            known = ", ".join([*evidence.weights][:6])
            raise ValueError(f"`allow_blind` has {name!r}, the reference has {known} ...")
    wide = [*inputs.values(), *evidence.weights.values()]
    with jax_run.x64(any(array.dtype == np.float64 for array in wide)):
        given = jax_run.inputs_of(inputs)
        made, shapes = _port(port, params, given, training)
        draws: list[int] = []
        if evidence.drawn:
            made = replace(made, call=undrawn(made.call, draws))
        layouts = layouts_of(inputs, evidence.inputs)
        held = Held(made, shapes, given, evidence, layouts, tolerance, grad)
        report = _checked(held, mapping, steps)
        if evidence.drawn:
            report = with_draws(report, evidence.drawn, draws)
    if made.kind == "nnx":
        spelled = tuple(replace(cause, fix=_in_nnx(cause.fix)) for cause in report.causes)
        report = replace(report, causes=spelled)
    overrides = {} if tolerance is None else {"atol": tolerance[0], "rtol": tolerance[1]}
    return replace(
        report,
        hidden=evidence.hidden,
        unused=evidence.unused,
        allowed=tuple(name for name in evidence.hidden if name in allow_blind),
        told=(*made.told, *evidence.told, *report.told),
        overrides=overrides | ({"allow_blind": list(allow_blind)} if allow_blind else {}),
        sha256=evidence.sha256,
        environment=environment,
    )


def _in_nnx(fix: str) -> str:
    """Spell a fix as nnx does: "nnx.LayerNorm" for "nn.LayerNorm"."""
    fix = fix.replace("nn.MultiHeadDotProductAttention", "nnx.MultiHeadAttention")
    return re.sub(r"(?<![.\w])nn\.", "nnx.", fix)


def _port(port: Any, params: Any, given: Inputs, training: bool) -> tuple[Port, Mapping[str, Any]]:
    """Return a port, which may have been given leaves that it can't take, and those it wants."""

    def bare() -> Port:
        return port_of(port, None, given.places, given.named, training=training)

    try:
        made = port_of(port, params, given.places, given.named, training=training)
    except ValueError:
        if params is None:
            raise
        leaves = jax_leaves.flatten(params)[0]
        if leaves.keys() != (wanted := bare()).leaves.keys():
            raise
        return replace(wanted, leaves=leaves, given=True), _wanted(wanted, leaves)
    if params is None or made.kind == "function":
        return made, made.leaves
    try:
        wanted = bare()
    except ValueError:  # it can't make its own, and need not
        return made, made.leaves
    is_same = wanted.leaves.keys() == made.leaves.keys()
    return made, _wanted(wanted, made.leaves) if is_same else made.leaves


def _wanted(bare: Port, given: Mapping[str, Any]) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shapes that a port asks for, in the formats in which it was given its leaves."""
    return {
        path: jax.ShapeDtypeStruct(leaf.shape, getattr(given[path], "dtype", leaf.dtype))
        for path, leaf in bare.leaves.items()
    }


def _checked(held: Held, mapping: Any, steps: int) -> CheckReport:
    port, evidence = held.port, held.evidence
    convention = "torch" if port.kind == "equinox" else ""
    try:
        found = placed(evidence, held.shapes, mapping, given=port.given, convention=convention)
    except MappingError as error:
        raise _with_layout(held, error) from None
    right, wrong, values = found.leaves(evidence.weights), [*found.causes], {}
    if port.given:
        values = {path: to_array(leaf, path) for path, leaf in port.leaves.items()}
        wrong += weight_causes(found.plan, values, right) if found.plan is not None else []
    report, run = _compared(held, found.plan, values | right)
    if found.plan is not None and held.evidence.updated:
        report = updated(held, report, found.plan, values | right, run, steps)
    if not report.agrees:
        gradients = _port_gradients(held, found.plan, run)
        report = explained(held, report, run, values | right, gradients)
    told = (
        ("all was run with the reference's weights, not with params=",)
        if wrong and port.given
        else ()
    )
    return replace(report, told=(*found.told, *told, *report.told)).with_wrong_weights(wrong)


def _with_layout(held: Held, error: MappingError) -> MappingError:
    """Tell of channels in another place, where that may be why convolutions can't be paired."""
    convolves = any("Conv" in layer.type for layer in held.evidence.layers.values())
    if held.layouts or not convolves or not (error.unplaced or error.unfilled):
        return error
    way = "Where the port takes channels last: inputs=parity.Pair(np.moveaxis(x, 1, -1), x)."
    return MappingError(f"{error}\n{way}", error.unplaced, error.unfilled)


def _compared(held: Held, found: Plan | None, values: Arrays) -> tuple[CheckReport, PortRun]:
    """Run the port on values of its leaves, and compare what it gives."""
    run = held.run(values)
    report = CheckReport(
        held.rows(run.outputs),
        gradients=_gradients(held, found, run),
        plan=found,
        told=(*held.pairs(run.outputs)[1], *held.zeros()),
    )
    return report, run


def _gradients(held: Held, found: Plan | None, run: PortRun) -> tuple[Compared, ...]:
    if not held.grad:
        return ()
    evidence = held.evidence
    ours = _port_gradients(held, found, run)
    rows = [
        _with_rows(held, held.compared(f"gradients/{name}", name, ours[name], theirs), ours[name])
        for name, theirs in evidence.gradients.items()
        if name in ours
    ]
    return (*rows, *_copied(found))


def _with_rows(held: Held, row: Compared, ours: np.ndarray) -> Compared:
    """Compare rows of a table that nothing reads, or padding: no rounding gives them a gradient."""
    layer = held.evidence.layers.get(row.name.rpartition(".")[0])
    if (
        held.tolerance is not None
        or layer is None
        or not layer.type.startswith("Embedding")
        or ours.ndim != 2
    ):
        return row
    silent = ~held.evidence.gradients[row.name].any(-1)
    worst = float(np.abs(ours[silent]).max(initial=0.0))
    return replace(row, error=worst, limit=0.0) if row.passed and worst > 0 else row


def _port_gradients(held: Held, found: Plan | None, run: PortRun) -> Arrays:
    """Return the gradients of a port by the names and in the shapes of the reference."""
    ours = dict(found.pull_back(run.gradients)) if found is not None else {}
    for name, mine in run.gradients.items():
        theirs = held.evidence.gradients.get(name)
        if not name.startswith("inputs/") or theirs is None:
            continue
        axes = tuple(range(mine.ndim)) if mine.shape == theirs.shape else turned(mine, theirs)
        if axes is not None:
            ours[name] = mine.transpose(axes)
    return ours


def _copied(found: Plan | None) -> Iterator[Compared]:
    """Yield tensors that the reference shares, and of which the port has copies."""
    if found is None:
        return
    leaves: dict[str, list[str]] = {}
    for placement in found.placements:
        first = found.tied.get(placement.source.name, placement.source.name)
        leaves.setdefault(first, []).append(placement.target.name)
    for name, paths in leaves.items():
        shared = {name, *(n for n, first in found.tied.items() if first == name)}
        if len(shared) > 1 and len(set(paths)) > 1:
            words = f"tied in torch, and two parameters in the port: {', '.join(paths)}"
            yield Compared(name, float("inf"), 0.0, 0.0, words)
