"""PyTorch: pooling, padding and resizing of images, of another kind or size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from parity.frameworks.torch_calls import Call
from parity.mistakes.convolutions import same_padding
from parity.mistakes.guess import Guess, each, given_to

_POOL = ("input", "kernel_size", "stride", "padding")
_SHARED = ("kernel_size", "stride", "padding")
_OTHER = {"max": "avg", "avg": "max"}


def image_mistakes(call: Call) -> Iterator[Guess]:
    """Yield mistakes of what makes an image smaller or larger."""
    if call.name[:-2] in ("max_pool", "avg_pool"):
        yield from _pool(call)
    if call.name[:-2] in ("adaptive_avg_pool", "adaptive_max_pool"):
        yield from _adaptive(call)
    if call.name == "pad":
        yield from _pad(call)
    if call.name in ("interpolate", "upsample"):
        yield from _resize(call)
    if call.name == "pixel_shuffle":
        cause = (
            "the port takes the channels of a block first: [r, r, channels], not [channels, r, r]"
        )
        answer = partial(_blocks_first, *call.places[:2])
        yield Guess("pixel-order", cause, "x.reshape(..., channels, r, r)", answer)


def _pool(call: Call) -> Iterator[Guess]:
    kind, dims = call.name[:3], int(call.name[-2])
    given = given_to(call, *_POOL)
    x, size, own_stride = given["input"], given["kernel_size"], given.get("stride")
    own_stride = size if own_stride in (None, []) else own_stride
    other = _OTHER[kind]
    function = getattr(functional, f"{other}_pool{dims}d")
    shared = {name: given[name] for name in _SHARED if name in given}
    cause = f"the pool takes the {other} in the port, the {kind} in torch"
    yield Guess("pool-kind", cause, f"nn.{kind}_pool", partial(function, x, **shared))
    yield from _average(call, given, dims) if kind == "avg" else _maximum(call, given, dims)
    window = tuple(zip(each(size, dims), each(own_stride, dims), strict=True))
    pads = [
        same_padding(width, step, reach)
        for width, (reach, step) in zip(x.shape[2:], window, strict=True)
    ]
    cause = 'the padding of the pool is "SAME" in the port'
    fix = f"padding={[(p, p) for p in each(given.get('padding', 0), dims)]}"
    fill = -torch.inf if kind == "max" else 0.0
    yield Guess("pool-padding", cause, fix, partial(_padded, call, given, pads, fill))
    for stride in sorted({1, 2, *each(size, dims)} - {*each(own_stride, dims)}):
        cause = f"the pool has strides of {stride} in the port, {own_stride} in torch"
        more = {**given, "stride": stride}
        fix = f"nn.{kind}_pool(strides={each(own_stride, dims)})"
        yield Guess("pool-stride", cause, fix, partial(call.function, **more))


def _average(call: Call, given: dict[str, Any], dims: int) -> Iterator[Guess]:
    area = prod(each(given["kernel_size"], dims))
    cause = "the port sums over the window, torch takes the mean"
    yield Guess("pool-kind", cause, "nn.avg_pool", partial(_times, call, area))
    if any(each(given.get("padding", 0), dims)):
        own = given.get("count_include_pad", True)
        words = ("leaves out", "counts") if own else ("counts", "leaves out")
        cause = f"the mean {words[0]} the padding in the port, {words[1]} it in torch"
        fix = f"nn.avg_pool(count_include_pad={own})"
        more = {**given, "count_include_pad": not own}
        yield Guess("pool-padding", cause, fix, partial(call.function, **more))


def _maximum(call: Call, given: dict[str, Any], dims: int) -> Iterator[Guess]:
    padding = each(given.get("padding", 0), dims)
    if any(padding):
        cause = "the port pads with zeros before it takes the greatest, torch with -inf"
        answer = partial(_padded, call, given, [(p, p) for p in padding], 0.0)
        fix = f"nn.max_pool(padding={[(p, p) for p in padding]}): it pads with -inf"
        yield Guess("pool-padding", cause, fix, answer)


def _times(call: Call, factor: float) -> Tensor:
    result: Tensor = call() * factor
    return result


def _padded(call: Call, given: dict[str, Any], pads: list[tuple[int, int]], fill: float) -> Tensor:
    flat = [width for pair in reversed(pads) for width in pair]
    wide = functional.pad(given["input"], flat, value=fill)
    result: Tensor = call.function(**{**given, "input": wide, "padding": 0})
    return result


def _adaptive(call: Call) -> Iterator[Guess]:
    kind, dims = call.name.split("_")[1], call.name[-2:]
    x, size = call.places[0], (*call.places, call.named.get("output_size"))[1]
    function = getattr(functional, f"adaptive_{_OTHER[kind]}_pool{dims}")
    cause = f"the pool takes the {_OTHER[kind]} in the port, the {kind} in torch"
    fix = f"jnp.{ {'avg': 'mean', 'max': 'max'}[kind] }(x, axis=(1, 2))"
    yield Guess("pool-kind", cause, fix, partial(function, x, size))
    if kind == "avg" and all(width in (1, None) for width in each(size, int(dims[0]))):
        cause = "the port sums over the image, torch takes the mean"
        yield Guess("pool-kind", cause, fix, partial(_times, call, prod(x.shape[2:])))


def _pad(call: Call) -> Iterator[Guess]:
    given = given_to(call, "input", "pad", "mode", "value")
    x, pad, own = given["input"], [*given["pad"]], given.get("mode", "constant")
    for mode in ("constant", "reflect", "replicate", "circular"):
        if mode != own:
            cause = f"the padding is {mode} in the port, {own} in torch"
            answer = partial(functional.pad, x, pad, mode=mode)
            yield Guess("padding-mode", cause, "jnp.pad(x, widths, mode=...)", answer)
    swapped = [pad[i ^ 1] for i in range(len(pad))]
    if swapped != pad:
        cause = "the port pads at the other end"
        answer = partial(call.function, **{**given, "pad": swapped})
        yield Guess("padding-mode", cause, f"widths {pad} from the last axis on", answer)


def _resize(call: Call) -> Iterator[Guess]:
    given = given_to(call, "input", "size", "scale_factor", "mode", "align_corners")
    own = given.get("mode", "nearest")
    aligned = bool(given.get("align_corners"))
    smooth = {3: "linear", 4: "bilinear", 5: "trilinear"}[given["input"].dim()]
    choices: list[tuple[str, bool | None, bool]]
    choices = [("nearest", None, False), ("nearest-exact", None, False)]
    kinds = [smooth, *(["bicubic"] if smooth == "bilinear" else [])]
    choices += [(kind, corners, False) for kind in kinds for corners in (False, True)]
    choices += [(kind, False, True) for kind in kinds if smooth == "bilinear"]
    for mode, corners, antialias in choices:
        if (mode, bool(corners), antialias) == (own, aligned, bool(given.get("antialias"))):
            continue
        words = f"{mode}, align_corners={bool(corners)}, antialias={antialias}"
        cause = f"the port resizes by {words}; torch by {own}, align_corners={aligned}"
        fix = f'jax.image.resize(x, shape, "{own}", antialias=False)'
        more = {**given, "mode": mode, "align_corners": corners, "antialias": antialias}
        yield Guess("resize-kind", cause, fix, partial(call.function, **more))


def _blocks_first(x: Tensor, factor: int) -> Tensor:
    blocks = x.unflatten(1, (factor, factor, -1))
    return functional.pixel_shuffle(blocks.movedim(3, 1).flatten(1, 3), factor)
