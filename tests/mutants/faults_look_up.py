"""Faults of the look-up, its scale and its gradient."""

from tests.mutants.fault import Fault

_EMBEDDING = "jax_input/embedding.py"
_RANGE = "embedding/out_of_range"
_PADDING = "embedding/padding[float32, scale 1.7, padding_idx 5, jit]"
_ZEROED = "embedding/padding[float32, padding_idx 5, zero_padding True, jit]"
_WHOLE = "inputs/transformer_input[padding right, float32, jit]"

# Ids with and without a row.
IDS = (
    Fault(
        "-1 reads the last row",
        "jax_input/requirements.py",
        "    nearest = jnp.clip(index, 0, size - 1)\n",
        "    index = jnp.where(index == -1, size - 1, index)\n"
        "    nearest = jnp.clip(index, 0, size - 1)\n",
        f"{_RANGE}[nan, jit]",
        "rows gradient/embedding",
    ),
    Fault(
        "the last row is out of reach",
        "jax_input/requirements.py",
        "jnp.clip(index, 0, size - 1)",
        "jnp.clip(index, 0, size - 2)",
        f"{_RANGE}[clip, jit]",
        "rows gradient/embedding",
    ),
    Fault(
        "ids without a row read the nearest one",
        _EMBEDDING,
        'return nearest, None if out_of_range == "clip" else is_inside',
        "return nearest, None",
        f"{_RANGE}[nan, jit]",
        "rows gradient/embedding",
    ),
    Fault(
        "clip reads NaN",
        _EMBEDDING,
        'return nearest, None if out_of_range == "clip" else is_inside',
        "return nearest, is_inside",
        f"{_RANGE}[clip, jit]",
        "rows gradient/embedding",
    ),
    Fault(
        "zero reads NaN",
        _EMBEDDING,
        '0 if out_of_range == "zero" else jnp.nan',
        "jnp.nan",
        f"{_RANGE}[zero, jit]",
        "rows",
    ),
    Fault(
        "zero trains the nearest row",
        _EMBEDDING,
        "        rows = jnp.where(is_inside[..., None], rows, 0",
        "        kept = lax.stop_gradient(rows)\n"
        "        rows = (rows - kept) + jnp.where(is_inside[..., None], kept, 0",
        f"{_RANGE}[zero, jit]",
        "gradient/embedding",
    ),
)

# The padding row.
PADDING = (
    Fault(
        "the padding row is trained",
        _EMBEDDING,
        "0 if zero_padding else lax.stop_gradient(rows)",
        "0 if zero_padding else rows",
        _PADDING,
        "gradient/embedding",
    ),
    Fault(
        "no row up to the padding row is trained",
        _EMBEDDING,
        "(ids == padding_idx)",
        "(ids <= padding_idx)",
        _PADDING,
        "gradient/embedding",
    ),
    Fault(
        "a stored padding row reads zeros",
        _EMBEDDING,
        "0 if zero_padding else lax.stop_gradient(rows)",
        "0",
        _PADDING,
        "padding",
    ),
    Fault(
        "zero_padding is not read",
        _EMBEDDING,
        "0 if zero_padding else lax.stop_gradient(rows)",
        "lax.stop_gradient(rows)",
        _ZEROED,
        "padding",
    ),
)

# The scale.
SCALE = (
    Fault(
        "the scale is left out",
        _EMBEDDING,
        "        return math.sqrt(d_model)\n",
        "        return 1.0\n",
        _WHOLE,
        "scale sum gradient/embedding",
    ),
    Fault(
        "a scale that is given counts as sqrt",
        _EMBEDDING,
        "    return float(number)\n",
        "    return math.sqrt(d_model)\n",
        _PADDING,
        "padding gradient/embedding",
    ),
    Fault(
        "the scale is rounded to the dtype of the embedding",
        _EMBEDDING,
        "product(rows, factor)",
        "product(rows, float(np.asarray(factor, table.dtype)))",
        "embedding/scale[bfloat16, scale sqrt, jit]",
        "scale gradient/embedding",
    ),
    Fault(
        "rows are rounded to bfloat16 before they are scaled",
        _EMBEDDING,
        "product(rows, factor)",
        "product(round_to(rows, kind).astype(rows.dtype), factor)",
        "embedding/scale[float32 to bfloat16, scale sqrt, jit]",
        "scale gradient/embedding",
    ),
    Fault(
        "the gradient is not scaled",
        "jax_input/rounding.py",
        "tangent * x.dtype.type(factor)",
        "tangent",
        "embedding/scale[float32, scale sqrt, jit]",
        "gradient/embedding",
    ),
)

# The sum of the gradient over the tokens of a row.
GRADIENT = (
    Fault(
        "the gradient is summed in bfloat16",
        _EMBEDDING,
        "_gather(tangent.astype(wide), indices)",
        "_gather(tangent.astype(jnp.bfloat16), indices).astype(wide)",
        "embedding/hits[float32 to bfloat16, jit]",
        "gradient/embedding",
    ),
    Fault(
        "the gradient is summed in the dtype of the embedding",
        _EMBEDDING,
        "_gather(tangent.astype(wide), indices)",
        "_gather(tangent.astype(table.dtype), indices).astype(wide)",
        "embedding/hits[bfloat16 to bfloat16, jit]",
        "gradient/embedding",
    ),
)

FAULTS = (*IDS, *PADDING, *SCALE, *GRADIENT)
