"""One rounding from the exact value to the dtype asked for.

PyTorch converts float64 to 16 bits by way of float32, which rounds twice. Here float64 is rounded
to nearest once, and where float64 cannot decide (Ziv's test) the value is computed again in
integers of 256 binary places.
"""

import math
from fractions import Fraction
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from torch_ref.phase import BITS, sine_of_turns

RELATIVE_ERROR = 2.0**-48
"""Bound on the error of ``torch_ref.phase.sine_and_cosine``, relative to the value."""

FORMATS: dict[torch.dtype, tuple[int, int]] = {
    torch.float32: (24, -149),
    torch.bfloat16: (8, -133),
    torch.float16: (11, -24),
}
"""Significand bits, and the exponent of the smallest (subnormal) step, of each rounded dtype."""


def round_once(
    values: Float[Tensor, "*shape"], dtype: torch.dtype
) -> tuple[Float[Tensor, "*shape"], Bool[Tensor, "*shape"]]:
    """Round float64 to nearest, and say where a tie is too near to decide.

    Args:
      values: float64, with a relative error of at most `RELATIVE_ERROR`.
      dtype: a key of `FORMATS`.

    Returns:
      The rounded values, still float64, and True where they may be the wrong neighbour.
    """
    significand, smallest = FORMATS[dtype]
    exponent = (values.view(torch.int64) >> 52) & 0x7FF
    exponent = (exponent - (significand - 1)).clamp(min=smallest + 1023)
    step = (exponent << 52).view(torch.float64)  # a power of two: dividing by it is exact
    scaled = values / step
    nearest = scaled.round()
    from_tie = ((scaled - nearest).abs() - 0.5).abs()
    return nearest * step, from_tie <= scaled.abs() * RELATIVE_ERROR


def round_exactly(position: float, frequency: int, dtype: torch.dtype, *, cosine: bool) -> float:
    """Compute one sine or cosine in integers, and round it.

    The value is never a tie (the sine of an algebraic number other than 0 is transcendental), and
    256 bits leave a chance of about 2**-180 that it lies too near one.

    Args:
      position: an integer, or a float, taken as it is.
      frequency: in units of ``2**-BITS`` turns per position.
      dtype: a key of `FORMATS`.
      cosine: the cosine instead of the sine.

    Returns:
      The value, correctly rounded to `dtype`.
    """
    exact = Fraction(position)
    phase = exact.numerator * frequency // exact.denominator
    value = sine_of_turns(phase + (1 << BITS) // 4 if cosine else phase)
    significand, smallest = FORMATS[dtype]
    step = max(abs(value).bit_length() - significand, smallest + BITS)
    nearest = round(Fraction(abs(value), 1 << step))
    return math.copysign(math.ldexp(nearest, step - BITS), value)


def settle(
    values: Float[Tensor, "n count"],
    doubt: Bool[Tensor, "n count"],
    positions: Tensor,
    frequencies: list[int],
    dtype: torch.dtype,
    *,
    cosine: bool,
) -> Float[Tensor, "n count"]:
    """Round sines or cosines to `dtype`: from float64, or in integers where that cannot decide.

    Args:
      values: float64.
      doubt: where `values` are known to be too coarse.
      positions: one for each row.
      frequencies: one for each column, in units of ``2**-BITS`` turns per position.
      dtype: a key of `FORMATS`.
      cosine: whether `values` are cosines.
    """
    rounded, near_a_tie = round_once(values, dtype)
    for row, column in (doubt | near_a_tie).nonzero().tolist():
        rounded[row, column] = round_exactly(
            positions[row].item(), frequencies[column], dtype, cosine=cosine
        )
    return rounded.to(dtype)


def widen(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return ``x`` in the dtype its arithmetic is done in: float64 if it has it, or float32."""
    return x if x.dtype == torch.float64 else x.float()


def narrow(x: Float[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """Cast float32 or float64 to `dtype` with one rounding; the gradient passes through."""
    return rounded(x, dtype).to(dtype)


def rounded(x: Float[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """Return the values that `dtype` would hold, still in the dtype of ``x``.

    The gradient passes through unrounded, so that sums of it stay wide.

    Args:
      x: float32 or float64.
      dtype: one of the four.
    """
    is_narrower = torch.finfo(dtype).eps > torch.finfo(x.dtype).eps
    result: Tensor = _Rounded.apply(x, dtype) if is_narrower else x
    return result


class _Rounded(torch.autograd.Function):
    """`round_once`, whose own derivative would be zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Round, by way of `dtype` itself so that what it can't hold becomes infinite."""
        return round_once(x.double(), dtype)[0].to(dtype).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Hand the gradient on."""
        return gradient, None
