"""Faults of the encoder: those that ports of it are known for, each told at its own step."""

from tests.mutants.fault import Fault

_ATTENTION = "jax_input/attention.py"
_DENSE = "jax_input/dense.py"
_LAYERS = "jax_input/layers.py"
_HEADS = "attention/multi_head[padding, float32]"
_DRAWN = "attention/dropout[rate 0.25, float32, jit]"
_NORM = "layers/layer_norm[standard, float32, jit]"
_SLOPES = (
    "gradient/x gradient/attention/query gradient/attention/key gradient/attention/value "
    "gradient/attention/out gradient/norms gradient/feed_forward/in gradient/feed_forward/out"
)
_FEED_FORWARD = "feed_forward_hidden feed_forward feed_forward_sum feed_forward_norm output"
_LAST = "final_norm output gradient/x gradient/final_norm " + " ".join(
    f"gradient/layer.{layer}/{name}"
    for layer in (0, 1)
    for name in (
        *("attention/query", "attention/key", "attention/value", "attention/out"),
        *("norms", "feed_forward/in", "feed_forward/out"),
    )
)
_EVERYTHING = "weights output gradient/x gradient/query gradient/key gradient/value gradient/out"
_LAYER = "layers/encoder_layer[post, gelu, padding, float32]"
_ENCODER = "encoder/encoder[pre, gelu, padding, bfloat16]"

# What a layer multiplies by, and how it splits the heads.
DENSE = (
    Fault(
        "a kernel is taken transposed",
        _DENSE,
        "kernel.reshape(contracted, -1).astype",
        "kernel.reshape(contracted, -1).T.reshape(contracted, -1).astype",
        _HEADS,
        _EVERYTHING,
    ),
    Fault(
        "heads are interleaved where they should be side by side",
        _ATTENTION,
        "    return jnp.split(y, [*ends][:-1], axis=-1)\n",
        "    parts = jnp.split(y, [*ends][:-1], axis=-1)\n"
        "    shapes = ((*part.shape[:2], part.shape[3], part.shape[2]) for part in parts)\n"
        "    turned = (p.reshape(shape) for p, shape in zip(parts, shapes, strict=True))\n"
        "    return [part.swapaxes(2, 3) for part in turned]\n",
        _HEADS,
        _EVERYTHING,
    ),
)

# Scores and masks.
ATTENTION = (
    Fault(
        "scores are not scaled",
        _ATTENTION,
        "    scores *= wide.type(query.shape[-1] ** -0.5)\n",
        "",
        _HEADS,
        _EVERYTHING,
    ),
    Fault(
        "queries and keys are swapped",
        _ATTENTION,
        "matmul(query, key, ",
        "matmul(key.T, query.T, ",
        _HEADS,
        _EVERYTHING,
    ),
    Fault(
        "a mask hides what it should show",
        _ATTENTION,
        "mask = jnp.broadcast_to(mask, scores.shape)",
        "mask = ~jnp.broadcast_to(mask, scores.shape)",
        _HEADS,
        _EVERYTHING,
    ),
    Fault(
        "a mask is added as zeros and ones",
        _ATTENTION,
        "        mask = jnp.broadcast_to(mask, scores.shape)\n"
        "        scores = jnp.where(mask, scores, jnp.finfo(wide).min)\n"
        "    greatest = lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))\n"
        "    terms = jnp.exp(scores - greatest)\n"
        "    if mask is not None:\n"
        "        terms = jnp.where(mask, terms, 0)\n",
        "        scores = scores + jnp.broadcast_to(mask, scores.shape).astype(wide)\n"
        "    greatest = lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))\n"
        "    terms = jnp.exp(scores - greatest)\n",
        _HEADS,
        _EVERYTHING,
    ),
    Fault(
        "all heads drop the same weights",
        _ATTENTION,
        "keys = jax.random.split(require_key(dropout_key), query.shape[:2])",
        "keys = jax.random.split(require_key(dropout_key), query.shape[:1])[:, None]\n"
        "        keys = jnp.broadcast_to(keys, query.shape[:2])",
        _DRAWN,
        "mask",
    ),
)

# Norms, activation, and the order of a layer.
LAYERS = (
    Fault(
        "eps is Flax's",
        "jax_input/normalization.py",
        "    eps: float = 1e-5,\n",
        "    eps: float = 1e-6,\n",
        _NORM,
        "output gradient/x gradient/scale",
    ),
    Fault(
        "gelu is the approximation",
        "jax_input/ffn.py",
        "approximate=False",
        "approximate=True",
        _LAYER,
        f"{_FEED_FORWARD} {_SLOPES}",
    ),
    Fault(
        "a sublayer is not added to its input",
        _LAYERS,
        "= widen(x) + widen(dropout(y,",
        "= widen(dropout(y,",
        _LAYER,
        f"attention_sum attention_norm {_FEED_FORWARD} {_SLOPES}",
    ),
    Fault(
        "a layer normalises before a sublayer, not after it",
        _LAYERS,
        "    x = require_vectors(x, config.d_model)\n",
        "    x = require_vectors(x, config.d_model)\n"
        '    config = type(config)(**{**vars(config), "norm": "pre"})\n',
        _LAYER,
        f"attention_weights attention attention_sum attention_norm {_FEED_FORWARD} {_SLOPES}",
    ),
    Fault(
        "the last norm is left out",
        "jax_input/stack.py",
        '        x = layer_norm(x, params["final_norm"], eps=config.eps, form=config.norm_form)\n',
        "",
        _ENCODER,
        _LAST,
    ),
)

FAULTS = (*DENSE, *ATTENTION, *LAYERS)
