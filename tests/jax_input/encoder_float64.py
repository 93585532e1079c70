"""The encoder by its formulas, in float64 NumPy, and how far off a rounded one may be."""

import math

import jax.numpy as jnp
import numpy as np

FLOATS = [np.float32, jnp.bfloat16, np.float16]


def draw(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def wide(x):
    return np.asarray(x).astype(np.float64)


def half_ulp(dtype):
    """Return by how much of itself a number is rounded at most."""
    return float(jnp.finfo(dtype).eps) / 2


def accumulation(dtype):
    """Return the same for sums, which are float32 for all narrower dtypes."""
    return half_ulp(np.float64 if np.dtype(dtype) == np.float64 else np.float32)


def attention(query, key, value, mask=None):
    """Return output, weights, and the sizes of the terms of each score, by example and head."""
    query, key, value = (wide(x).swapaxes(1, 2) for x in (query, key, value))
    shape = (*query.shape[:3], key.shape[2])
    seen = np.broadcast_to(True if mask is None else np.asarray(mask), shape)
    scale = math.sqrt(query.shape[-1])
    scores = query @ key.swapaxes(2, 3) / scale
    greatest = np.max(scores, axis=3, where=seen, initial=-1e300, keepdims=True)
    terms = np.where(seen, np.exp(np.where(seen, scores - greatest, 0)), 0)
    total = terms.sum(axis=3, keepdims=True)
    weights = terms / np.where(total == 0, 1, total)
    sizes = np.where(seen, np.abs(query) @ np.abs(key).swapaxes(2, 3) / scale, 0)
    return (weights @ value).swapaxes(1, 2), weights, sizes


def attention_bounds(query, key, value, mask=None):
    """Return how far off output and weights may be, from the roundings of each step.

    A score is a sum of head_dim products, times a rounded scale; a distance from the greatest is
    rounded once more, and exp is taken to be within 4 ulp. What is wrong in an exponent is wrong
    relatively in a term, and in their sum. Terms are rounded to the dtype, and so is the result.
    """
    dtype = np.asarray(value).dtype
    half, unit = half_ulp(dtype), accumulation(dtype)
    output, weights, sizes = attention(query, key, value, mask)
    head_dim, keys = np.shape(query)[-1], np.shape(key)[1]
    exponent = ((head_dim + 5) * sizes.max(axis=3, keepdims=True) + 4) * unit
    relative = np.expm1(2 * exponent) + (keys + 2) * unit
    of_weights = weights * relative
    spread = (of_weights + weights * ((keys + 1) * unit + half)) @ np.abs(
        wide(value).swapaxes(1, 2)
    )
    least = float(jnp.finfo(dtype).smallest_normal)
    return spread.swapaxes(1, 2) + half * np.abs(output) + least, of_weights


def dense(x, params, axes=1):
    y = np.tensordot(wide(x), wide(params["kernel"]), axes)
    return y + wide(params["bias"]) if "bias" in params else y


def dense_bound(x, params, axes=1):
    """Return how far off a linear layer may be: a sum of products and a bias, rounded once."""
    dtype = np.asarray(x).dtype
    sizes = {name: np.abs(wide(leaf)) for name, leaf in params.items()}
    terms = math.prod(np.shape(x)[-axes:])
    summed = (terms + 1) * accumulation(dtype) * dense(np.abs(wide(x)), sizes, axes)
    return summed + half_ulp(dtype) * (np.abs(dense(x, params, axes)) + summed)


def multi_head_attention(x, params, mask=None):
    output, weights, _ = attention(
        *(dense(x, params[name]) for name in ("query", "key", "value")), mask
    )
    return dense(output, params["out"], 2), weights


def layer_norm(x, params, eps=1e-5, form="standard"):
    x = wide(x)
    centred = x - x.mean(axis=-1, keepdims=True)
    if form == "standard":
        y = centred / np.sqrt(x.var(axis=-1, keepdims=True) + eps)
    else:
        y = centred / (x.std(axis=-1, ddof=1, keepdims=True) + eps)
    y = y * wide(params["scale"])
    return y + wide(params["bias"]) if "bias" in params else y


def activate(x, activation):
    if activation == "relu":
        return np.maximum(x, 0)
    if activation == "gelu":
        return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def feed_forward(x, params, activation="relu"):
    return dense(activate(dense(x, params["in"]), activation), params["out"])


def encoder_layer(x, params, config, mask=None):
    steps = {
        "attention": lambda x, given: multi_head_attention(x, given, mask)[0],
        "feed_forward": lambda x, given: feed_forward(x, given, config.activation),
    }
    for name, step in steps.items():

        def norm(x, name=name):
            return layer_norm(x, params[f"{name}_norm"], config.eps, config.norm_form)

        if config.norm == "pre":
            x = x + step(norm(x), params[name])
        else:
            x = norm(x + step(x, params[name]))
    return x
