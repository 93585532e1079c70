"""Faults of position numbers, and of the rows that are added."""

from tests.mutants.fault import Fault

_POSITIONS = "jax_input/positions.py"
_MASK = "positions/mask[every padding, jit]"
_ADD = "positions/add[float32, jit]"
_ADD_AT = "positions/add[float32, explicit positions, jit]"

# Which number a token has.
NUMBERS = (
    Fault(
        "positions count from 1",
        _POSITIONS,
        "jnp.arange(seq_len, dtype=np.int32) +",
        "jnp.arange(1, seq_len + 1, dtype=np.int32) +",
        "positions/ids[offset 131071, jit]",
        "position_ids",
    ),
    Fault(
        "the first token of a mask has position 1",
        _POSITIONS,
        "dtype=np.int32) - 1\n",
        "dtype=np.int32)\n",
        _MASK,
        "mask",
    ),
    Fault(
        "padding keeps the count of the tokens before it",
        _POSITIONS,
        "return jnp.where(tokens, counted, 0)",
        "return counted",
        _MASK,
        "mask",
    ),
    Fault(
        "a mask is counted along the batch",
        _POSITIONS,
        "jnp.cumsum(tokens, axis=-1,",
        "jnp.cumsum(tokens, axis=0,",
        _MASK,
        "mask",
    ),
    Fault(
        "a segment starts only where the id grows",
        _POSITIONS,
        "segments[..., 1:] != segments[..., :-1]",
        "segments[..., 1:] > segments[..., :-1]",
        "positions/segments[jit]",
        "segments",
    ),
    Fault(
        "positions run on through the segments of a packed row",
        _POSITIONS,
        "return index - lax.cummax(",
        "return index - 0 * lax.cummax(",
        "positions/segments[jit]",
        "segments",
    ),
)

# Which row a token gets.
ROWS = (
    Fault(
        "rows are off by one",
        _POSITIONS,
        "table[:seq_len]",
        "table[1 : seq_len + 1]",
        _ADD,
        "sum gradient/table",
    ),
    Fault(
        "the positions that are given are not read",
        _POSITIONS,
        "    if positions is None:\n        added",
        "    if True:\n        added",
        _ADD_AT,
        "sum gradient/table",
    ),
    Fault(
        "rows are added along the batch",
        _POSITIONS,
        "jnp.broadcast_to(added, x.shape)",
        "jnp.broadcast_to(added[: x.shape[0], None], x.shape)",
        _ADD,
        "sum gradient/table",
    ),
    Fault(
        "no rows are added",
        _POSITIONS,
        "widen(x) + jnp.broadcast_to(added, x.shape)",
        "widen(x) + 0 * jnp.broadcast_to(added, x.shape)",
        _ADD_AT,
        "sum gradient/table",
    ),
    Fault(
        "the table's gradient is summed in bfloat16",
        _POSITIONS,
        "rounded(rows, dtype).astype(wide_dtype(dtype))",
        "rounded(rows, dtype).astype(dtype)",
        "positions/add[bfloat16, jit]",
        "gradient/table",
    ),
)

FAULTS = (*NUMBERS, *ROWS)
