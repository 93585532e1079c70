"""Faults of the position table."""

from tests.mutants.fault import Fault

_SINUSOID = "jax_input/sinusoidal.py"
_PAPER = "sinusoidal/positions[d_model 7, paper, float32, jit]"

# The convention of the table.
CONVENTION = (
    Fault(
        "base 1000",
        _SINUSOID,
        "base: float = 10_000.0",
        "base: float = 1_000.0",
        _PAPER,
        "table",
    ),
    Fault(
        "halves for interleaved",
        _SINUSOID,
        'sinusoid.layout == "interleaved"',
        'sinusoid.layout != "interleaved"',
        _PAPER,
        "table",
    ),
    Fault(
        "sine and cosine are exchanged",
        _SINUSOID,
        "is_second != sinusoid.cos_first",
        "is_second == sinusoid.cos_first",
        _PAPER,
        "table",
    ),
    Fault(
        "each column has a frequency of its own",
        _SINUSOID,
        "    count = -(-d_model // 2)\n"
        "    column = np.arange(d_model)\n"
        '    if sinusoid.layout == "interleaved":\n'
        "        index, is_second = column // 2,",
        "    count = d_model\n"
        "    column = np.arange(d_model)\n"
        '    if sinusoid.layout == "interleaved":\n'
        "        index, is_second = column,",
        _PAPER,
        "table",
    ),
    Fault(
        "cos_first is not read",
        _SINUSOID,
        "is_second != sinusoid.cos_first",
        "is_second",
        "sinusoidal/positions[d_model 7, cosine first, float32, jit]",
        "table",
    ),
    Fault(
        "freq_shift is not read",
        _SINUSOID,
        "if sinusoid.freq_shift == 0 else",
        "if True else",
        "sinusoidal/positions[d_model 7, tensor2tensor, float32, jit]",
        "table",
    ),
    Fault(
        "the halves of an odd width part one column early",
        _SINUSOID,
        "column % count, column >= count",
        "column % (d_model // 2), column >= d_model // 2",
        "sinusoidal/positions[d_model 7, diffusers, float32, jit]",
        "table",
    ),
)

# The values of the table.
VALUES = (
    Fault(
        "sines of negative positions lose their sign",
        _SINUSOID,
        "value.negative ^ (negative & is_sine)",
        "value.negative",
        _PAPER,
        "table",
    ),
    Fault(
        "cosines of negative positions get a sign",
        _SINUSOID,
        "(negative & is_sine)",
        "negative",
        _PAPER,
        "table",
    ),
    Fault(
        "positions are held in bfloat16",
        _SINUSOID,
        "phase.split_integer(positions[..., None])",
        "phase.split_integer(positions.astype(jnp.bfloat16).astype(jnp.int64)[..., None])",
        _PAPER,
        "table",
    ),
    Fault(
        "timesteps lose their fraction",
        _SINUSOID,
        "phase.add(phase.multiply(whole, frequency), part)",
        "phase.multiply(whole, frequency)",
        "sinusoidal/timesteps[d_model 320, float32, jit]",
        "table",
    ),
    Fault(
        "the table repeats its first 64 rows",
        _SINUSOID,
        "jnp.arange(blocks, dtype=jnp.uint64) *",
        "0 * jnp.arange(blocks, dtype=jnp.uint64) *",
        "sinusoidal/table[70x34, paper, float32, jit]",
        "table",
    ),
    Fault(
        "angles are taken in float32",
        _SINUSOID,
        "        rows = fixed_point.round_to(total, dtype)\n",
        "        radians = (frequency.high * (2 * np.pi / 2**64)).astype(np.float32)\n"
        "        angles = np.arange(blocks * _BLOCK, dtype=np.float32)[:, None] * radians\n"
        "        rows = jnp.where(quarter == 0, jnp.sin(angles), jnp.cos(angles)).astype(dtype)\n",
        "sinusoidal/table[70x34, paper, float32, jit]",
        "table",
    ),
    Fault(
        "the table is built in bfloat16",
        _SINUSOID,
        "fixed_point.round_to(total, dtype)",
        "fixed_point.round_to(total, np.dtype(jnp.bfloat16)).astype(dtype)",
        "sinusoidal/table[3x5, paper, float32, eager]",
        "table",
    ),
    Fault(
        "entries are cut, not rounded",
        "jax_input/fixed_point.py",
        "sticky.astype(jnp.uint64)) & np.uint64(1)\n",
        "sticky.astype(jnp.uint64)) & np.uint64(0)\n",
        _PAPER,
        "table",
    ),
    Fault(
        "the carry of an angle is dropped",
        "jax_input/phase.py",
        "position * frequency.high + carry,",
        "position * frequency.high,",
        "sinusoidal/positions[d_model 64, paper, float32, jit]",
        "table",
    ),
    Fault(
        "a digit of the sine's polynomial is wrong",
        "jax_input/phase.py",
        "0x52AEF39896F94AED",
        "0x52AEE39896F94AED",
        "sinusoidal/positions[d_model 64, paper, float32, jit]",
        "table",
    ),
    Fault(
        "float16 has no gradual underflow in the table",
        "jax_input/fixed_point.py",
        "    if smallest > -64:\n",
        "    if False:\n",
        "sinusoidal/positions[d_model 7, base 500000, float16, jit]",
        "table",
    ),
)

FAULTS = (*CONVENTION, *VALUES)
