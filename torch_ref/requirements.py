"""What the package asks of its arguments, in one voice: the argument, what came, what may come."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def require_integer(name: str, value: Any, other: str = "") -> int:
    """Return an integer of Python or NumPy as Python's; True is not 1.

    Args:
      name: what the message calls it.
      value: what came.
      other: what a message allows besides, such as "or None".
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        allowed = f"a Python integer {other}".strip()
        raise TypeError(f"`{name}` must be {allowed}, got {type(value).__name__} {value!r}.")
    return int(value)


def require_size(name: str, size: Any) -> int:
    """Return an integer from 1 to 2**31."""
    number = require_integer(name, size)
    if not 1 <= number <= 2**31:
        raise ValueError(f"`{name}` must be at least 1 and at most 2**31, got {size}.")
    return number


def require_dtype(name: str, dtype: torch.dtype) -> None:
    """Refuse what is not one of `DTYPES`."""
    if dtype not in DTYPES:
        raise TypeError(
            f"`{name}` must be torch.float32, bfloat16, float16 or float64, got {dtype}. "
            "Compute in one of these, and convert the result yourself."
        )


def require_one_of(name: str, value: Any, allowed: Sequence[Any]) -> None:
    """Refuse a value that is not among a few; True is not 1."""
    if not any(value == choice and type(value) is type(choice) for choice in allowed):
        choices = " or ".join(repr(choice) for choice in allowed)
        raise ValueError(f"`{name}` must be {choices}, got {value!r}.")


def require_real(name: str, value: Any, dtype: torch.dtype) -> float:
    """Return a number of Python or NumPy that `dtype` can hold."""
    number = _require_number(name, value)
    if not abs(number) <= torch.finfo(dtype).max:
        kind = str(dtype).removeprefix("torch.")
        raise ValueError(f"`{name}` must be finite in {kind}, got {value!r}.")
    return float(number)


def require_rate(name: str, rate: Any) -> float:
    """Return a number of Python or NumPy in [0, 1]."""
    number = _require_number(name, rate)
    if not 0 <= number <= 1:
        raise ValueError(f"`{name}` must be in [0, 1], got {rate!r}. It is the chance of a zero.")
    return float(number)


def _require_number(name: str, value: Any) -> int | float:
    """Return a number of Python or NumPy as Python's, so that NumPy's width plays no part."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"`{name}` must be a Python number, got {type(value).__name__} {value!r}.")
    return int(value) if isinstance(value, (int, np.integer)) else float(value)


def require_integers(name: str, values: Tensor) -> None:
    """Refuse what is not a tensor of integers."""
    _require_tensor(name, values)
    kind = values.dtype
    if kind == torch.bool or kind.is_floating_point or kind.is_complex:
        raise TypeError(f"`{name}` must hold integers, got {kind}. Cast it to torch.int32.")


def require_floats(name: str, values: Tensor, rank: int | None = None) -> None:
    """Refuse what is not a tensor in one of `DTYPES`, or has another rank."""
    _require_tensor(name, values)
    if values.dtype not in DTYPES:
        raise TypeError(
            f"`{name}` must be torch.float32, bfloat16, float16 or float64, got {values.dtype}."
        )
    if rank is not None and (values.ndim != rank or 0 in values.shape):
        raise ValueError(
            f"`{name}` must have {rank} axes and an entry, got shape {list(values.shape)}."
        )


def require_between(name: str, values: Tensor, low: int, high: int, way_out: str) -> None:
    """Refuse numbers outside ``low`` to ``high``, and NaN, naming the first and its place.

    A tensor on the meta device holds no numbers, and passes.
    """
    if values.is_meta:
        return
    outside = outside_of(values, low, high)
    if outside.any():
        place = outside.nonzero()[0].tolist()
        raise ValueError(
            f"`{name}` holds {values[tuple(place)].item()} at {place}, "
            f"but must be from {low} to {high}. {way_out}"
        )


def outside_of(values: Tensor, low: int, high: int) -> Tensor:
    """Return True where a number is outside ``low`` to ``high``, or NaN."""
    if values.is_floating_point():
        return ~((values >= low) & (values <= high))
    wide = values.to(torch.int64)
    outside = (wide < low) | (wide > high)
    # An unsigned number of 2**63 or more turns negative in int64, the widest that torch compares.
    return outside if values.dtype.is_signed else outside | (wide < 0)


def _require_tensor(name: str, values: Tensor) -> None:
    if not isinstance(values, Tensor):
        raise TypeError(f"`{name}` must be a torch.Tensor, got {type(values).__name__}.")
