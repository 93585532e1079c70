"""PyTorch: results, and what they are computed from, rounded to a narrower format."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from parity.frameworks.torch_calls import Call
from parity.mistakes.guess import Guess

_FORMATS = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def digit_mistakes(call: Call) -> Iterator[Guess]:
    """Yield a call whose result is rounded, or all that goes into it as well."""
    fix = "leave out the cast, or give the module dtype=None"
    for name, dtype in _FORMATS.items():
        for function, what in ((_result, "the result of"), (_operands_too, "all of")):
            cause = f"{what} {call.name} is rounded to {name} in the port"
            yield Guess("dtype-cast", cause, fix, partial(function, call, dtype), rounds=True)


def _result(call: Call, dtype: torch.dtype) -> Any:
    return _rounded(call(), dtype)


def _operands_too(call: Call, dtype: torch.dtype) -> Any:
    places = [_rounded(value, dtype) for value in call.places]
    named = {name: _rounded(value, dtype) for name, value in call.named.items()}
    has_bias = call.name.endswith(("linear", "projection")) and len(places) == 3
    if not has_bias or places[2] is None:
        return _rounded(call.function(*places, **named), dtype)
    product = _rounded(call.function(*places[:2], None), dtype)
    return _rounded(product + places[2], dtype)


def _rounded(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.to(dtype).to(value.dtype)
    return value
