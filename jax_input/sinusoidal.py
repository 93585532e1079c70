"""Sinusoidal positions, correctly rounded under jit, in every published convention."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Float

from jax_input import fixed_point, phase
from jax_input.phase import Turns
from jax_input.requirements import require_dtype, require_positions, require_size

_BLOCK = 64
_QUARTER_TURN = np.uint64(1 << 62)


@dataclass(frozen=True)
class Sinusoid:
    """One convention of sinusoidal positions.

    Frequency ``i`` is ``base ** (-i / (d_model / 2 - freq_shift))`` radians per position. Where
    ``freq_shift`` is 1, ``d_model / 2`` is rounded down and the divisor is at least 1. At an odd
    width there is one more column of what comes first.

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
        if self.layout not in ("interleaved", "halves"):
            raise ValueError(f"`layout` must be 'interleaved' or 'halves', got {self.layout!r}.")
        if isinstance(self.freq_shift, bool) or self.freq_shift not in (0, 1):
            raise ValueError(f"`freq_shift` must be 0 or 1, got {self.freq_shift!r}.")
        if not isinstance(self.cos_first, bool):
            raise ValueError(f"`cos_first` must be True or False, got {self.cos_first!r}.")


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
    dtype: DTypeLike = jnp.float32,
) -> Float[Array, "max_len d_model"]:
    """Build the rows of positions 0 to ``max_len - 1``.

    In float32, bfloat16 and float16 the rows have the bits of ``encode_positions``, at a third of
    its cost: checked entry by entry up to 131,072 x 512 (``tests/jax_input/test_sinusoidal.py``).
    In float64 both are within 2**-53.

    Args:
      max_len: number of rows, at least 1.
      d_model: number of columns, at least 1; odd widths work.
      sinusoid: the convention.
      dtype: float32, bfloat16, float16, or float64 where x64 is on.

    Returns:
      The table. The lowered program holds ``d_model`` frequencies and no rows.

    Raises:
      ValueError: if a size is below 1 or above 2**31, or float64 is asked for without x64.
      TypeError: if a size is not an integer, or ``dtype`` is another one.

    Source: Vaswani et al. 2017, section 3.5. Reference: ``torch_ref.sinusoidal_table``.
    """
    return _build_table(
        require_size("max_len", max_len),
        require_size("d_model", d_model),
        _require_sinusoid(sinusoid),
        require_dtype(dtype),
    )


def encode_positions(
    positions: ArrayLike,
    d_model: int,
    *,
    sinusoid: Sinusoid = PAPER,
    dtype: DTypeLike = jnp.float32,
) -> Float[Array, "*positions d_model"]:
    """Build the row of each position; there is no table that they could run out of.

    For integers and 2 <= ``base`` <= 1e6 every entry is the exact value correctly rounded (float16
    with gradual underflow), computed in integers: the same bits on every device, eager or under a
    transformation, x64 on or off. For another ``base`` the absolute error is at most 2**-25 more
    than that rounding. In float64 it is at most 2**-53.

    Args:
      positions: integers from -(2**31) to 2**31 - 1, or float32 of that range (diffusion
        timesteps), which are encoded within 2**-24 and can be differentiated.
      d_model: number of columns, at least 1; odd widths work.
      sinusoid: the convention.
      dtype: float32, bfloat16, float16, or float64 where x64 is on.

    Returns:
      ``positions.shape + (d_model,)``. A traced position out of range, or NaN, gives a row of NaN.

    Raises:
      ValueError: if a position whose value is known is out of range or not finite, ``d_model`` is
        below 1 or above 2**31, float64 is asked for without x64, or ``positions`` are float32 and
        the base is below 1.
      TypeError: if ``positions`` are neither integers nor float32, or ``dtype`` is another one.

    Source: Vaswani et al. 2017, section 3.5. Reference: ``torch_ref.encode_positions``.
    """
    positions = require_positions(positions)
    is_real = positions.dtype == np.float32
    if is_real and _require_sinusoid(sinusoid).base < 1:
        raise ValueError(
            f"`sinusoid` has base {sinusoid.base!r}, but float32 positions need at least 1: no "
            "frequency may be above one radian per position. Pass integer positions."
        )
    encode = _encode_real if is_real else _encode
    d_model = require_size("d_model", d_model)
    return encode(positions, d_model, _require_sinusoid(sinusoid), require_dtype(dtype))


@partial(jax.jit, static_argnums=(1, 2, 3))
def _encode(positions: Array, d_model: int, sinusoid: Sinusoid, dtype: np.dtype) -> Array:
    with jax.enable_x64(True):
        frequency, quarter = _columns(d_model, sinusoid, positions.ndim)
        invalid: Array | None
        if positions.dtype == np.float32:
            whole, fraction, negative, invalid = phase.split_real(positions[..., None])
            part = phase.multiply_fraction(fraction, frequency)
            angle = phase.add(phase.multiply(whole, frequency), part)
        else:
            whole, negative, invalid = phase.split_integer(positions[..., None])
            angle = phase.multiply(whole, frequency)
        value = phase.sine(Turns(angle.high + quarter, angle.low))
        is_sine = quarter == np.uint64(0)
        value = value._replace(negative=value.negative ^ (negative & is_sine))
        return fixed_point.round_to(value, dtype, invalid=invalid)


@partial(jax.custom_jvp, nondiff_argnums=(1, 2, 3))
def _encode_real(positions: Array, d_model: int, sinusoid: Sinusoid, dtype: np.dtype) -> Array:
    return _encode(positions, d_model, sinusoid, dtype)


@_encode_real.defjvp
def _encode_real_jvp(
    d_model: int,
    sinusoid: Sinusoid,
    dtype: np.dtype,
    primals: tuple[Array],
    tangents: tuple[Array],
) -> tuple[Array, Array]:
    """Differentiate by the closed form; the bit cast itself has no derivative."""
    (positions,), (tangent,) = primals, tangents
    frequency, quarter = _columns(d_model, sinusoid, positions.ndim)
    radians = frequency.high.astype(np.float64) * (2 * np.pi / 2.0**64)
    slope = np.where(quarter == 0, radians, -radians).astype(np.float32)
    exchanged = replace(sinusoid, cos_first=not sinusoid.cos_first)
    derivative = slope * _encode_real(positions, d_model, exchanged, np.dtype(np.float32))
    row = _encode_real(positions, d_model, sinusoid, dtype)
    return row, (tangent[..., None] * derivative).astype(dtype)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _build_table(max_len: int, d_model: int, sinusoid: Sinusoid, dtype: np.dtype) -> Array:
    """Add the angles of the multiples of 64 and of 0 to 63: two products for an entry, not eight.

    The rows come from a loop because XLA on CPU would fuse them into the sums, and compute them
    once for every entry.
    """
    blocks = -(-max_len // _BLOCK)
    with jax.enable_x64(True):
        frequency, quarter = _columns(d_model, sinusoid, 0)
        starts = jnp.arange(blocks, dtype=jnp.uint64) * np.uint64(_BLOCK)
        positions = jnp.concatenate([starts, jnp.arange(_BLOCK, dtype=jnp.uint64)])

        def row(position: Array, shift: Array) -> tuple[Array, Array]:
            angle = phase.multiply(position, frequency)
            turned = angle.high + shift
            high = jnp.stack([turned, turned + _QUARTER_TURN])
            low = jnp.broadcast_to(angle.low, high.shape)
            sine, cosine = fixed_point.to_fixed(phase.sine(Turns(high, low)))
            return sine, cosine

        # Only the block starts carry the quarter turn of the cosine columns.
        is_start = (jnp.arange(blocks + _BLOCK) < blocks)[:, None]
        shifts = jnp.where(is_start, quarter[None], np.uint64(0))
        sines, cosines = lax.map(lambda pair: row(*pair), (positions, shifts))
        total = fixed_point.add_angles(
            (sines[:blocks, None], cosines[:blocks, None]),
            (sines[None, blocks:], cosines[None, blocks:]),
        )
        rows = fixed_point.round_to(total, dtype)
        return rows.reshape(blocks * _BLOCK, d_model)[:max_len]


@lru_cache(maxsize=64)  # 80 us a frequency, at each trace of a program
def _columns(d_model: int, sinusoid: Sinusoid, leading: int) -> tuple[Turns, np.ndarray]:
    """Return each column's frequency, and the quarter turn that makes a sine its cosine."""
    count = -(-d_model // 2)
    column = np.arange(d_model)
    if sinusoid.layout == "interleaved":
        index, is_second = column // 2, column % 2 == 1
    else:
        index, is_second = column % count, column >= count
    divisor = Fraction(d_model, 2) if sinusoid.freq_shift == 0 else max(d_model // 2 - 1, 1)
    turns = phase.turns_per_position(sinusoid.base, [Fraction(i) / divisor for i in range(count)])
    shape = (1,) * leading + (d_model,)
    quarter = np.where(is_second != sinusoid.cos_first, _QUARTER_TURN, np.uint64(0))
    columns = [array.reshape(shape) for array in (turns.high[index], turns.low[index], quarter)]
    for array in columns:
        array.flags.writeable = False
    return Turns(*columns[:2]), columns[2]


def _require_sinusoid(sinusoid: Sinusoid) -> Sinusoid:
    if not isinstance(sinusoid, Sinusoid):
        raise TypeError(
            f"`sinusoid` must be a Sinusoid, got {type(sinusoid).__name__} {sinusoid!r}. "
            "Pass one of the named conventions, such as jax_input.PAPER, or build your own."
        )
    return sinusoid
