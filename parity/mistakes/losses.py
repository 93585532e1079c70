"""PyTorch: losses that are reduced otherwise, halved, or take other numbers as their input."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from parity.frameworks.torch_calls import Call
from parity.mistakes.guess import Guess, given_to

_LOSSES = (
    *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "nll_loss"),
    *("cross_entropy", "binary_cross_entropy", "binary_cross_entropy_with_logits"),
)
_LOGITS = ("cross_entropy", "binary_cross_entropy_with_logits")


def loss_mistakes(call: Call) -> Iterator[Guess]:
    """Yield mistakes of a loss."""
    if call.name not in _LOSSES:
        return
    given = given_to(call, "input", "target")
    own = given.get("reduction", "mean")
    for other in ("mean", "sum", "batchmean"):
        if other != own and (other != "batchmean" or call.name == "kl_div"):
            cause = f"the loss is the {other} in the port, the {own} in torch"
            answer = partial(call.function, **{**given, "reduction": other})
            yield Guess("reduction", cause, f"jnp.{own}(losses)", answer)
    x = given["input"]
    if x.dim() > 1 and own == "mean" and call.name not in ("cross_entropy", "nll_loss"):
        cause = "the loss is summed over the features in the port, and its mean is over the batch"
        answer = partial(_by_example, call, given)
        yield Guess("reduction", cause, "jnp.mean(losses) over all axes", answer)
    for factor, word in ((0.5, "half"), (2.0, "twice")):
        cause = f"the loss is {word} of that of torch in the port"
        yield Guess(
            "loss-scale", cause, f"{call.name} has no such factor", partial(_times, call, factor)
        )
    yield from _options(call, given)
    if call.name in _LOGITS:
        cause = "the port takes the logits of the loss for probabilities"
        fix = "optax.softmax_cross_entropy_with_integer_labels(logits, labels)"
        yield Guess("activation-extra", cause, fix, partial(_of_chances, call, given))


def _options(call: Call, given: dict[str, Any]) -> Iterator[Guess]:
    for name, none in (("weight", None), ("label_smoothing", 0.0), ("ignore_index", -100)):
        if given.get(name, none) is not none and given.get(name, none) != none:
            cause = f"the port leaves out {name} of the loss"
            answer = partial(call.function, **{**given, name: none})
            yield Guess("loss-option", cause, f"{name} as in torch", answer)


def _by_example(call: Call, given: dict[str, Any]) -> Tensor:
    total: Tensor = call.function(**{**given, "reduction": "sum"})
    return total / given["input"].shape[0]


def _times(call: Call, factor: float) -> Tensor:
    result: Tensor = call() * factor
    return result


def _of_chances(call: Call, given: dict[str, Any]) -> Tensor:
    x = given["input"]
    chances = functional.softmax(x, 1) if call.name == "cross_entropy" else torch.sigmoid(x)
    result: Tensor = call.function(**{**given, "input": chances})
    return result
