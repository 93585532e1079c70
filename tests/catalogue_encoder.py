"""Example calls of attention, of the layers, and of the encoder made of them."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_input.attention import dot_product_attention, multi_head_attention
from jax_input.config import EncoderConfig
from jax_input.ffn import feed_forward
from jax_input.initial import encoder_params
from jax_input.layers import encoder_layer
from jax_input.library_attention import jax_nn_attention
from jax_input.normalization import layer_norm
from jax_input.stack import encoder
from tests.example import Example

GENERATOR = np.random.default_rng(2)
BATCH, LENGTH, HEADS, D_MODEL, D_FF = 2, 5, 2, 8, 12
CONFIG = EncoderConfig(
    num_layers=2,
    d_model=D_MODEL,
    num_heads=HEADS,
    d_ff=D_FF,
    norm="pre",
    final_norm=True,
    activation="gelu",
)
SHAPES = jax.eval_shape(lambda key: encoder_params(key, CONFIG), jax.random.key(0))
LAYER = jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), SHAPES["layers"]
)
X = GENERATOR.standard_normal((BATCH, LENGTH, D_MODEL)).astype(np.float32)
THREE = GENERATOR.standard_normal((3, BATCH, LENGTH, HEADS, 4)).astype(np.float32)
MASK = GENERATOR.random((BATCH, 1, LENGTH, LENGTH)) < 0.7
KEY = jax.random.key(3)

# A score sums 4 products and is below 4 or so, which its exponential multiplies by; then 5 terms
# are summed, and 5 products.
OF_ATTENTION = 4 * (4 + 5) + 5 + 5
# Query and key are sums of 8 products before, and what comes out is one.
OF_HEADS = 4 * 2 * D_MODEL + OF_ATTENTION + D_MODEL
OF_NORM = 2 * D_MODEL
OF_FEED_FORWARD = D_MODEL + D_FF
OF_LAYER = OF_HEADS + OF_FEED_FORWARD + 2 * OF_NORM


def packed(shapes: Any) -> np.ndarray:
    """Return parameters as one array, so that a law over each argument takes them at once."""
    size = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    return (GENERATOR.standard_normal(size) / 2).astype(np.float32)


def taking(shapes: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``call`` with its second argument as ``packed`` has it."""
    leaves, tree = jax.tree.flatten(shapes)
    ends = np.cumsum([math.prod(leaf.shape) for leaf in leaves])

    def from_packed(x: Any, flat: Any, *others: Any) -> Any:
        parts = jnp.split(jnp.asarray(flat), ends[:-1].tolist())
        given = [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
        return call(x, jax.tree.unflatten(tree, given), *others)

    return from_packed


def of_params(
    function: Any, case: str, shapes: Any, call: Any, *others: Any, **options: Any
) -> Any:
    arguments = (X, packed(shapes), *others)
    return Example(function, case, taking(shapes, call), arguments, (0, 1), **options)


def drawn_parameters(key: Any) -> jax.Array:
    """Return the first leaf that is drawn and the last: the others take as long to compile."""
    layers = encoder_params(key, CONFIG)["layers"]
    leaves = (layers["attention"]["query"]["kernel"], layers["feed_forward"]["out"]["kernel"])
    return jnp.concatenate([leaf.ravel() for leaf in leaves])


ENCODER = [
    Example(
        dot_product_attention,
        "plain",
        dot_product_attention,
        tuple(THREE),
        smooth=(0, 1, 2),
        summed=OF_ATTENTION,
        rounded=2,
    ),
    Example(
        dot_product_attention,
        "mask and dropout",
        lambda query, key, value, mask, dropout_key: dot_product_attention(
            query, key, value, mask=mask, dropout_rate=0.15, dropout_key=dropout_key
        ),
        (*THREE, MASK, KEY),
        smooth=(0, 1, 2),
        summed=OF_ATTENTION,
        rounded=2,
    ),
    Example(
        jax_nn_attention,
        "masked",
        lambda query, key, value, mask: jax_nn_attention(query, key, value, mask=mask),
        (*THREE, MASK),
        smooth=(0, 1, 2),
        summed=OF_ATTENTION,
        casts=False,  # JAX's own promotes types, and takes its softmax in float32
        in_float64=lambda query, key, value, mask: dot_product_attention(
            query, key, value, mask=mask
        ),
    ),
    of_params(
        multi_head_attention,
        "masked",
        LAYER["attention"],
        lambda x, params, mask: multi_head_attention(x, params, mask=mask),
        MASK,
        summed=OF_HEADS,
        casts=False,
    ),
    of_params(
        layer_norm, "standard", LAYER["attention_norm"], layer_norm, summed=OF_NORM, rounded=1
    ),
    of_params(
        layer_norm,
        "annotated",
        LAYER["attention_norm"],
        lambda x, params: layer_norm(x, params, form="annotated", eps=1e-6),
        summed=OF_NORM,
        rounded=1,
    ),
    of_params(
        feed_forward,
        "gelu and dropout",
        LAYER["feed_forward"],
        lambda x, params, key: feed_forward(
            x, params, activation="gelu", dropout_rate=0.15, dropout_key=key
        ),
        KEY,
        summed=OF_FEED_FORWARD,
        rounded=4,
    ),
    of_params(
        encoder_layer,
        "masked",
        LAYER,
        lambda x, params, mask: encoder_layer(x, params, CONFIG, mask=mask),
        MASK,
        summed=OF_LAYER,
        casts=False,
    ),
    of_params(
        encoder,
        "masked",  # without dropout, whose draws take most of the time to compile
        SHAPES,
        lambda x, params, mask: encoder(x, params, CONFIG, mask=mask),
        MASK,
        summed=CONFIG.num_layers * OF_LAYER + OF_NORM,
        casts=False,
    ),
    Example(encoder_params, "two leaves", drawn_parameters, (KEY,)),
]
