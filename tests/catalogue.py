"""Every public function of ``jax_input`` with example calls, for the laws that all of them keep."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_input.embedding import embed_tokens
from jax_input.inputs import dropout, transformer_input
from jax_input.positions import (
    add_positions,
    position_ids,
    positions_from_mask,
    positions_from_segments,
)
from jax_input.sinusoidal import DIFFUSERS, TENSOR2TENSOR, encode_positions, sinusoidal_table
from tests.catalogue_encoder import ENCODER
from tests.catalogue_masks import MASKS
from tests.example import Example, same_bits, stacked, variants

__all__ = ["CAST", "EXAMPLES", "SMOOTH", "same_bits", "stacked", "variants"]

VOCAB_SIZE, MAX_LEN, D_MODEL = 50, 40, 300  # the square root of 300 is no power of two
GENERATOR = np.random.default_rng(0)
TOKEN_IDS = GENERATOR.integers(1, VOCAB_SIZE, (2, 7)).astype(np.int32)
PADDED_IDS = np.where(np.arange(7) < [[7], [4]], TOKEN_IDS, 0)
POSITIONS = GENERATOR.integers(0, MAX_LEN, (2, 7)).astype(np.int32)
EMBEDDING = GENERATOR.standard_normal((VOCAB_SIZE, D_MODEL)).astype(np.float32)
TABLE = GENERATOR.standard_normal((MAX_LEN, D_MODEL)).astype(np.float32)
X = GENERATOR.standard_normal((2, 7, D_MODEL)).astype(np.float32)
KEPT = GENERATOR.random((2, 7, D_MODEL)) < 0.8
SEGMENTS = np.array([[1, 1, 1, 2, 2, 3, 0], [4, 4, 4, 4, 4, 1, 1]], np.int32)
TIMESTEPS = np.array([0.5, 999.0, 3.25, -12.0], np.float32)


def encoded(**options: Any) -> Callable[..., jax.Array]:
    return lambda positions: encode_positions(positions, 7, **options)


EXAMPLES = [
    Example(sinusoidal_table, "paper", lambda: sinusoidal_table(130, 7), casts=False),
    Example(
        sinusoidal_table,
        "tensor2tensor, bfloat16",
        lambda: sinusoidal_table(5, 64, sinusoid=TENSOR2TENSOR, dtype=jnp.bfloat16),
        casts=False,
    ),
    Example(encode_positions, "integers", encoded(), (POSITIONS,), casts=False),
    Example(
        encode_positions,
        "float16",
        encoded(sinusoid=DIFFUSERS, dtype=np.float16),
        (POSITIONS,),
        casts=False,
    ),
    Example(
        encode_positions,
        "timesteps",
        encoded(),
        (TIMESTEPS,),
        smooth=(0,),
        casts=False,
        in_float64=lambda t: encode_positions(t.astype(np.float32), 7, dtype=np.float64),
    ),
    Example(embed_tokens, "plain", embed_tokens, (TOKEN_IDS, EMBEDDING), smooth=(1,)),
    Example(
        embed_tokens,
        "scaled",
        lambda ids, w: embed_tokens(ids, w, scale="sqrt"),
        (TOKEN_IDS, EMBEDDING),
        smooth=(1,),
    ),
    Example(
        embed_tokens,
        "padding",
        lambda ids, w: embed_tokens(ids, w, scale="sqrt", padding_idx=0),
        (PADDED_IDS, EMBEDDING),
        smooth=(1,),
        withheld=True,
    ),
    Example(
        embed_tokens,
        "zero padding",
        lambda ids, w: embed_tokens(ids, w, scale=0.3, padding_idx=0, zero_padding=True),
        (PADDED_IDS, EMBEDDING),
        smooth=(1,),
    ),
    *(
        Example(
            embed_tokens,
            f"out of range, {policy}",
            lambda ids, w, policy=policy: embed_tokens(ids, w, scale=1.7, out_of_range=policy),
            (TOKEN_IDS * 2 - VOCAB_SIZE, EMBEDDING),
            smooth=(1,) if policy != "nan" else (),
        )
        for policy in ("nan", "clip", "zero")
    ),
    Example(position_ids, "offset", lambda offset: position_ids(6, offset=offset), (np.int32(3),)),
    Example(positions_from_mask, "left and right", positions_from_mask, (PADDED_IDS > 20,)),
    Example(positions_from_segments, "packed", positions_from_segments, (SEGMENTS,)),
    Example(add_positions, "default", add_positions, (X, TABLE), smooth=(0, 1)),
    Example(
        add_positions,
        "positions",
        lambda x, table, positions: add_positions(x, table, positions=positions),
        (X, TABLE, POSITIONS),
        smooth=(0, 1),
    ),
    Example(
        dropout,
        "mask",
        lambda x, mask: dropout(x, 0.15, mask=mask),
        (X, KEPT),
        smooth=(0,),
    ),
    Example(
        dropout,
        "key",
        lambda x, key: dropout(x, 0.15, key=key),
        (X, jax.random.key(0)),
        smooth=(0,),
    ),
    Example(transformer_input, "plain", transformer_input, (TOKEN_IDS, EMBEDDING, TABLE), (1, 2)),
    Example(
        transformer_input,
        "everything",
        lambda ids, w, table, positions, key: transformer_input(
            ids,
            w,
            table,
            positions=positions,
            scale=1.7,
            padding_idx=0,
            dropout_rate=0.15,
            dropout_key=key,
        ),
        (PADDED_IDS, EMBEDDING, TABLE, POSITIONS, jax.random.key(1)),
        smooth=(1, 2),
        withheld=True,
    ),
    *MASKS,
    *ENCODER,
]
SMOOTH = [example for example in EXAMPLES if example.smooth]
CAST = [
    example.cast(jnp.bfloat16)
    for example in EXAMPLES
    if example.casts and any(given.dtype == np.float32 for given in example.arguments)
]
CAST += [
    example.cast(np.float16)
    for example in EXAMPLES
    if example.casts and example.case in {"scaled", "positions", "mask", "everything"}
]
