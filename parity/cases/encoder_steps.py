"""The steps of an encoder that are no sums or products, with their errors: see `running_error`."""

import math

import numpy as np

from parity.cases.expected import WIDE, half_ulp
from parity.cases.running_error import FUNCTION, Node, Noisy, step

# Within so many deviations of its kink, relu's slope may be 0 or 1 on either side.
_KINK = 6.0
_erf = np.vectorize(math.erf, otypes=[float])


def softmax(scores: Node, mask: np.ndarray | None) -> Node:
    """Return the weights of the keys, zeros where a mask hides them; rows may be all zero."""
    kept = np.broadcast_to(True if mask is None else mask, scores.value.shape)
    least = np.where(kept, scores.value, -np.inf).max(-1, keepdims=True)
    distance = np.where(kept, scores.value - np.where(np.isfinite(least), least, 0.0), 0.0)
    terms = np.where(kept, np.exp(distance), 0.0)
    weights = terms / np.where(kept.any(-1, keepdims=True), terms.sum(-1, keepdims=True), 1.0)
    keys = weights.shape[-1]

    def along(variance: np.ndarray) -> np.ndarray:
        """Carry on a variance by the derivative, weights * (one - weights)."""
        others = np.sum(weights**2 * variance, -1, keepdims=True) - weights**2 * variance
        return weights**2 * ((1 - weights) ** 2 * variance + others)

    # The distance from the greatest, exponential and quotient, and the sum.
    own = weights * np.sqrt((WIDE * distance) ** 2 + 2 * FUNCTION**2 + keys * WIDE**2)
    result = Noisy(weights, along(scores.variance)).noisier(own)

    def pull(slope: Noisy) -> Noisy:
        d = slope.value
        mean = np.sum(weights * d, -1, keepdims=True)
        size = np.abs(d) + np.sum(weights * np.abs(d), -1, keepdims=True)
        relative = np.divide(result.variance, weights**2, out=np.zeros_like(d), where=weights > 0)
        variance = along(slope.variance) + relative * (weights * (d - mean)) ** 2
        variance += weights**2 * np.sum(d**2 * result.variance, -1, keepdims=True)
        noisy = Noisy(weights * (d - mean), variance)
        return noisy.noisier(weights * size * (np.sqrt(keys) * WIDE + FUNCTION))

    return step(result, (scores, pull))


def half_weights(weights: Node, dtype: str) -> Node:
    """Round the weights as one of the sides does, before they are divided by their sum."""
    greatest = np.max(weights.value, -1, keepdims=True)
    terms = weights.value / np.where(greatest == 0, 1.0, greatest)
    off = half_ulp(terms, dtype) * greatest
    return step(weights.noisier(off), (weights, lambda slope: _rounded_off(slope, dtype)))


def _rounded_off(slope: Noisy, dtype: str) -> Noisy:
    return slope.noisier(half_ulp(np.abs(slope.value) + np.sqrt(slope.variance), dtype))


def normalised(x: Node, eps: float, form: str) -> Node:
    """Return each vector with mean 0 and deviation 1, in either form of ``layer_norm``."""
    size = x.value.shape[-1]
    centred = x.value - x.value.mean(-1, keepdims=True)
    squares = np.sum(centred**2, -1, keepdims=True)
    if form == "standard":
        below = np.sqrt(squares / size + eps)
        coupling = np.full_like(below, 1 / size)
    else:
        deviation = np.sqrt(squares / (size - 1))
        below = deviation + eps
        coupling = below / ((size - 1) * deviation)
    y = centred / below
    slope = (np.eye(size) - 1 / size - coupling[..., None] * y[..., None] * y[..., None, :]) / (
        below[..., None]
    )
    # The mean moves all of a vector alike; each distance from it, and the quotient, have roundings.
    mean = WIDE * np.sqrt(size) * np.abs(x.value).mean(-1, keepdims=True) / below
    own = np.hypot(mean, np.abs(y) * (WIDE * math.sqrt(size) / 2 + 2 * FUNCTION))
    result = Noisy(y, np.einsum("...ij,...j", slope**2, x.variance)).noisier(own)
    turned = np.sum(y**2 * x.variance, -1) * (coupling[..., 0] / below[..., 0]) ** 2

    def pull(d: Noisy) -> Noisy:
        along = np.mean(d.value * y, -1, keepdims=True)
        value = np.einsum("...ij,...j", slope, d.value)
        variance = np.einsum("...ij,...j", slope**2, d.variance) + turned[..., None] * value**2
        across = np.mean(d.value**2 * result.variance, -1, keepdims=True) * y**2 / size
        variance += (across + result.variance * along**2) / below**2
        sizes = np.abs(d.value) + np.abs(d.value).mean(-1, keepdims=True)
        sizes += np.abs(y) * np.mean(np.abs(d.value * y), -1, keepdims=True)
        return Noisy(value, variance).noisier(sizes / below * (size**0.5 * WIDE + 2 * FUNCTION))

    return step(result, (x, pull))


def activated(x: Node, activation: str) -> Node:
    """Return relu, gelu or its approximation by a hyperbolic tangent."""
    if activation == "relu":
        return _relu(x)
    z = x.value
    if activation == "gelu":
        share, slope = (1 + _erf(z / math.sqrt(2))) / 2, np.exp(-(z**2) / 2) / math.sqrt(2 * np.pi)
        bend = (2 - z**2) * slope
    else:
        c, inner = math.sqrt(2 / np.pi), 0.044715
        tanh, grow = np.tanh(c * (z + inner * z**3)), c * (1 + 3 * inner * z**2)
        share, slope = (1 + tanh) / 2, (1 - tanh**2) * grow / 2
        bend = 2 * slope - 2 * tanh * grow * z * slope + (1 - tanh**2) * 3 * c * inner * z**2
    first = share + z * slope
    result = Noisy(z * share, first**2 * x.variance).noisier(2 * FUNCTION * np.abs(z))

    def pull(d: Noisy) -> Noisy:
        variance = first**2 * d.variance + (d.value * bend) ** 2 * x.variance
        off = FUNCTION * np.abs(d.value) * (2 + np.abs(z * slope) * (2 + z**2))
        return Noisy(first * d.value, variance).noisier(off)

    return step(result, (x, pull))


def _relu(x: Node) -> Node:
    is_open = x.value > 0
    is_kink = np.abs(x.value) <= _KINK * np.sqrt(x.variance)
    result = Noisy(np.maximum(x.value, 0.0), np.where(is_open | is_kink, x.variance, 0.0))
    return step(
        result,
        (
            x,
            lambda d: Noisy(
                np.where(is_open, d.value, 0.0),
                np.where(is_open | is_kink, d.variance, 0.0) + np.where(is_kink, d.value**2, 0.0),
            ),
        ),
    )
