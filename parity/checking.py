"""``parity.check``: is this port right, and if not: which tensor, why, and what to write."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from parity import environment, recording
from parity.check_report import CheckReport
from parity.evidence import Evidence, of_recording
from parity.needs import missing
from parity.outcome import ParityError
from parity.pair import Pair
from parity.recording import Recording
from parity.trees import to_array

Arrays = dict[str, np.ndarray]


def check(
    port: Any,
    reference: Any,
    inputs: Any = None,
    *,
    params: Any = None,
    mapping: Any = None,
    training: bool = False,
    grad: bool = True,
    steps: int = 0,
    allow_blind: Iterable[str] = (),
    atol: float | None = None,
    rtol: float | None = None,
    seed: int = 0,
    raises: bool = True,
) -> CheckReport:
    """Check a port of a PyTorch model: outputs, gradients, weights, and why they differ.

    The weights are moved, the modes set, both sides run on the same inputs and cotangents, and
    the port is held against the reference in float64. It may be off by four times what rounding
    does to the reference: what its own format does, and what happens if each rounded result, and
    each gradient on its way back, is moved at random by up to two units. If it is further off, the
    first step of the reference that the port does not compute is found in all that it computes,
    and known mistakes are put into the reference until it computes the same.

    Args:
      port: a linen, nnx or Equinox module, or a function of (params, inputs).
      reference: a module or function of PyTorch, or a recording of one by `parity.record`, or
        its path. It is left as it is.
      inputs: an array or tensor, a tuple of them, or a dict by keyword, as the reference takes
        them; `Pair(port, reference)` for one that the port takes in another layout. None for those
        of a recording.
      params: the port's own parameters, to be compared as well; by default the reference's
        weights are moved by `parity.convert`.
      mapping: for `parity.convert`, where names and types don't settle what goes where.
      training: the mode that both sides are set to.
      grad: whether gradients are compared.
      steps: how many steps of SGD are compared.
      allow_blind: names of weights that may be without a gradient on these inputs.
      atol: overrides the limit with ``atol + rtol * |expected|``, as in NumPy. Printed.
      rtol: the same; the one that is not given is 0.
      seed: of cotangents and of what is tried at random.
      raises: whether a failure raises.

    Returns:
      The report; ``report.passed`` says whether all is well.

    Raises:
      ParityError: if the port differs, or the check can't see some weights; its ``report`` says
        which.
      MappingError: if a weight has no place, or a leaf no weight.
      ImportError: if JAX is missing, or PyTorch where the reference is live.
      TypeError: if an argument is of another type.
      ValueError: if the port can't take the inputs, or a number is out of range.
    """
    __tracebackhide__ = True  # pytest then shows the line of the caller, and the report
    from parity.frameworks import jax_check

    _require(training, grad, raises, steps, seed)
    _require_jax(port)
    ours, evidence = _evidence(
        reference, inputs, training=training, grad=grad, steps=steps, seed=seed
    )
    report = jax_check.checked(
        port,
        evidence,
        ours,
        params=params,
        mapping=mapping,
        training=training,
        grad=grad,
        steps=steps,
        tolerance=_tolerance(atol, rtol),
        allow_blind=tuple(allow_blind),
        environment=environment.installed() | environment.running(load=False),
    )
    if raises and not report.passed:
        raise ParityError(report)
    return report


def _require(training: Any, grad: Any, raises: Any, steps: Any, seed: Any) -> None:
    for name, value in {"training": training, "grad": grad, "raises": raises}.items():
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"`{name}` must be True or False, got {value!r}.")
    if steps and not grad:
        raise ValueError("`steps` needs gradients: leave out grad=False, or give steps=0.")
    for name, value in {"steps": steps, "seed": seed}.items():
        if type(value) is not int or value < 0:
            raise ValueError(f"`{name}` must be an integer of at least 0, got {value!r}.")


def _require_jax(port: Any) -> None:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(port, torch.nn.Module):
        raise TypeError(
            f"`port` is {type(port).__name__}, a module of PyTorch. The port comes first, the "
            "reference second."
        )


def _tolerance(atol: float | None, rtol: float | None) -> tuple[float, float] | None:
    from parity.comparison import tolerance

    if atol is None and rtol is None:
        return None
    return tolerance("atol", atol), tolerance("rtol", rtol)


def _evidence(
    reference: Any, inputs: Any, *, training: bool, grad: bool, steps: int, seed: int
) -> tuple[Arrays, Evidence]:
    """Return the inputs of the port, and what the reference gives it to be held against."""
    if isinstance(reference, str | Path):
        reference = recording.read(Path(reference))
    if isinstance(reference, Recording):
        found = of_recording(reference)
        if inputs is None:
            return dict(found.inputs), found
        ours, theirs = _sides(inputs)
        _require_same(theirs, found.inputs)
        return ours, found
    if not callable(reference):
        raise TypeError(
            "`reference` must be a module or function of PyTorch, or a recording; got "
            f"{type(reference).__name__}. The port comes first, the reference second."
        )
    if reason := missing("torch"):
        raise ImportError(f"`reference` runs in PyTorch: {reason}. A recording needs none.")
    from parity.frameworks import torch_evidence

    ours, theirs = _sides(inputs)
    return ours, torch_evidence.evidence(
        reference, theirs, training=training, grad=grad, steps=steps, seed=seed
    )


def _sides(inputs: Any) -> tuple[Arrays, Arrays]:
    """Return the inputs of both sides, by name or by place."""
    if inputs is None:
        raise TypeError("`inputs` must be given: an array, a tuple or a dict of them.")
    if isinstance(inputs, list):
        raise TypeError("`inputs` must be an array, a tuple or a dict of them; got a list.")
    if isinstance(inputs, Mapping):
        named: dict[str, Any] = {str(name): value for name, value in inputs.items()}
    else:
        is_several = isinstance(inputs, tuple) and not isinstance(inputs, Pair)
        named = {str(k): x for k, x in enumerate(inputs if is_several else (inputs,))}
    sides: tuple[Callable[[Any], Any], ...] = (
        lambda x: x.port if isinstance(x, Pair) else x,
        lambda x: x.reference if isinstance(x, Pair) else x,
    )
    ours, theirs = (
        {n: to_array(side(x), f"`inputs` {n}") for n, x in named.items()} for side in sides
    )
    return ours, theirs


def _require_same(given: Arrays, recorded: Mapping[str, np.ndarray]) -> None:
    for name, array in recorded.items():
        ours = given.get(name)
        if ours is None or ours.shape != array.shape or ours.tobytes() != array.tobytes():
            raise ValueError(
                f"`inputs` {name} is not what the recording was made with. Leave out `inputs`: "
                "those of the recording are used."
            )
