"""Example calls of what makes masks and converts them."""

import jax.numpy as jnp
import numpy as np

from jax_input.mask_conventions import (
    mask_from_attn_mask,
    mask_from_bias,
    mask_from_key_padding,
    mask_from_sdpa,
)
from jax_input.masks import (
    block_diagonal_mask,
    causal_mask,
    local_window_mask,
    mask_to_bias,
    padding_mask,
    segment_mask,
)
from tests.example import Example

HIDDEN = np.random.default_rng(1).random((6, 4, 5)) < 0.5
SEGMENTS = np.array([[1, 1, 1, 2, 2, 3, 0], [4, 4, 4, 4, 4, 1, 1]], np.int32)
BIAS = np.where(HIDDEN, -1e9, 0).astype(np.float32)

MASKS = [
    Example(
        padding_mask,
        "any side",
        lambda is_token: padding_mask(is_token, padding_side="any"),
        (HIDDEN[0],),
    ),
    Example(causal_mask, "five", lambda: causal_mask(5)),
    Example(local_window_mask, "to the left", lambda: local_window_mask(5, (2, 0))),
    Example(block_diagonal_mask, "of two", lambda: block_diagonal_mask(5, 2)),
    Example(segment_mask, "packed", segment_mask, (SEGMENTS,)),
    Example(mask_to_bias, "float32", mask_to_bias, (HIDDEN,)),
    Example(mask_to_bias, "float16", lambda mask: mask_to_bias(mask, jnp.float16), (HIDDEN,)),
    Example(mask_from_key_padding, "drawn", mask_from_key_padding, (HIDDEN[0],)),
    Example(mask_from_attn_mask, "two axes", mask_from_attn_mask, (HIDDEN[0],)),
    Example(
        mask_from_attn_mask,
        "heads",
        lambda attn_mask: mask_from_attn_mask(attn_mask, num_heads=3),
        (HIDDEN,),
    ),
    Example(mask_from_sdpa, "three axes", mask_from_sdpa, (HIDDEN,)),
    Example(mask_from_bias, "drawn", mask_from_bias, (BIAS,), casts=False),
]
