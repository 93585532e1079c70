"""Sinusoidal positions, correctly rounded, in every published convention."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from torch_ref.phase import BITS, circle, reduce, sine_and_cosine, turn_on, turns_per_position
from torch_ref.requirements import (
    require_between,
    require_dtype,
    require_integers,
    require_one_of,
    require_size,
)
from torch_ref.rounding import settle

_BLOCK = 2**15
"""Angles computed at a time: they fit the processor's cache, and torch stays on one thread."""

_PROMISED_BASES = (2.0, 1e6)


@dataclass(frozen=True)
class Sinusoid:
    """One convention of sinusoidal positions.

    Frequency ``i`` is ``base ** (-i / (d_model / 2 - freq_shift))`` radians per position. Where
    ``freq_shift`` is 1, ``d_model / 2`` is rounded down and the divisor is at least 1. Odd widths
    leave out the last column of the even width above.

    Attributes:
      base: wavelengths go from 2 pi to 2 pi ``base`` positions; finite and above 0.
      layout: "interleaved" (sine and cosine alternate) or "halves" (all of one, then of the other).
      freq_shift: 0 is the paper's spacing, 1 is tensor2tensor's.
      cos_first: the cosine takes the sine's column and the sine the cosine's.

    Raises:
      ValueError: if an attribute is not one of these, naming it.
    """

    base: float = 10_000.0
    layout: Literal["interleaved", "halves"] = "interleaved"
    freq_shift: Literal[0, 1] = 0
    cos_first: bool = False

    def __post_init__(self) -> None:
        """Refuse what no table can be built from."""
        real = isinstance(self.base, int | float) and not isinstance(self.base, bool)
        if not real or not 0 < self.base < math.inf:
            raise ValueError(f"`base` must be a finite number above 0, got {self.base!r}.")
        require_one_of("layout", self.layout, ("interleaved", "halves"))
        require_one_of("freq_shift", self.freq_shift, (0, 1))
        require_one_of("cos_first", self.cos_first, (True, False))

    def step(self, d_model: int) -> Fraction:
        """Return the exponent of ``1 / base`` between two neighbouring frequencies."""
        if self.freq_shift == 0:
            return Fraction(2, d_model)
        return Fraction(1, max(d_model // 2 - 1, 1))


PAPER = Sinusoid()
TENSOR2TENSOR = Sinusoid(layout="halves", freq_shift=1)
FAIRSEQ = TENSOR2TENSOR
MARIAN = Sinusoid(layout="halves")
DIFFUSERS = Sinusoid(layout="halves", cos_first=True)


def sinusoidal_table(
    max_len: int,
    d_model: int,
    *,
    sinusoid: Sinusoid = PAPER,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "max_len d_model"]:
    """Build the rows of positions 0 to ``max_len - 1``, on the CPU.

    Args:
      max_len: number of rows, at least 1.
      d_model: number of columns, at least 1; odd widths work.
      sinusoid: the convention.
      dtype: float32, bfloat16, float16 or float64; the default dtype and device play no part.

    Returns:
      The table, with the bits of ``encode_positions``.

    Raises:
      ValueError: if a size is below 1.
      TypeError: if a size is not an integer, or ``dtype`` is another one.

    Source: Vaswani et al. 2017, section 3.5. Port: ``jax_input.sinusoidal_table``.
    """
    max_len = require_size("max_len", max_len)
    positions = torch.arange(max_len, dtype=torch.int64, device="cpu")
    return encode_positions(positions, d_model, sinusoid=sinusoid, dtype=dtype)


def encode_positions(
    positions: Int[Tensor, "*shape"] | Float[Tensor, "*shape"],
    d_model: int,
    *,
    sinusoid: Sinusoid = PAPER,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "*shape d_model"]:
    """Build the row of each position; there is no table that they could run out of.

    For integers and 2 <= ``base`` <= 1e6 every entry is the exact value correctly rounded (float16
    with gradual underflow), the same bits on every device. For another ``base`` the absolute error
    is at most 2**-25 more than that rounding. In float64 it is at most 2**-53.

    Args:
      positions: integers from -(2**31) to 2**31 - 1, or float32 of that range (diffusion
        timesteps), which are encoded within 2**-24 and can be differentiated.
      d_model: number of columns, at least 1; odd widths work.
      sinusoid: the convention.
      dtype: float32, bfloat16, float16 or float64.

    Returns:
      ``positions.shape + (d_model,)``, on the device of ``positions``; computed on the CPU, where
      int64 and float64 are always at hand.

    Raises:
      ValueError: if a position is out of range or not finite, ``d_model`` is below 1, or
        ``positions`` are float32 and the base is below 1.
      TypeError: if ``positions`` are neither integers nor float32, or ``dtype`` is another one.

    Source: Vaswani et al. 2017, section 3.5. Port: ``jax_input.encode_positions``.
    """
    _require_positions(positions)
    d_model = require_size("d_model", d_model)
    require_dtype("dtype", dtype)
    if not isinstance(sinusoid, Sinusoid):
        raise TypeError(
            f"`sinusoid` must be a Sinusoid, got {type(sinusoid).__name__} {sinusoid!r}. "
            "Pass one of the named conventions, such as torch_ref.PAPER, or build your own."
        )
    if positions.is_floating_point() and sinusoid.base < 1:
        raise ValueError(
            f"`sinusoid` has base {sinusoid.base!r}, but float32 positions need at least 1: no "
            "frequency may be above one radian per position. Pass integer positions."
        )
    rows: Tensor = _Encode.apply(positions, d_model, sinusoid, dtype)
    return rows


class _Encode(torch.autograd.Function):
    """The rows, with the closed form as their derivative: integers have none of their own."""

    @staticmethod
    def forward(
        ctx: Any, positions: Tensor, d_model: int, sinusoid: Sinusoid, dtype: torch.dtype
    ) -> Tensor:
        """Compute the rows, and keep what their derivative needs."""
        ctx.save_for_backward(positions)
        ctx.convention = d_model, sinusoid
        return _encode(positions, d_model, sinusoid, dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """Sum over the columns in float32: sines become cosines, cosines become minus sines."""
        (positions,) = ctx.saved_tensors
        d_model, sinusoid = ctx.convention
        turns = turns_per_position(sinusoid.base, sinusoid.step(d_model), -(-d_model // 2))
        radians = torch.tensor([math.tau * (f / (1 << BITS)) for f in turns], device="cpu")
        slope = arrange(radians.float(), -radians.float(), d_model, sinusoid)
        exchanged = replace(sinusoid, cos_first=not sinusoid.cos_first)
        derivative = slope * encode_positions(positions.cpu(), d_model, sinusoid=exchanged)
        change = gradient.float() * derivative.to(gradient.device)
        return change.sum(-1), None, None, None


def _encode(positions: Tensor, d_model: int, sinusoid: Sinusoid, dtype: torch.dtype) -> Tensor:
    """Compute the rows a block at a time."""
    if positions.is_meta:
        return torch.empty(*positions.shape, d_model, dtype=dtype, device="meta")
    frequencies = turns_per_position(sinusoid.base, sinusoid.step(d_model), -(-d_model // 2))
    on = circle()
    rows = torch.empty(positions.numel(), d_model, dtype=dtype, device="cpu")
    size = max(1, _BLOCK // len(frequencies))
    for block, out in zip(positions.cpu().flatten().split(size), rows.split(size), strict=True):
        whole = block.double().floor()[:, None]
        point, rest = reduce(whole.to(torch.int64), frequencies)
        sine, cosine = sine_and_cosine(point, rest, on)
        if block.is_floating_point():
            fractions = block.double()[:, None] - whole
            sine, cosine = turn_on((sine, cosine), fractions, frequencies, on)
        if dtype != torch.float64:
            # Here the error of the phase may be more than 2**-65 of the rest itself.
            coarse = (rest.abs() < whole.abs()) & _is_promised(sinusoid)
            sine = settle(sine, coarse, block, frequencies, dtype, cosine=False)
            cosine = settle(cosine, coarse, block, frequencies, dtype, cosine=True)
        out.copy_(arrange(sine, cosine, d_model, sinusoid))
    return rows.reshape(*positions.shape, d_model).to(positions.device)


def arrange(sine: Tensor, cosine: Tensor, d_model: int, sinusoid: Sinusoid) -> Tensor:
    """Lay sines and cosines, one each for a frequency, out in their columns."""
    first, second = (cosine, sine) if sinusoid.cos_first else (sine, cosine)
    if sinusoid.layout == "interleaved":
        return torch.stack([first, second], -1).flatten(-2)[..., :d_model]
    return torch.cat([first, second], -1)[..., :d_model]


def _is_promised(sinusoid: Sinusoid) -> bool:
    """Tell the bases of the promise; far above them every angle is near 0."""
    lowest, highest = _PROMISED_BASES
    # A tensor takes Python's bool beside it, not the one that a base of NumPy compares to.
    return bool(lowest <= sinusoid.base <= highest)


def _require_positions(positions: Tensor) -> None:
    """Refuse positions that are not whole or float32, or do not fit 32 bits."""
    if isinstance(positions, Tensor) and positions.is_floating_point():
        if positions.dtype != torch.float32:
            raise TypeError(
                f"`positions` must be integers or torch.float32, got {positions.dtype}. Cast them: "
                "16-bit floats do not hold the integers above 256 (bfloat16) or 2,048 (float16), "
                "and float64 is not offered."
            )
        highest = 2**31
    else:
        require_integers("positions", positions)
        highest = 2**31 - 1
    require_between(
        "positions", positions, -(2**31), highest, "Reduce it, or count from a nearer start."
    )
