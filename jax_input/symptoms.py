"""What parameters, their gradients and their updates tell: symptoms, each with cause and remedy."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from jax_input.leaves import BLOCKS, Leaf, by_layer, norm, rms

# Published: below it training stands still. Adam moves an element by about the learning rate
# whatever its gradient, so that even 1e-5 moves elements of 0.05 by 2e-4 of themselves.
TINY_UPDATE = 1e-6
# The root mean square of gamma, which starts at 1: what passes, forward and backward, is a
# thousandth. In tens of steps of a healthy model it stays within a few tens of percent of 1.
SMALL_SCALE = 1e-3
# In post-norm a sum of two equal variances is divided by sqrt(2) in each of two sublayers, so that
# a gradient which passes along the residuals alone halves in each layer. Below a hundredth of that
# it vanishes by another cause.
HALVING = 0.5
# The sums of pre-norm grow as the square root of the layers at most, and so does the gradient on
# its way back; a hundredfold of the number of layers has another cause.
MARGIN = 100.0
# A score changes by the same amount for every key when this bias moves, and softmax does not see
# that: its gradient is 0 but for rounding, and says nothing.
WITHOUT_GRADIENT = "attention.key.bias"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
      code: what kind it is, one word for programs.
      place: where to look, such as "layers[2].attention_norm.scale".
      symptom: what was seen.
      cause: what it comes from.
      remedy: what to do.
      value: the number that was beyond its bound.
    """

    code: str
    place: str
    symptom: str
    cause: str
    remedy: str
    value: float


def parameter_findings(leaves: list[Leaf]) -> Iterator[Finding]:
    """Yield what parameters, gradients and updates tell, that of the published table first."""
    yield from _tiny_updates(leaves)
    yield from _small_scales(leaves)
    yield from _gradients_along_layers(leaves)
    yield from _moved(leaves)
    yield from _zero_gradients(leaves)


def _scales(leaves: list[Leaf]) -> dict[str, float]:
    """Return the size of each gamma by its place."""
    names = [f"{block}_norm.scale" for block in BLOCKS]
    return {
        leaf.place: rms(leaf.parameter)
        for leaf in leaves
        if leaf.name in names or leaf.name.endswith("final_norm.scale")
    }


def _tiny_updates(leaves: list[Leaf]) -> Iterator[Finding]:
    moving = [leaf for leaf in leaves if leaf.update is not None and not leaf.is_frozen]
    if moving and not any(leaf.update.any() for leaf in moving if leaf.update is not None):
        yield Finding(
            "no_update",
            "updates",
            "every update is exactly 0",
            "The learning rate is 0, as in the first step of a warm-up, or a mask stops all.",
            "Look at the schedule at this step, and at optax.masked or set_to_zero in the chain.",
            0.0,
        )
        return
    starved: dict[str, list[tuple[str, float]]] = {}
    scales = _scales(leaves)
    for layer, of_layer in by_layer(moving).items():
        for block in BLOCKS:
            ratio = _update_ratio([leaf for leaf in of_layer if _is_counted(leaf, block)])
            if ratio is not None and ratio < TINY_UPDATE:
                culprit = _culprit(leaves, layer, f"{layer}.{block}_norm.scale", scales)
                starved.setdefault(culprit, []).append((f"{layer}.{block}", ratio))
    for place, blocks in starved.items():
        yield _starved(place, blocks, scales.get(place))


def _is_counted(leaf: Leaf, block: str) -> bool:
    return leaf.name.startswith(f"{block}.") and leaf.name != WITHOUT_GRADIENT


def _update_ratio(leaves: list[Leaf]) -> float | None:
    size = norm(leaf.parameter for leaf in leaves)
    moved = norm(leaf.update for leaf in leaves if leaf.update is not None)
    return moved / size if size > 0 and math.isfinite(size) else None


def _culprit(leaves: list[Leaf], layer: str, own: str, scales: dict[str, float]) -> str:
    """Return the smallest gamma that the gradient meets before the layer, if small, or its own."""
    places = [leaf.place for leaf in leaves if leaf.place in scales]
    later = [leaf.place for leaf in leaves if leaf.layer == layer and leaf.place in scales]
    later += places[places.index(later[-1]) + 1 :] if later else []
    smallest = min(later, key=lambda place: scales[place], default=own)
    return smallest if scales.get(smallest, 1.0) < SMALL_SCALE else own


def _starved(place: str, blocks: list[tuple[str, float]], scale: float | None) -> Finding:
    worst, ratio = min(blocks, key=lambda block: block[1])
    others = f" and {len(blocks) - 1} more" if len(blocks) > 1 else ""
    if scale is not None and scale < SMALL_SCALE:
        cause = f"The LayerNorm scale (gamma) {place} is {scale:.1e}: gradients pass through it."
        remedy = "Set gamma back to 1, keep weight decay off it, and lower the learning rate."
    else:
        size = "" if scale is None else f" It is {scale:.2g} here, which is not small:"
        cause = (
            f"Published: the LayerNorm scale (gamma) {place}.{size} "
            "else the learning rate, or a gradient that vanishes."
        )
        remedy = "Look at gamma of that layer, then at the schedule and at the gradients below."
    symptom = f"|update| / |parameter| is {ratio:.1e} in {worst}{others}, below {TINY_UPDATE:.0e}"
    return Finding("update_ratio", place, symptom, cause, remedy, ratio)


def _small_scales(leaves: list[Leaf]) -> Iterator[Finding]:
    for place, scale in _scales(leaves).items():
        if scale < SMALL_SCALE:
            yield Finding(
                "layer_norm_scale",
                place,
                f"gamma has a root mean square of {scale:.1e}, below {SMALL_SCALE:.0e}",
                "It was driven to 0: its output is its bias, whatever comes in.",
                "Set gamma back to 1, keep weight decay off it, and lower the learning rate.",
                scale,
            )


def _gradients_along_layers(leaves: list[Leaf]) -> Iterator[Finding]:
    layers = by_layer(leaf for leaf in leaves if not leaf.is_frozen)
    for stack in dict.fromkeys(leaf.stack for leaf in leaves if leaf.layer is not None):
        norms = {
            layer: norm(leaf.gradient for leaf in of_layer)
            for layer, of_layer in layers.items()
            if of_layer[0].stack == stack
        }
        (first, at_first), *_, (last, at_last) = list(norms.items()) * 2 or [("", 0.0)] * 2
        if len(norms) < 2 or not at_last > 0 or not math.isfinite(at_first / at_last):
            continue
        ratio, highest = at_first / at_last, MARGIN * len(norms)
        lowest = HALVING ** (len(norms) - 1) / MARGIN
        seen = f"|gradient| of {first} is {ratio:.1e} of that of {last}, "
        if ratio < lowest:
            yield Finding(
                "vanishing",
                first,
                f"{seen}below {lowest:.1e}",
                "The gradient vanishes on its way down: small gammas, or residuals cut.",
                'Use norm="pre", or a warm-up; look for the layer where |gradient| drops.',
                ratio,
            )
        elif ratio > highest:
            yield Finding(
                "exploding",
                first,
                f"{seen}above {highest:.0f}",
                "The gradient grows on its way down: weights too large, or no normalisation.",
                "Clip by global norm, draw smaller weights; look for the layer where it grows.",
                ratio,
            )


def _moved(leaves: list[Leaf]) -> Iterator[Finding]:
    for leaf in leaves:
        if leaf.is_frozen and leaf.update is not None and leaf.update.any():
            yield Finding(
                "frozen_moves",
                leaf.place,
                f"its update is not 0, but of norm {norm([leaf.update]):.1e}",
                "The optimizer does not know that it is frozen: weight decay moves it, or momentum",
                "Give it optax.set_to_zero() by optax.partition; stop_gradient is not enough.",
                norm([leaf.update]),
            )


def _zero_gradients(leaves: list[Leaf]) -> Iterator[Finding]:
    known = [
        x for x in leaves if not x.is_frozen and x.name != WITHOUT_GRADIENT and x.gradient.size
    ]
    zero = [leaf for leaf in known if not leaf.gradient.any()]
    of_layer = by_layer(known)
    whole = {layer for layer, of in by_layer(zero).items() if len(of) == len(of_layer[layer])}
    for place in dict.fromkeys(x.layer if x.layer in whole else x.place for x in zero):
        yield Finding(
            "zero_gradient",
            str(place),
            "its gradient is exactly 0",
            "The loss does not depend on it: unused, masked, behind stop_gradient or a gamma of 0; "
            "or it is less than a half format can hold.",
            "If it is to be frozen, say so by `frozen`; in float16 scale the loss.",
            0.0,
        )
