"""PyTorch: layer, batch, group and RMS norms with another eps or affine part, or left out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from parity.frameworks.torch_calls import Call
from parity.mistakes.guess import Guess, given_to
from parity.mistakes.statistics import statistics_mistakes

_EPS = (1e-3, 1e-5, 1e-6, 1e-8, 1e-12, 0.0)
NORMS = {
    "layer_norm": ("input", "normalized_shape", "weight", "bias", "eps"),
    "rms_norm": ("input", "normalized_shape", "weight", "eps"),
    "group_norm": ("input", "num_groups", "weight", "bias", "eps"),
    "batch_norm": (
        *("input", "running_mean", "running_var", "weight", "bias"),
        *("training", "momentum", "eps"),
    ),
    "instance_norm": (
        *("input", "running_mean", "running_var", "weight", "bias"),
        *("use_input_stats", "momentum", "eps"),
    ),
}
_FLAX = {
    "layer_norm": "LayerNorm",
    "rms_norm": "RMSNorm",
    "group_norm": "GroupNorm",
    "batch_norm": "BatchNorm",
    "instance_norm": "InstanceNorm",
}
_SUMS = ("add", "radd", "iadd")


def norm_mistakes(call: Call) -> Iterator[Guess]:
    """Yield mistakes of a normalisation, in PyTorch's own or written out."""
    if call.name in _SUMS:
        yield from _written_eps(call)
    if call.name not in NORMS:
        return
    given = given_to(call, *NORMS[call.name])
    yield from _eps(call, given)
    yield from statistics_mistakes(call, given)
    yield from _affine(call, given)
    cause = f"the port leaves out {call.name}"
    yield Guess("norm-missing", cause, f"nn.{_FLAX[call.name]}", given["input"].clone)


def _eps(call: Call, given: dict[str, Any]) -> Iterator[Guess]:
    own = given.get("eps", 1e-5)
    told = "that of the dtype" if own is None else f"{own:g}"
    value = torch.finfo(torch.float32).eps if own is None else own
    for eps in _EPS:
        if eps == own:
            continue
        cause = f"eps of {call.name} is {eps:g} in the port, {told} in torch"
        fix = f"nn.{_FLAX[call.name]}(epsilon={value:g})"
        yield Guess("eps", cause, fix, partial(call.function, **{**given, "eps": eps}))


def _written_eps(call: Call) -> Iterator[Guess]:
    """Yield another eps where one is added by hand."""
    if len(call.places) < 2 or call.named:
        return
    x, own = call.places[:2] if isinstance(call.places[0], Tensor) else call.places[1::-1]
    if not isinstance(own, float) or not 0 < own <= 1e-2:
        return
    for eps in _EPS:
        if eps != own:
            cause = f"eps is {eps:g} in the port, {own:g} in torch"
            yield Guess("eps", cause, f"add {own:g}", partial(torch.add, x, eps))


def _affine(call: Call, given: dict[str, Any]) -> Iterator[Guess]:
    """Yield a scale or a bias that is left out, and a scale that is stored less one."""
    fields = {
        "weight": ("scale-missing", "use_scale=True"),
        "bias": ("bias-missing", "use_bias=True"),
    }
    for name, (code, fix) in fields.items():
        if given.get(name) is not None:
            cause = f"the port leaves out the {name} of {call.name}"
            yield Guess(code, cause, fix, partial(call.function, **{**given, name: None}))
    if given.get("weight") is not None:
        cause = f"the weight of {call.name} is added to one in the port"
        more = {**given, "weight": given["weight"] + 1}
        fix = "x * scale, not x * (1 + scale)"
        yield Guess("scale-plus-one", cause, fix, partial(call.function, **more))
