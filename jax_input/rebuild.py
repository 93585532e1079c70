"""The rows of one call, for a caller who brings no position table."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int32

from jax_input.positions import Positions
from jax_input.requirements import is_concrete, nearest_index, require_integers
from jax_input.sinusoidal import Sinusoid, encode_positions, sinusoidal_table

# A row of a table costs a third of a row by itself.
_TABLE_ROWS_PER_POSITION = 3


def rebuild_rows(
    tokens: tuple[int, ...],
    positions: Positions | None,
    shape: tuple[int, int],
    sinusoid: Sinusoid,
    dtype: np.dtype,
) -> tuple[Float[Array, "rows d_model"], Positions | None]:
    """Return a table and positions that ``add_positions`` takes like the whole table and its own.

    The rows of one sequence are built, or one row for each position, or the whole table where
    that is cheaper. The bits are those of the whole table, and so is what a position without a
    row does.

    Args:
      tokens: their shape, ``(*batch, seq_len)``.
      positions: of the call, None for 0, 1, ...
      shape: ``(max_len, d_model)`` of the table that is not there.
      sinusoid: the convention.
      dtype: of the rows.
    """
    max_len, d_model = shape
    if positions is None:
        seq_len = tokens[-1] if tokens else 1
        return _table_once(max(1, min(seq_len, max_len)), d_model, sinusoid, dtype), None
    values = require_integers("positions", positions)
    is_known = is_concrete(values)
    is_dear = not 0 < _TABLE_ROWS_PER_POSITION * values.size < max_len
    if is_dear or (is_known and not _all_inside(np.asarray(values), max_len)):
        return _table_once(max_len, d_model, sinusoid, dtype), positions
    nearest, is_inside = nearest_index(values, max_len)
    rows = _encode_once(nearest.ravel(), d_model, sinusoid, dtype)
    index = np.arange(values.size, dtype=np.int32).reshape(values.shape)
    return rows, index if is_known else jnp.where(is_inside, index, -1)


def _all_inside(values: np.ndarray, size: int) -> bool:
    return bool(((values >= 0) & (values < size)).all())


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _table_once(max_len: int, d_model: int, sinusoid: Sinusoid, dtype: np.dtype) -> Array:
    return _once(lambda: sinusoidal_table(max_len, d_model, sinusoid=sinusoid, dtype=dtype))


@partial(jax.jit, static_argnums=(1, 2, 3))
def _encode_once(
    positions: Int32[Array, " rows"], d_model: int, sinusoid: Sinusoid, dtype: np.dtype
) -> Array:
    return _once(lambda: encode_positions(positions, d_model, sinusoid=sinusoid, dtype=dtype))


def _once(build: Callable[[], Array]) -> Array:
    """Return what ``build`` returns, computed where it stands.

    Left to itself XLA moves the build into the sum with the tokens, and does it again for each
    sequence of the batch. It moves nothing out of a branch, and the barrier keeps it from knowing
    which branch is taken.
    """
    rows = jax.eval_shape(build)
    always = lax.optimization_barrier(np.bool_(True))
    return lax.cond(always, build, lambda: jnp.zeros(rows.shape, rows.dtype))
