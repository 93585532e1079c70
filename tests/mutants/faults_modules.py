"""Faults of the Flax modules, called and new."""

from tests.mutants.fault import PORT_RAISED, Fault

_LINEN = "jax_input/linen/input.py"
_NNX = "jax_input/nnx/input.py"
_LINEN_TERMS = "linen/TransformerInput[padding left, bfloat16, jit]"
_NNX_TERMS = "nnx/TransformerInput[padding left, bfloat16, jit]"
_EMBED_SCALE = (
    "            scale=self.scale,\n            padding_idx=self.padding_idx,\n            dtype"
)
_WHOLE_SCALE = f"{_EMBED_SCALE[:-5]}dropout_rate"
_DRAWN_BY_LINEN = (
    "    sinusoid: Sinusoid = PAPER\n    embedding_init: Initializer = nn.initializers.normal"
)

# The linen modules.
LINEN = (
    Fault(
        "linen.TransformerInput leaves the scale out",
        _LINEN,
        _WHOLE_SCALE,
        _WHOLE_SCALE.replace("self.scale", "None"),
        _LINEN_TERMS,
        "sum gradient/embedding",
    ),
    Fault(
        "linen.Embed leaves the scale out",
        _LINEN,
        _EMBED_SCALE,
        _EMBED_SCALE.replace("self.scale", "None"),
        _LINEN_TERMS,
        "scale halves",
    ),
    Fault(
        "linen.TransformerInput trains the padding row",
        _LINEN,
        _WHOLE_SCALE,
        _WHOLE_SCALE.replace("self.padding_idx", "None"),
        _LINEN_TERMS,
        "gradient/embedding",
    ),
    Fault(
        "linen.PositionalEncoding does not read the positions",
        _LINEN,
        "add_positions(x, table, positions=positions)",
        "add_positions(x, table)",
        _LINEN_TERMS,
        "halves",
    ),
    Fault(
        "linen modules with a table do not read the positions",
        _LINEN,
        "module.sinusoid), positions\n",
        "module.sinusoid), None\n",
        _LINEN_TERMS,
        "table sum halves",
    ),
    Fault(
        "linen modules drop where they are to be deterministic",
        _LINEN,
        'None if require_flag("deterministic", merged) else',
        'None if not require_flag("deterministic", merged) else',
        _LINEN_TERMS,
        "rows scale table sum gradient/embedding halves",
        PORT_RAISED,
    ),
    Fault(
        "linen modules drop nothing in training",
        _LINEN,
        'None if require_flag("deterministic", merged) else',
        "None if True else",
        "linen/dropout[rate 0.25, float32, jit]",
        "dropout mask",
    ),
    Fault(
        "without its table a linen module takes the next row",
        "jax_input/rebuild.py",
        "nearest.ravel()",
        "nearest.ravel() + 1",
        "linen/params_alone[padding left, float32, jit]",
        "table",
    ),
    Fault(
        "without its table a linen module counts from the end",
        "jax_input/rebuild.py",
        "sinusoid, dtype), None\n",
        "sinusoid, dtype)[::-1], None\n",
        "linen/params_alone[padding right, float32, jit]",
        "table",
    ),
)

# The nnx modules.
NNX = (
    Fault(
        "nnx.TransformerInput leaves the scale out",
        _NNX,
        _WHOLE_SCALE,
        _WHOLE_SCALE.replace("self.scale", "None"),
        _NNX_TERMS,
        "sum gradient/embedding",
    ),
    Fault(
        "nnx.Embed leaves the scale out",
        _NNX,
        _EMBED_SCALE,
        _EMBED_SCALE.replace("self.scale", "None"),
        _NNX_TERMS,
        "scale halves",
    ),
    Fault(
        "nnx.Embed does not read its dtype",
        _NNX,
        f"{_EMBED_SCALE}=self.dtype",
        f"{_EMBED_SCALE}=None",
        _NNX_TERMS,
        "rows scale halves",
        "dtype float32, torch has bfloat16",
        "",
    ),
    Fault(
        "nnx.TransformerInput does not read the positions",
        _NNX,
        "            positions=positions,\n            scale",
        "            scale",
        _NNX_TERMS,
        "table sum",
    ),
    Fault(
        "nnx modules drop after eval()",
        _NNX,
        "is_off = module.deterministic if deterministic is None else deterministic",
        "is_off = bool(deterministic)",
        _NNX_TERMS,
        "rows scale table sum gradient/embedding halves",
        PORT_RAISED,
    ),
    Fault(
        "nnx modules drop nothing after train()",
        _NNX,
        "is_off = module.deterministic if deterministic is None else deterministic",
        "is_off = True if deterministic is None else deterministic",
        "nnx/dropout[rate 0.25, float32, jit]",
        "dropout mask",
    ),
)

INIT = (
    Fault(
        "the padding row of a new linen module is drawn",
        _LINEN,
        "zero_padding_row(table, shape, padding_idx)",
        "table",
        "linen/init[float32]",
        "init/padding",
    ),
    Fault(
        "the padding row of a new nnx module is drawn",
        _NNX,
        "zero_padding_row(parameter[...], shape, padding_idx)",
        "parameter[...]",
        "nnx/init[float32]",
        "init/padding",
    ),
    Fault(
        "a new linen module is drawn 50 times too narrow",
        _LINEN,
        f"{_DRAWN_BY_LINEN}(1.0)",
        f"{_DRAWN_BY_LINEN}(0.02)",
        "linen/init[float32]",
        "init/normal",
    ),
    Fault(
        "a new nnx module is drawn 50 times too narrow",
        _NNX,
        "nnx.initializers.normal(1.0)",
        "nnx.initializers.normal(0.02)",
        "nnx/init[float32]",
        "init/normal",
    ),
)

FAULTS = (*LINEN, *NNX, *INIT)
