"""PyTorch: convolutions with another padding, stride or kernel; transposed ones too."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn import functional

from parity.frameworks.torch_calls import Call
from parity.mistakes.guess import Guess, each, given_to

Given = dict[str, Any]

_NAMES = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = (*_NAMES[:5], "output_padding", "groups", "dilation")
_KERNEL = "kernel = weight.transpose(2, 3, 1, 0)"


def convolution_mistakes(call: Call) -> Iterator[Guess]:
    """Yield mistakes of a convolution."""
    is_transposed = call.name.startswith("conv_transpose")
    if not is_transposed and call.name not in ("conv1d", "conv2d", "conv3d"):
        return
    given = given_to(call, *(_TRANSPOSED if is_transposed else _NAMES))
    axes = tuple(range(2, given["weight"].dim()))

    def called(**changed: Any) -> Tensor:
        result: Tensor = call.function(**{**given, **changed})
        return result

    if given.get("bias") is not None:
        answer = partial(called, bias=None)
        yield Guess("bias-missing", "the port leaves out the bias", "use_bias=True", answer)
    yield from _kernel(called, given, axes, is_transposed)
    if is_transposed:
        yield from _crop(called, given, axes)
    else:
        yield from _padding(called, given, axes)
        yield from _steps(called, given, axes)
    x = given["input"]
    if given["weight"].shape[0] == given["weight"].shape[1]:
        cause = "the port leaves out a convolution"
        yield Guess("layer-missing", cause, "apply the convolution", x.clone)


def _kernel(
    called: Callable[..., Tensor], given: Given, axes: tuple[int, ...], is_transposed: bool
) -> Iterator[Guess]:
    weight = given["weight"]
    cause = "the kernel is flipped in the port"
    fix = "nn.Conv correlates, as torch does: do not flip"
    if is_transposed:
        cause = "the kernel is not flipped in the port, and torch slides it flipped"
        fix = "kernel = weight.transpose(2, 3, 0, 1)[::-1, ::-1], or transpose_kernel=True"
    yield Guess("kernel-flipped", cause, fix, partial(called, weight=weight.flip(axes)))
    for axis in axes if len(axes) > 1 else ():
        told = f"the kernel is flipped along axis {axis} of torch's in the port"
        yield Guess("kernel-flipped", told, fix, partial(called, weight=weight.flip(axis)))
    if len(axes) == 2 and weight.shape[2] == weight.shape[3]:
        cause = "height and width of the kernel are swapped in the port"
        answer = partial(called, weight=weight.transpose(-1, -2))
        yield Guess("kernel-turned", cause, _KERNEL, answer)
    if weight.shape[0] == weight.shape[1]:
        cause = "input and output channels of the kernel are swapped in the port"
        answer = partial(called, weight=weight.transpose(0, 1))
        yield Guess("untransposed-square", cause, _KERNEL, answer)
    groups = given.get("groups", 1)
    if 1 < groups < weight.shape[0]:
        yield from _groups(called, given, groups)


def _groups(called: Callable[..., Tensor], given: Given, groups: int) -> Iterator[Guess]:
    """Yield groups that take every n-th channel of what goes in, or comes out."""
    x = given["input"]
    cause = "a group takes every n-th input channel in the port, a block of them in torch"
    fix = f"feature_group_count={groups}: blocks of channels"
    turned = x.unflatten(1, (-1, groups)).transpose(1, 2).flatten(1, 2)
    yield Guess("channel-groups", cause, fix, partial(called, input=turned))
    cause = "the output channels are interleaved by groups in the port, in blocks in torch"
    yield Guess("channel-groups", cause, fix, partial(_interleaved, called, groups))


def _interleaved(called: Callable[..., Tensor], groups: int) -> Tensor:
    return called().unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)


def _padding(called: Callable[..., Tensor], given: Given, axes: tuple[int, ...]) -> Iterator[Guess]:
    """Yield what SAME means in JAX, where a stride makes it uneven, VALID, and other kinds."""
    x, weight, own = given["input"], given["weight"], given.get("padding", 0)
    stride, dilation = (each(given.get(name, 1), len(axes)) for name in ("stride", "dilation"))
    told = own if isinstance(own, str) else [(p, p) for p in each(own, len(axes))]
    fix = f"nn.Conv(padding={told!r})"
    reach = [(weight.shape[a] - 1) * gap + 1 for a, gap in zip(axes, dilation, strict=True)]
    widths = [
        same_padding(x.shape[axis], step, size)
        for axis, step, size in zip(axes, stride, reach, strict=True)
    ]
    cause = 'the padding is "SAME" in the port, which is uneven here; torch pads both ends alike'
    yield Guess("padding-mode", cause, fix, partial(_padded, called, x, widths))
    cause = 'the padding is "VALID" in the port: none at all'
    yield Guess("padding-mode", cause, fix, partial(called, padding=0))
    around = {
        "the port pads before the sequence only: it is causal": [(r - 1, 0) for r in reach],
        "the port pads after the end only": [(0, r - 1) for r in reach],
    }
    for cause, pads in around.items():
        yield Guess("padding-mode", cause, fix, partial(_padded, called, x, pads))
    for width in range(1, max(reach)):
        if width != own and (width,) * len(axes) != own:
            cause = f"the padding is {width} in the port, {own} in torch"
            yield Guess("padding-mode", cause, fix, partial(called, padding=width))
    for mode in ("reflect", "circular", "replicate"):
        if not isinstance(own, str) and any(each(own, len(axes))):
            cause = f"the padding is {mode} in the port, of zeros in torch"
            pads = [(p, p) for p in each(own, len(axes))]
            yield Guess("padding-mode", cause, fix, partial(_padded, called, x, pads, mode))


def same_padding(size: int, step: int, reach: int) -> tuple[int, int]:
    """Return how much SAME pads an axis at either end."""
    total = max((-(-size // step) - 1) * step + reach - size, 0)
    return total // 2, total - total // 2


def _padded(
    called: Callable[..., Tensor], x: Tensor, widths: list[tuple[int, int]], mode: str = "constant"
) -> Tensor:
    flat = [width for pair in reversed(widths) for width in pair]
    return called(input=functional.pad(x, flat, mode=mode), padding=0)


def _steps(called: Callable[..., Tensor], given: Given, axes: tuple[int, ...]) -> Iterator[Guess]:
    """Yield another stride or dilation."""
    for name, fix in (("stride", "strides"), ("dilation", "kernel_dilation")):
        own = each(given.get(name, 1), len(axes))
        for other in (1, 2, 3):
            if (other,) * len(axes) != own:
                cause = f"the {name} is {other} in the port, {own} in torch"
                answer = partial(called, **{name: other})
                yield Guess(f"conv-{name}", cause, f"nn.Conv({fix}={own})", answer)
    dilation, weight = each(given.get("dilation", 1), len(axes)), given["weight"]
    padding = given.get("padding", 0)
    if any(gap > 1 for gap in dilation) and not isinstance(padding, str):
        near = tuple((weight.shape[axis] - 1) // 2 for axis in axes)
        cause = 'the port leaves out the dilation, with padding "SAME"'
        answer = partial(called, dilation=1, padding=near)
        yield Guess("conv-dilation", cause, f"kernel_dilation={dilation}", answer)


def _crop(called: Callable[..., Tensor], given: Given, axes: tuple[int, ...]) -> Iterator[Guess]:
    """Yield a transposed convolution that is cut out of the whole at another place."""
    weight = given["weight"]
    own = each(given.get("padding", 0), len(axes))
    starts = [range(weight.shape[axis]) for axis in axes]
    fix = f"the padding that leaves out {own} entries in front"
    for start in itertools.product(*starts):
        if start == own or len(set(start)) > 1:
            continue
        cause = f"the port leaves out {start} entries of the whole in front, torch {own}"
        yield Guess("padding-mode", cause, fix, partial(_cut, called, given, start))


def _cut(called: Callable[..., Tensor], given: Given, start: tuple[int, ...]) -> Tensor:
    size = called().shape[2:]
    stride = each(given.get("stride", 1), len(size))
    whole = called(padding=0, output_padding=0)
    reach = [s + width for s, width in zip(start, size, strict=True)]
    short = [max(end - have, 0) for end, have in zip(reach, whole.shape[2:], strict=True)]
    if any(lack >= max(step, 2) for lack, step in zip(short, stride, strict=True)):
        raise ValueError("the window lies outside of what was computed")
    flat = [width for lack in reversed(short) for width in (0, lack)]
    whole = functional.pad(whole, flat)
    for axis, (first, width) in enumerate(zip(start, size, strict=True), 2):
        whole = whole.narrow(axis, first, width)
    return whole
