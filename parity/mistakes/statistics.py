"""PyTorch: norms whose mean and variance are of another form, other axes, groups or mode."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from parity.frameworks.torch_calls import Call
from parity.mistakes.guess import Guess

Given = dict[str, Any]
Axes = tuple[int, ...]


def statistics_mistakes(call: Call, given: Given) -> Iterator[Guess]:
    """Yield norms with other statistics.

    Args:
      call: of a normalisation.
      given: what it was given, by the names of its parameters.
    """
    if call.name == "layer_norm":
        axes = tuple(range(-len(given["normalized_shape"]), 0))
        yield from _forms(given, axes)
        yield from _axes(given, axes)
    elif call.name == "rms_norm":
        yield from _root(given)
    elif call.name == "group_norm":
        yield from _groups(call, given)
    elif call.name == "batch_norm":
        yield from _mode(call, given)


def scaled(y: Tensor, given: Given, channels: bool = False) -> Tensor:
    """Apply the weight and the bias of a norm, along the last axes or along the channels."""
    shape = (1, -1, *(1,) * (y.dim() - 2))
    for name, apply in (("weight", torch.mul), ("bias", torch.add)):
        value = given.get(name)
        if value is not None:
            y = apply(y, value.view(shape) if channels else value)
    return y


def normalised(
    x: Tensor, axes: Axes, eps: float, *, unbiased: bool = False, form: str = "sqrt(var + eps)"
) -> Tensor:
    """Return x less its mean over axes, divided by one of the forms of its spread."""
    var = x.var(axes, keepdim=True, correction=int(unbiased))
    forms = {
        "sqrt(var + eps)": (var + eps).sqrt(),
        "std + eps": var.sqrt() + eps,
        "var + eps": var + eps,
    }
    return (x - x.mean(axes, keepdim=True)) / forms[form]


def root_mean_square(x: Tensor, axes: Axes, eps: float) -> Tensor:
    """Return x divided by its root mean square over axes."""
    return x / (x.square().mean(axes, keepdim=True) + eps).sqrt()


def _answer(given: Given, axes: Axes, **options: Any) -> Tensor:
    return scaled(normalised(given["input"], axes, given.get("eps", 1e-5), **options), given)


def _forms(given: Given, axes: Axes) -> Iterator[Guess]:
    forms: dict[str, dict[str, Any]] = {
        "the variance is divided by n - 1 in the port, by n in torch": {"unbiased": True},
        "the port divides by std + eps, with n - 1; torch by sqrt(var + eps)": {
            "unbiased": True,
            "form": "std + eps",
        },
        "the port divides by std + eps, torch by sqrt(var + eps)": {"form": "std + eps"},
        "the port divides by the variance, torch by its root": {"form": "var + eps"},
    }
    fix = "jnp.var(x, -1, keepdims=True) + eps under the root, or nn.LayerNorm"
    for cause, options in forms.items():
        yield Guess("variance-form", cause, fix, partial(_answer, given, axes, **options))
    cause = "the port does not subtract the mean: it is an RMSNorm"
    yield Guess("norm-kind", cause, "nn.LayerNorm", partial(_without_mean, given, axes))


def _without_mean(given: Given, axes: Axes) -> Tensor:
    return scaled(root_mean_square(given["input"], axes, given.get("eps", 1e-5)), given)


def _axes(given: Given, own: Axes) -> Iterator[Guess]:
    """Yield norms over one, two or three other axes."""
    x = given["input"]
    every = range(-x.dim(), 0)
    for count in (1, 2, 3):
        for axes in itertools.combinations(every, count):
            if axes == own or x.dim() > 4:
                continue
            cause = f"the port normalises over axes {axes}, torch over {own}"
            fix = f"nn.LayerNorm(reduction_axes={own})"
            yield Guess("norm-axis", cause, fix, partial(_answer, given, axes))


def _root(given: Given) -> Iterator[Guess]:
    shape, x = given["normalized_shape"], given["input"]
    axes, eps = tuple(range(-len(shape), 0)), given.get("eps")
    small = torch.finfo(x.dtype).eps if eps is None else eps
    cause = "the port subtracts the mean: it is a LayerNorm, torch has an RMSNorm"
    told = {**given, "eps": small}
    yield Guess("norm-kind", cause, "nn.RMSNorm", partial(_answer, told, axes))
    cause = "the port divides by the norm of the vector, torch by its root mean square"
    answer = partial(_by_length, told, axes)
    yield Guess("variance-form", cause, "the mean of the squares, not their sum", answer)
    cause = "eps is added to the root in the port, under it in torch"
    answer = partial(_outside, told, axes)
    yield Guess("variance-form", cause, "x / sqrt(mean(x ** 2) + eps)", answer)


def _by_length(given: Given, axes: Axes) -> Tensor:
    x = given["input"]
    return scaled(x / (x.square().sum(axes, keepdim=True) + given["eps"]).sqrt(), given)


def _outside(given: Given, axes: Axes) -> Tensor:
    x = given["input"]
    return scaled(x / (x.square().mean(axes, keepdim=True).sqrt() + given["eps"]), given)


def _groups(call: Call, given: Given) -> Iterator[Guess]:
    x, own = given["input"], given["num_groups"]
    channels = x.shape[1]
    for count in range(1, channels + 1):
        if channels % count == 0 and count != own:
            cause = f"group_norm has {count} groups in the port, {own} in torch"
            fix = f"nn.GroupNorm(num_groups={own})"
            more = {**given, "num_groups": count}
            yield Guess("norm-groups", cause, fix, partial(call.function, **more))
    if 1 < own < channels:
        cause = f"a group takes every {own}-th channel in the port, a block of them in torch"
        fix = "x.reshape(..., num_groups, channels // num_groups)"
        yield Guess("norm-groups", cause, fix, partial(_interleaved, call, given))
    fix = f"nn.GroupNorm(num_groups={own})"
    for axes in itertools.chain(((1,), tuple(range(2, x.dim())), tuple(range(x.dim())))):
        cause = f"the port normalises over axes {axes} in torch's order, torch over groups"
        yield Guess("norm-axis", cause, fix, partial(_of_channels, given, axes))
    cause = "the variance is divided by n - 1 in the port, by n in torch"
    fix = "jnp.var without ddof"
    yield Guess("variance-form", cause, fix, partial(_of_groups, given))


def _interleaved(call: Call, given: Given) -> Tensor:
    x, groups = given["input"], given["num_groups"]
    order = torch.arange(x.shape[1]).view(-1, groups).T.reshape(-1)
    y = call.function(x[:, order], groups, eps=given.get("eps", 1e-5))
    return scaled(y[:, order.argsort()], given, channels=True)


def _of_channels(given: Given, axes: Axes) -> Tensor:
    y = normalised(given["input"], axes, given.get("eps", 1e-5))
    return scaled(y, given, channels=True)


def _of_groups(given: Given) -> Tensor:
    x = given["input"].unflatten(1, (given["num_groups"], -1))
    y = normalised(x, tuple(range(2, x.dim())), given.get("eps", 1e-5), unbiased=True)
    return scaled(y.flatten(1, 2), given, channels=True)


def _mode(call: Call, given: Given) -> Iterator[Guess]:
    """Yield the statistics of the batch for the running ones, and the other way round."""
    x, mean, var = (given.get(name) for name in ("input", "running_mean", "running_var"))
    assert isinstance(x, Tensor)
    if mean is None or var is None:
        return
    if given.get("training"):
        cause = "batch_norm uses the running statistics in the port, those of the batch in torch"
        fix = "nn.BatchNorm(use_running_average=False), or model.train()"
        more = {**given, "training": False}
        yield Guess("train-mode", cause, fix, partial(call.function, **more))
        return
    axes = (0, *range(2, x.dim()))
    batch = x.mean(axes), x.var(axes, correction=0)
    train = "batch_norm is in training mode in the port: it uses the statistics of the batch"
    fresh = "the port uses running statistics that were never set: mean 0, variance 1"
    swapped = "running mean and variance are swapped in the port"
    root = "the port divides by the running variance, torch by its root"
    average = "nn.BatchNorm(use_running_average=True), or model.eval()"
    both = "give batch_stats with params: parity.convert fills both"
    known = [
        ("train-mode", train, average, batch),
        ("running-statistics", fresh, both, (torch.zeros_like(mean), torch.ones_like(var))),
        ("running-statistics", swapped, "mean <- running_mean", (var, mean.abs())),
        ("variance-form", root, "x / sqrt(var + eps)", (mean, var.square())),
    ]
    for code, cause, fix, (its_mean, its_var) in known:
        more = {**given, "running_mean": its_mean, "running_var": its_var}
        yield Guess(code, cause, fix, partial(call.function, **more))
    if x.dim() > 2:
        cause = "batch_norm takes the statistics of each example in the port: an instance norm"
        answer = partial(_of_channels, given, tuple(range(2, x.dim())))
        yield Guess("norm-kind", cause, "nn.BatchNorm", answer)
