"""What the values inside an encoder tell: symptoms, each with cause and remedy."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float

from jax_input.leaves import BLOCKS, Leaf
from jax_input.symptoms import Finding
from jax_input.taps import Taps, is_pre_norm

# log(keys) - entropy, in nats; half the variance of the scores where it is small. Weights as
# PyTorch draws them give scores of deviation 2e-4 on inputs of deviation 0.02, the smallest in use,
# so 2e-8; equal scores give 1e-14, by rounding in float64.
UNIFORM = 1e-9
# The gradient of softmax is at most weight * (1 - weight): here a thousandth, of 0.25.
ONE_HOT = 0.999
# Trained heads that look at one token alone do so for many queries, not for nearly all of a layer.
SATURATED_SHARE = 0.95
# Inputs that are all alike leave every unit of weights drawn evenly about 0 on or off for all of
# them: half of them are dead. Of 16 units, 15 or more are so in 3 of 10,000 draws.
DEAD_SHARE = 0.9
# A unit that fires for half of the tokens misses so many by a chance of 2**-32.
LEAST_TOKENS = 32
# Without its input a sum is the sublayer times one number (1, or that of dropout) in all elements
# but those that underflow; with it no two elements agree.
LOST_SHARE = 0.99
# Elements by which a ratio that is the same for all is told from chance.
LEAST_ELEMENTS = 16


def tap_findings(
    leaves: list[Leaf], taps: Taps, mask: Bool[np.ndarray, "batch heads query key"] | None
) -> Iterator[Finding]:
    """Yield what the values inside tell, that of the published table first."""
    yield from _zero_output(leaves, taps)
    yield from _lost_residuals(taps)
    if "attention_weights" in taps:
        for layer, weights in enumerate(taps["attention_weights"]):
            yield from _attention(f"layers[{layer}].attention_weights", weights, mask)
    for layer, hidden in enumerate(taps.get("feed_forward_hidden", ())):
        yield from _dead_units(f"layers[{layer}].feed_forward_hidden", hidden)


def saturation(
    weights: Float[np.ndarray, "batch heads query key"],
    mask: Bool[np.ndarray, "batch heads query key"] | None,
) -> float:
    """Return the share of queries that put all weight on one of several keys."""
    allowed = _allowed(weights, mask)
    counted = (allowed.sum(axis=-1) > 1) & np.isfinite(weights).all(axis=-1)
    if not counted.any():
        return 0.0
    return float(np.mean(weights[counted].max(axis=-1) >= ONE_HOT))


def _allowed(
    weights: Float[np.ndarray, "batch heads query key"],
    mask: Bool[np.ndarray, "batch heads query key"] | None,
) -> Bool[np.ndarray, "batch heads query key"]:
    return np.broadcast_to(True if mask is None else mask, weights.shape)


def _zero_output(leaves: list[Leaf], taps: Taps) -> Iterator[Finding]:
    last = "feed_forward_sum" if is_pre_norm(leaves, taps) else "feed_forward_norm"
    if "final_norm" in taps:
        place, output = "final_norm", taps["final_norm"]
    elif last in taps and len(taps[last]):
        place, output = f"layers[{len(taps[last]) - 1}].{last}", taps[last][-1]
    else:
        return
    if output.size and not output.any():
        lost = bool(_lost_places(taps))
        yield Finding(
            "zero_output",
            place,
            "every output is exactly 0",
            "The residual was removed: what a sublayer does not pass on is gone."
            if lost
            else "Published: the residual was removed. Here sums hold more than their sublayer, so "
            "look at the scale of the last normalisation too.",
            "Return x + sublayer(x), and see that gamma is not 0.",
            0.0,
        )


def _lost_residuals(taps: Taps) -> Iterator[Finding]:
    if places := _lost_places(taps):
        others = f" and {len(places) - 1} more" if len(places) > 1 else ""
        yield Finding(
            "residual",
            places[0],
            f"the sum holds its sublayer alone here{others}: the signal is lost",
            "The residual was removed: the input of the sublayer is not in the sum.",
            "Return x + sublayer(x).",
            float(len(places)),
        )


def _lost_places(taps: Taps) -> list[str]:
    return [
        f"layers[{layer}].{name}_sum"
        for layer in range(len(taps.get("attention", taps.get("feed_forward", ()))))
        for name in BLOCKS
        if name in taps and f"{name}_sum" in taps
        if _is_lost(taps[name][layer], taps[f"{name}_sum"][layer])
    ]


def _is_lost(part: Float[np.ndarray, "*shape"], whole: Float[np.ndarray, "*shape"]) -> bool:
    if not (np.isfinite(part).all() and np.isfinite(whole).all()):
        return False
    if not whole.any():
        return True
    # One rounding of the sublayer times the factor of dropout, and one of what it is held against.
    eps = 2.0 ** -(10 if part.dtype == np.float16 else 7 if part.dtype.itemsize == 2 else 23)
    both = (part != 0) & (whole != 0)
    if both.sum() < LEAST_ELEMENTS:
        return False
    ratio = whole[both].astype(np.float64) / part[both].astype(np.float64)
    middle = np.median(ratio)
    return bool(np.mean(np.abs(ratio - middle) <= eps * abs(middle)) >= LOST_SHARE)


def _attention(
    place: str,
    weights: Float[np.ndarray, "batch heads query key"],
    mask: Bool[np.ndarray, "batch heads query key"] | None,
) -> Iterator[Finding]:
    allowed = _allowed(weights, mask)
    nowhere, everywhere = [], []
    for head in range(weights.shape[1]):
        own = np.where(allowed[:, head], weights[:, head], 0).astype(np.float64)
        keys = allowed[:, head].sum(axis=-1)
        finite = np.isfinite(own).all(axis=-1)
        if own.size and not weights[:, head].any():
            nowhere.append(head)
        elif (at := finite & (keys > 1)).any() and _deficit(own[at], keys[at]) <= UNIFORM:
            everywhere.append(head)
    if nowhere:
        yield Finding(
            "attends_nowhere",
            place,
            f"all weights are 0 in {_heads(nowhere)}",
            "No key is left: the mask hides all, or a bias added to the scores was too large.",
            "Pass a boolean mask, True = may attend; combine masks with & and |, not by adding.",
            float(len(nowhere)),
        )
    if everywhere:
        yield Finding(
            "attends_everywhere",
            place,
            f"weights are the same for all keys allowed, within {UNIFORM:.0e} nats, in "
            f"{_heads(everywhere)}",
            "All scores are equal: query or key weights are 0, or all tokens are the same.",
            "Look at the query and key kernels of these heads, and at the input of the layer.",
            float(len(everywhere)),
        )
    share = saturation(weights, mask)
    if share >= SATURATED_SHARE:
        yield Finding(
            "saturated",
            place,
            f"{share:.0%} of queries put {ONE_HOT} or more on one key: softmax passes no gradient",
            "Attention is not scaled by 1 / sqrt(head_dim), or query and key weights are too large",
            "Divide the scores by sqrt(head_dim); draw smaller weights; lower the learning rate.",
            share,
        )


def _deficit(weights: Float[np.ndarray, "rows key"], keys: Float[np.ndarray, " rows"]) -> float:
    """Return how far the entropy is below that of equal weights, at most, in nats."""
    total = weights.sum(axis=-1, keepdims=True)
    if not total.all():
        return np.inf
    share = weights / total
    logs = np.log(np.where(share > 0, share * keys[:, None], 1))
    return float((share * logs).sum(axis=-1).max())


def _heads(heads: list[int]) -> str:
    return ("head " if len(heads) == 1 else "heads ") + ", ".join(map(str, heads))


def _dead_units(place: str, hidden: Float[np.ndarray, "*batch d_ff"]) -> Iterator[Finding]:
    units = hidden.reshape(-1, hidden.shape[-1])
    if len(units) < LEAST_TOKENS:
        return
    share = float(np.mean(~units.any(axis=0)))
    if share > DEAD_SHARE:
        yield Finding(
            "dead_units",
            place,
            f"{share:.0%} of units are 0 for all {len(units)} tokens, above {DEAD_SHARE:.0%}",
            "They get no gradient any more: a step was too large, or a bias is far below 0.",
            'Lower the learning rate, draw these units again, or use activation="gelu".',
            share,
        )
