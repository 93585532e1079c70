"""What a case expects: exact values, and ceilings derived from the roundings on the way."""

import numpy as np
from jaxtyping import Float, Integer

from parity.case import Tensor
from parity.formats import FORMATS, ulp

FLOATS = ("float32", "bfloat16", "float16")
WIDE = 2.0**-24  # half an ulp of float32, relative


def rng(*seed: int) -> np.random.Generator:
    """Return the generator of a case's inputs: the same on every machine."""
    return np.random.default_rng((20_240_229, *seed))


def half_ulp(exact: Float[np.ndarray, "*shape"], dtype: str) -> Float[np.ndarray, "*shape"]:
    """Return the error of one rounding, element by element.

    An entry that rounds up to the next power of two has the larger spacing of that one, and
    ``exact`` itself is off by half an ulp of float64.
    """
    return 0.5 * ulp(exact * (1 + 2.0 ** -FORMATS[dtype].digits), dtype) * (1 + 2.0**-20)


def rounded(exact: Float[np.ndarray, "*shape"], dtype: str) -> Tensor:
    """Expect the exact value, correctly rounded; both sides promise the same bits."""
    return Tensor(exact, half_ulp(exact, dtype), f"one rounding to {dtype}", same_bits=True)


def whole(exact: Integer[np.ndarray, "*shape"], *, uniform: str = "") -> Tensor:
    """Expect these integers or truth values; ``uniform`` is that of `parity.case.Tensor`."""
    return Tensor(exact, 0.0, "integers are exact", same_bits=True, uniform=uniform)


def holds(properties: int) -> Tensor:
    """Expect that so many properties hold."""
    return whole(np.ones(properties, bool), uniform="true for each property that holds")


def product(
    values: Float[np.ndarray, "*shape"], factor: float, dtype: str, *, same_bits: bool = True
) -> Tensor:
    """Expect ``values * factor``: the factor and the product rounded to float32, then to dtype."""
    exact = values * factor
    ceiling = half_ulp(exact, dtype) + 2.01 * WIDE * np.abs(exact)
    return Tensor(exact, ceiling, f"factor and product in float32, then {dtype}", same_bits)


def scattered(
    index: Integer[np.ndarray, "*batch"],
    terms: Float[np.ndarray, "*batch d_model"],
    rows: int,
    dtype: str,
) -> Tensor:
    """Expect the sums of the terms by row, and exact zeros where there are none."""
    sums, sizes = np.zeros((2, rows, terms.shape[-1]))
    hits = np.zeros((rows, 1))
    np.add.at(sums, index, terms)
    np.add.at(sizes, index, np.abs(terms))
    np.add.at(hits, index, 1)
    return total(sums, sizes, hits, dtype)


def total(
    values: Float[np.ndarray, "*shape"],
    sizes: Float[np.ndarray, "*shape"],
    terms: int | np.ndarray,
    dtype: str,
    *,
    same_bits: bool = False,
) -> Tensor:
    """Expect a sum in float32 of terms that were computed in float32, rounded once to dtype.

    Args:
      values: the exact sums; in float64 they are off by a billionth of that.
      sizes: the sums of the terms' absolute values.
      terms: how many terms each has at most.
      dtype: of the result.
      same_bits: whether both sides promise them; they do not where the order of a sum is free.
    """
    # Each term carries two roundings, and passes through at most `terms` additions.
    ceiling = half_ulp(values, dtype) + (np.asarray(terms) + 2) * 1.01 * WIDE * sizes
    reason = f"sum in float32, then {dtype}: (terms + 2) half ulp of the terms' sizes"
    return Tensor(values, ceiling, reason, same_bits)
