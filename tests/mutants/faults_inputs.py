"""Faults of dropout, of rounding, and of the input part as a whole."""

from tests.mutants.fault import BITS_DIFFER, Fault

_INPUTS = "jax_input/inputs.py"
_ROUNDING = "jax_input/rounding.py"
_DROPOUT = "inputs/dropout[rate 0.1, float32, jit]"
_DRAWN = "inputs/dropout_key[rate 0.25, float32, jit]"
_WHOLE = "inputs/transformer_input[padding right, float32, jit]"

# Dropout.
DROPOUT = (
    Fault(
        "what dropout keeps is not scaled up",
        _INPUTS,
        "1 / (1 - rate))\n",
        "1.0)\n",
        _DROPOUT,
        "dropout gradient/x",
    ),
    Fault(
        "what dropout keeps is scaled down",
        _INPUTS,
        "1 / (1 - rate))\n",
        "1 - rate)\n",
        _DROPOUT,
        "dropout gradient/x",
    ),
    Fault(
        "dropout rounds its factor to bfloat16",
        _INPUTS,
        "1 / (1 - rate))\n",
        "float(np.asarray(1 / (1 - rate), x.dtype)))\n",
        "inputs/dropout[rate 0.1, bfloat16, jit]",
        "dropout gradient/x",
    ),
    Fault(
        "a mask drops what it should keep",
        _INPUTS,
        "kept = _require_mask(mask, x.shape)",
        "kept = ~_require_mask(mask, x.shape)",
        _DROPOUT,
        "dropout gradient/x",
    ),
    Fault(
        "a key keeps with the chance to drop",
        _INPUTS,
        "np.float32(1 - rate)",
        "np.float32(rate)",
        _DRAWN,
        "mask",
    ),
    Fault(
        "one mask serves the whole batch",
        _INPUTS,
        "draw_kept(key, rate, x.shape)",
        "draw_kept(key, rate, x.shape[1:])",
        _DRAWN,
        "mask",
    ),
    Fault(
        "a key drops nothing",
        _INPUTS,
        "elif key is None or rate == 0:",
        "elif mask is None:",
        _DRAWN,
        "dropout mask",
    ),
    Fault(
        "entries are dropped before the positions are added",
        _INPUTS,
        "    x = add_positions(x, table, positions=positions)\n"
        '    return dropout(x, require_rate("dropout_rate", dropout_rate), key=dropout_key)\n',
        '    x = dropout(x, require_rate("dropout_rate", dropout_rate), key=dropout_key)\n'
        "    return add_positions(x, table, positions=positions)\n",
        _DRAWN,
        "dropout mask",
    ),
)

# What is rounded where.
ROUNDING = (
    Fault(
        "a bit of the significand is lost",
        _ROUNDING,
        "theirs.nexp, theirs.nmant)",
        "theirs.nexp, theirs.nmant - 1)",
        "embedding/scale[float32 to bfloat16, scale sqrt, jit]",
        "scale",
    ),
    Fault(
        "small float16 values are flushed to zero",
        _ROUNDING,
        "return jnp.where(jnp.abs(x) < x.dtype.type(theirs.smallest_normal), tiny, value)",
        "return value",
        "embedding/scale[float32 to float16, scale 1e-05, jit]",
        "scale",
    ),
    Fault(
        "product and sum are rounded at once",
        _ROUNDING,
        "    return lax.bitcast_convert_type(pattern, x.dtype)\n",
        "    return value\n",
        _WHOLE,
        "sum",
        BITS_DIFFER,
        "",
    ),
)

# The input part as a whole.
WHOLE = (
    Fault(
        "the input part does not hand the padding row on",
        _INPUTS,
        "padding_idx=padding_idx, dtype=dtype)",
        "dtype=dtype)",
        _WHOLE,
        "gradient/embedding",
    ),
    Fault(
        "the input part does not hand the positions on",
        _INPUTS,
        "add_positions(x, table, positions=positions)",
        "add_positions(x, table)",
        "inputs/transformer_input[padding left, float16, jit]",
        "table sum",
    ),
    Fault(
        "the input part returns the dtype of the embedding",
        _INPUTS,
        "padding_idx=padding_idx, dtype=dtype)",
        "padding_idx=padding_idx)",
        "inputs/dropout_key[rate 0.25, float16, jit]",
        "dropout",
        "dtype float32, torch has float16",
        "",
    ),
)

FAULTS = (*DROPOUT, *ROUNDING, *WHOLE)
