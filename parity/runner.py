"""Runs cases, and says of each tensor how it went."""

from __future__ import annotations

import os
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from parity.case import Case, Tensor
from parity.frameworks import jax_side
from parity.judging import compare_tensor
from parity.needs import missing
from parity.rows import RAISED, Label, Row, Skip
from parity.verdict import Side

Tensors = Mapping[str, np.ndarray]
Result = TypeVar("Result")
_AHEAD = 4


@dataclass(frozen=True)
class Setting:
    """Where and how the port computes; the reference stays on the CPU.

    Attributes:
      device: platform; None is the one JAX chooses.
      matmul_precision: JAX's name of one; None leaves it alone.
      lacks: why a need is not met, "" if it is; filled while running.
    """

    device: str | None = None
    matmul_precision: str | None = None
    lacks: dict[str, str] = field(default_factory=dict)

    def unmet(self, case: Case) -> Skip | None:
        """Return the skip of a case that lacks something."""
        device = [] if self.device is None else [self.device]
        for need in (*case.needs, *device):
            if need not in self.lacks:
                self.lacks[need] = missing(need)
            if self.lacks[need]:
                return Skip(case.id, need, self.lacks[need])
        return None


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
) -> Iterator[tuple[Case, Future[Tensors] | Skip]]:
    """Yield each case with its port, begun a few cases before it is asked for."""
    begun: deque[tuple[Case, Future[Tensors] | Skip]] = deque()
    for case in cases:
        begun.append((case, setting.unmet(case) or pool.submit(_port, case, setting)))
        if len(begun) > _AHEAD:
            yield begun.popleft()
    yield from begun


def _port(case: Case, setting: Setting) -> Tensors:
    with jax_side.configured(setting.device, setting.matmul_precision):
        return case.port()


def _rows(case: Case, setting: Setting, port: Future[Tensors]) -> list[Row]:
    device = setting.device or jax_side.default_device()
    # Whatever a case raises is told as its row, and the other cases still run. The port first: what
    # else a case has may be made from what that drew.
    ours, theirs = _outcome(port.result), _outcome(case.reference)
    expected = _outcome(case.expected)
    whole = Label(case.id, "", device)
    if isinstance(expected, Exception):
        return [_raised(whole, case.dtype, expected, "port" if expected is ours else "")]
    if isinstance(ours, Exception) and isinstance(theirs, Exception) and theirs is not ours:
        return [_raised(whole, case.dtype, ours, "both")]
    labels = [Label(case.id, name, device) for name in expected or [""]]
    if isinstance(ours, Exception):
        return [_raised(label, case.dtype, ours, "port") for label in labels]
    if isinstance(theirs, Exception):
        return [_raised(label, case.dtype, theirs, "reference") for label in labels]
    if not (expected or ours or theirs):
        nothing = ValueError(f"case {case.id!r} has no tensors")
        return [_raised(whole, case.dtype, nothing, "")]
    return _compared(case.id, device, ours, theirs, expected)


def _outcome(compute: Callable[[], Result]) -> Result | Exception:
    try:
        return compute()
    except Exception as error:
        return error


def _compared(
    case_id: str,
    device: str,
    port: Tensors,
    reference: Tensors,
    expected: Mapping[str, Tensor],
) -> list[Row]:
    return [
        compare_tensor(
            Label(case_id, name, device), port.get(name), reference.get(name), expected.get(name)
        )
        for name in dict.fromkeys([*expected, *port, *reference])
    ]


def _raised(label: Label, dtype: str, error: Exception, side: Side) -> Row:
    """Return the row of an exception; where one side alone raised, the sides differ."""
    lines = f"{type(error).__name__}: {error}".strip().splitlines()
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
