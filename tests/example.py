"""What an entry of the catalogue is, and when two results are the same."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Example:
    """One call of a public function.

    Attributes:
      function: what is called.
      case: what is special about it.
      call: takes the arrays alone; everything static is in it.
      arguments: the arrays, on the host; keys are JAX arrays.
      smooth: the places of the arguments that have a gradient.
      withheld: a row gets no gradient though it counts, as PyTorch's padding row.
      casts: floats may come in any dtype, and the result has it.
      in_float64: ``call`` where it differs for arguments of float64.
      summed: how many terms its sums have, one after the other, each times what it is multiplied
        by later: a compiler may take them in another order. 0 demands the same bits.
      rounded: how often something is rounded to the dtype of the result on the way.
    """

    function: Callable[..., jax.Array]
    case: str
    call: Callable[..., jax.Array]
    arguments: tuple[Any, ...] = ()
    smooth: tuple[int, ...] = ()
    withheld: bool = False
    casts: bool = True
    in_float64: Callable[..., jax.Array] | None = None
    summed: int = 0
    rounded: int = 0

    def __str__(self) -> str:
        return f"{self.function.__name__}/{self.case}"

    def cast(self, dtype: Any) -> "Example":
        """Return the example with its floats in another dtype."""
        is_float = [np.dtype(np.float32) == argument.dtype for argument in self.arguments]
        pairs = zip(self.arguments, is_float, strict=True)
        arguments = tuple(given.astype(dtype) if real else given for given, real in pairs)
        return replace(self, arguments=arguments, case=f"{self.case}, {np.dtype(dtype).name}")

    def slack(self, dtype: Any) -> float:
        """Return how far off two orders of its sums may be, as a part of the largest value."""
        if not self.summed:
            return 0.0
        wide = np.promote_types(np.float32, dtype) if np.dtype(dtype).itemsize > 4 else np.float32
        summed = self.summed * float(jnp.finfo(wide).eps)
        return summed + self.rounded * float(jnp.finfo(dtype).eps)

    def agree(self, actual: Any, expected: Any, times: int = 1) -> None:
        """Raise unless two results are the same: in every bit, where nothing is summed."""
        slack = self.slack(expected.dtype) if self.summed else 0.0
        if not slack:
            same_bits(actual, expected)
            return
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        actual, expected = (np.asarray(each).astype(np.float64) for each in (actual, expected))
        bound = times * slack * np.abs(expected).max()
        np.testing.assert_allclose(actual, expected, rtol=0, atol=bound)


def same_bits(actual: Any, expected: Any) -> None:
    """Raise unless dtype, shape and every bit agree; one NaN is as good as another."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype
    if expected.dtype.itemsize < 8 and jnp.issubdtype(expected.dtype, jnp.floating):
        both_nan = np.isnan(actual) & np.isnan(expected)
        kind = f"uint{8 * expected.dtype.itemsize}"
        actual, expected = (np.where(both_nan, 0, a.view(kind)) for a in (actual, expected))
    np.testing.assert_array_equal(actual, expected)


def variant(argument: Any, index: int) -> Any:
    """Return another argument that is as good: shifted by some places, or another key."""
    if jnp.issubdtype(argument.dtype, jax.dtypes.prng_key):
        return jax.random.fold_in(argument, index)
    return argument + argument.dtype.type(index) if argument.ndim == 0 else np.roll(argument, index)


def variants(example: Example, count: int = 3) -> list[tuple[Any, ...]]:
    """Return the arguments of the example and of others of the same shapes."""
    return [
        tuple(variant(argument, index) for argument in example.arguments) for index in range(count)
    ]


def stacked(rows: list[tuple[Any, ...]]) -> tuple[jax.Array, ...]:
    """Return each argument of all the rows along a new leading axis."""
    return tuple(jnp.stack(column) for column in zip(*rows, strict=True))
