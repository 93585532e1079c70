"""What the package asks of its arguments, in one voice: the argument, what came, what may come."""

import numbers
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def require_size(name: str, size: int) -> None:
    """Refuse what is not an integer from 1 to 2**31."""
    if isinstance(size, bool) or not isinstance(size, int):
        raise TypeError(f"`{name}` must be a Python integer, got {type(size).__name__} {size!r}.")
    if not 1 <= size <= 2**31:
        raise ValueError(f"`{name}` must be at least 1 and at most 2**31, got {size}.")


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


def require_real(name: str, value: float) -> float:
    """Return a Python number that float32 can hold as a float."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"`{name}` must be a Python number, got {type(value).__name__} {value!r}.")
    if not abs(value) <= torch.finfo(torch.float32).max:
        raise ValueError(f"`{name}` must be finite in float32, got {value!r}.")
    return float(value)


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


def require_rate(name: str, rate: float) -> None:
    """Refuse what is not a number in [0, 1]."""
    if isinstance(rate, bool) or not isinstance(rate, numbers.Real):
        raise TypeError(f"`{name}` must be a Python number, got {type(rate).__name__} {rate!r}.")
    if not 0 <= rate <= 1:
        raise ValueError(f"`{name}` must be in [0, 1], got {rate!r}. It is the chance of a zero.")
