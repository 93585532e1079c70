"""Runs cases, and says of each tensor how it went."""

from __future__ import annotations

import os
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from parity import noise
from parity.case import Arrays, Case, Tensor
from parity.frameworks import jax_side
from parity.judging import compare_tensor
from parity.known import Known, accepted, unmatched
from parity.needs import missing
from parity.rows import RAISED, Label, Row, Skip
from parity.suite_recording import Recorder, Replay
from parity.vacuous import refused
from parity.verdict import Side

Result = TypeVar("Result")
_AHEAD = 4


@dataclass(frozen=True)
class Setting:
    """Where and how the port computes, and what it is held against.

    Attributes:
      device: platform of the port; None is the one JAX chooses. The reference stays on the CPU.
      matmul_precision: JAX's name of one; None leaves it alone.
      replay: recordings that stand for the reference; None runs it. A case that needs no PyTorch,
        and is not among them, is run.
      recorder: takes what the reference computes; None records nothing.
      alone: whether each side also computes one example without the others, for its noise floor.
      known: differences that are accepted.
      lacks: why a need is not met, "" if it is; filled while running.
    """

    device: str | None = None
    matmul_precision: str | None = None
    replay: Replay | None = None
    recorder: Recorder | None = None
    alone: bool = False
    known: tuple[Known, ...] = ()
    lacks: dict[str, str] = field(default_factory=dict)

    def replayed(self, case: Case) -> bool:
        """Say whether a recording stands for the reference of a case."""
        return self.replay is not None and case.id in self.replay.cases

    def unmet(self, case: Case) -> Skip | None:
        """Return the skip of a case that lacks something."""
        needs = {*case.needs, *([] if self.device is None else [self.device])}
        if self.replayed(case):
            needs.discard("torch")
        elif self.replay is not None and "torch" in needs:
            why = f"not in {self.replay.place}; where PyTorch is: parity run --all --record DIR"
            return Skip(case.id, "recording", why)
        for need in sorted(needs):
            if need not in self.lacks:
                self.lacks[need] = missing(need)
            if self.lacks[need]:
                return Skip(case.id, need, self.lacks[need])
        return None


@dataclass(frozen=True)
class _Computed:
    """What a side computed, and how far two runs of it are apart."""

    tensors: Arrays
    floors: noise.Floors


def run(cases: Iterable[Case], setting: Setting) -> Iterator[Row | Skip]:
    """Yield a row for each tensor of each case, or a skip for a case, as they are computed.

    The ports of the next cases are computed meanwhile, in threads of their own: most of the time
    goes into compiling them. The reference is always called from this thread.

    Args:
      cases: what to run, in this order.
      setting: where and how.
    """
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        for case, job in _ahead(cases, setting, pool):
            yield from [job] if isinstance(job, Skip) else _rows(case, setting, job)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _ahead(
    cases: Iterable[Case], setting: Setting, pool: ThreadPoolExecutor
) -> Iterator[tuple[Case, Future[_Computed] | Skip]]:
    """Yield each case with its port, begun a few cases before it is asked for."""
    begun: deque[tuple[Case, Future[_Computed] | Skip]] = deque()
    for case in cases:
        begun.append((case, setting.unmet(case) or pool.submit(_port, case, setting)))
        if len(begun) > _AHEAD:
            yield begun.popleft()
    yield from begun


def _port(case: Case, setting: Setting) -> _Computed:
    with jax_side.configured(setting.device, setting.matmul_precision):
        return _computed(case, case.port, alone=setting.alone)


def _computed(case: Case, side: Callable[[Arrays], Arrays], *, alone: bool) -> _Computed:
    inputs = case.inputs()
    tensors = side(inputs)
    return _Computed(tensors, noise.floors(case, side, inputs, tensors, alone=alone))


def _reference(case: Case, setting: Setting) -> _Computed:
    if setting.replay is not None and setting.replayed(case):
        return _Computed(*setting.replay.reference(case))
    computed = _computed(case, case.reference, alone=setting.alone)
    if setting.recorder is not None:
        setting.recorder.add(case, computed.tensors, computed.floors)
    return computed


def _rows(case: Case, setting: Setting, port: Future[_Computed]) -> list[Row]:
    device = setting.device or jax_side.default_device()
    # Whatever a case raises is told as its row, and the other cases still run.
    ours, theirs = _outcome(port.result), _outcome(lambda: _reference(case, setting))
    expected = _outcome(case.expected)
    whole = Label(case.id, "", device)
    if isinstance(theirs, Exception) and setting.recorder is not None:
        setting.recorder.failed.append(case.id)
    if isinstance(expected, Exception):
        return [_raised(whole, case.dtype, expected, "")]
    if isinstance(ours, Exception) and isinstance(theirs, Exception):
        return [_raised(whole, case.dtype, ours, "both")]
    labels = [Label(case.id, name, device) for name in expected or [""]]
    if isinstance(ours, Exception):
        return [_raised(label, case.dtype, ours, "port") for label in labels]
    if isinstance(theirs, Exception):
        if setting.replayed(case):
            return [_raised(whole, case.dtype, theirs, "")]
        return [_raised(label, case.dtype, theirs, "reference") for label in labels]
    if not (expected or ours.tensors or theirs.tensors):
        nothing = ValueError(f"case {case.id!r} has no tensors")
        return [_raised(whole, case.dtype, nothing, "")]
    return list(_compared(case, whole, ours, theirs, expected, setting.known))


def _outcome(compute: Callable[[], Result]) -> Result | Exception:
    try:
        return compute()
    except Exception as error:
        return error


def _compared(
    case: Case,
    whole: Label,
    port: _Computed,
    reference: _Computed,
    expected: Mapping[str, Tensor],
    known: tuple[Known, ...],
) -> Iterator[Row]:
    for name in dict.fromkeys([*expected, *port.tensors, *reference.tensors]):
        ours, theirs = port.tensors.get(name), reference.tensors.get(name)
        exact = expected.get(name)
        if name in case.drops and ours is not None:
            theirs, exact = _dropped(ours, theirs, exact)
        row = accepted(compare_tensor(replace(whole, tensor=name), ours, theirs, exact), known)
        # After that: no list makes a comparison good that says nothing.
        yield refused(noise.held(row, exact, port.floors, reference.floors), exact)
    yield from unmatched(whole, {*expected, *port.tensors, *reference.tensors}, known)


def _dropped(
    port: np.ndarray, reference: np.ndarray | None, expected: Tensor | None
) -> tuple[np.ndarray | None, Tensor | None]:
    """Return what the reference and the exact value are where the port has dropped elements.

    A zero that the port kept may count as dropped: it is zero.
    """
    kept = port != 0
    if reference is not None and reference.shape == kept.shape:
        reference = np.where(kept, reference, np.zeros_like(reference))
    if expected is not None and expected.exact.shape == kept.shape:
        exact = np.where(kept, expected.exact, 0.0)
        expected = replace(expected, exact=exact, ceiling=np.where(kept, expected.ceiling, 0.0))
    return reference, expected


def _raised(label: Label, dtype: str, error: Exception, side: Side) -> Row:
    """Return the row of an exception; where one side alone raised, the sides differ."""
    lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    words = {"port": f"{label.names[0]} {RAISED}", "reference": f"{label.names[1]} {RAISED}"}
    return Row(
        case=label.case,
        tensor=label.tensor,
        dtype=dtype,
        device=label.device,
        verdict=words.get(side, RAISED),
        passed=False,
        side=side,
        cause=f"{lines[-1]}{place}",
        trace="".join(traceback.format_exception(error)),
    )
