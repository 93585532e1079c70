"""Masks as they are made, combined, and converted from PyTorch's: the same truth values."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import numpy as np

import jax_input
from parity.case import Arrays, Case, Tensor
from parity.cases.encoder_problem import HEADS, LENGTH, masks
from parity.cases.expected import FLOATS, rng, whole
from parity.cases.sides import MODES, on_jax, on_torch, torch_dtype, torch_ref
from parity.formats import dtype_of

Maker: TypeAlias = Callable[..., dict[str, Any]]
Expected: TypeAlias = Callable[[], dict[str, Tensor]]

_IS_TOKEN = np.array([[1] * 7, [1] * 4 + [0] * 3], bool)
_SEGMENTS = np.array([[0, 0, 0, 1, 1, 2, 2], [5, 5, 1, 1, 1, 1, 1]], np.int32)


def cases() -> Iterator[Case]:
    """Yield the cases of ``jax_input.masks`` and ``jax_input.mask_conventions``."""
    for mode in MODES:
        yield _made(mode)
        yield _converted(mode)
    for dtype in FLOATS:
        yield _bias(dtype)


def _made(mode: str) -> Case:
    def make(package: Any, is_token: Any, segment_ids: Any) -> dict[str, Any]:
        padding, causal = package.padding_mask(is_token), package.causal_mask(LENGTH)
        return {
            "padding": padding,
            "causal": causal,
            "window": package.local_window_mask(LENGTH, (1, 2)),
            "window/one_number": package.local_window_mask(LENGTH, 1),
            "block": package.block_diagonal_mask(LENGTH, 3),
            "segment": package.segment_mask(segment_ids),
            "padding_causal": padding & causal,
        }

    def expected() -> dict[str, Tensor]:
        right = masks()
        distance = np.arange(LENGTH)[:, None] - np.arange(LENGTH)
        names = ("padding", "causal", "window", "block", "segment")
        return {
            **{name: whole(np.asarray(right[name])) for name in names},
            "window/one_number": whole((np.abs(distance) <= 1)[None, None]),
            "padding_causal": whole(np.asarray(right["padding causal"])),
        }

    return _case(
        f"masks/made[seq_len {LENGTH}, {mode}]",
        {"is_token": _IS_TOKEN, "segment_ids": _SEGMENTS},
        make,
        expected,
        mode,
    )


def _converted(mode: str) -> Case:
    """Convert masks of each of PyTorch's conventions."""
    random = rng(44)
    hidden = random.random((2 * HEADS, LENGTH, LENGTH)) < 0.4
    arrays = {
        "key_padding_mask": ~_IS_TOKEN,
        "attn_mask": hidden[0],
        "attn_masks": hidden,
        "sdpa_mask": ~hidden[1],
        # 0 = may attend; -inf, and what two masks add up to, hide.
        "bias": np.where(hidden, np.where(hidden[::-1], -np.inf, -1e9), 0.0).astype(np.float32),
    }

    def make(package: Any, **given: Any) -> dict[str, Any]:
        return {
            "key_padding_mask": package.mask_from_key_padding(given["key_padding_mask"]),
            "attn_mask": package.mask_from_attn_mask(given["attn_mask"]),
            "attn_masks": package.mask_from_attn_mask(given["attn_masks"], num_heads=HEADS),
            "sdpa_mask": package.mask_from_sdpa(given["sdpa_mask"]),
            "bias": package.mask_from_bias(given["bias"]),
        }

    def expected() -> dict[str, Tensor]:
        return {
            "key_padding_mask": whole(_IS_TOKEN[:, None, None]),
            "attn_mask": whole(~hidden[0][None, None]),
            "attn_masks": whole(~hidden.reshape(2, HEADS, LENGTH, LENGTH)),
            "sdpa_mask": whole(~hidden[1][None, None]),
            "bias": whole(~hidden[None]),
        }

    return _case(f"masks/converted[seq_len {LENGTH}, {mode}]", arrays, make, expected, mode)


def _bias(dtype: str) -> Case:
    """Return what is added to scores: finite, in every dtype."""
    mask = np.asarray(masks()["padding causal"])

    def make(package: Any, mask: Any) -> dict[str, Any]:
        kind = dtype if package is jax_input else torch_dtype(dtype)
        return {"bias": package.mask_to_bias(mask, kind)}

    def expected() -> dict[str, Tensor]:
        least = np.asarray(_least(dtype), np.float64)
        return {
            "bias": Tensor(
                np.where(mask, 0.0, least), 0.0, "the least finite number is exact", same_bits=True
            )
        }

    return _case(f"masks/bias[{dtype}, jit]", {"mask": mask}, make, expected, "jit", dtype)


def _least(dtype: str) -> float:
    """Return the least finite number of a format, from its bits: all ones but the last exponent."""
    kind = dtype_of(dtype)
    patterns = {"float32": 0xFF7FFFFF, "bfloat16": 0xFF7F, "float16": 0xFBFF}
    bits = np.array(patterns[dtype], f"u{kind.itemsize}")
    return float(bits.view(kind).astype(np.float64))


def _case(
    case_id: str, arrays: Arrays, make: Maker, expected: Expected, mode: str, dtype: str = "bool"
) -> Case:
    """Run the same of both packages, all of it in one program."""
    first = next(iter(expected()))

    def on(package: Any) -> dict[str, Any]:
        every = partial(make, package)
        return {"function": lambda **given: every(**given)[first], "name": first, "others": every}

    return Case(
        case_id,
        dtype,
        lambda: arrays,
        on_jax(**on(jax_input), jit=mode == "jit"),
        on_torch(**on(torch_ref)),
        expected,
        default=mode == "jit" and dtype == "bool",
    )
