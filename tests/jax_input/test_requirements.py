"""Each message names the argument, what came, what may come, and the way out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_input import Sinusoid, encode_positions, sinusoidal_table


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: sinusoidal_table(0, 8), "`max_len` must be at least 1 .* got 0"),
        (lambda: sinusoidal_table(8, 0), "`d_model` must be at least 1 .* got 0"),
        (lambda: sinusoidal_table(-3, 8), "`max_len` .* got -3"),
        (lambda: sinusoidal_table(2**31 + 1, 8), "`max_len` .* at most 2\\*\\*31, got 2147483649"),
        (lambda: encode_positions(0, 0), "`d_model` must be at least 1 .* got 0"),
        (lambda: Sinusoid(base=0), "`base` must be a finite number above 0, got 0"),
        (lambda: Sinusoid(base=float("nan")), "`base` .* got nan"),
        (lambda: Sinusoid(base="10000"), "`base` .* got '10000'"),
        (lambda: Sinusoid(layout="half"), "`layout` must be 'interleaved' or 'halves', got 'half'"),
        (lambda: Sinusoid(freq_shift=2), "`freq_shift` must be 0 or 1, got 2"),
        (lambda: Sinusoid(cos_first=1), "`cos_first` must be True or False, got 1"),
        (
            lambda: encode_positions(np.array([[0, 2**31]]), 4),
            r"`positions` holds 2147483648 at \[0, 1\], but must be from -\(2\*\*31\)",
        ),
        (lambda: encode_positions(-(2**31) - 1, 4), "`positions` holds -2147483649"),
        (lambda: encode_positions(2**63 + 5, 4), "`positions` holds 9223372036854775813"),
        (lambda: encode_positions([0.5, float("nan")], 4), r"`positions` holds nan at \[1\]"),
        (lambda: encode_positions(float("inf"), 4), r"`positions` holds inf at \[\]"),
        (
            lambda: sinusoidal_table(4, 4, dtype=jnp.float64),
            "`dtype` is float64, which JAX has only where x64 is on. Call it under",
        ),
    ],
)
def test_a_wrong_value_is_named_with_the_way_out(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: sinusoidal_table(8.0, 8), "`max_len` must be a Python integer, got float 8.0"),
        (lambda: sinusoidal_table(True, 8), "`max_len` must be a Python integer, got bool True"),
        (lambda: sinusoidal_table(8, "8"), "`d_model` must be a Python integer, got str '8'"),
        (lambda: sinusoidal_table(8, 8, dtype=jnp.int32), "`dtype` must be float32.* got int32"),
        (
            lambda: sinusoidal_table(8, 8, sinusoid="paper"),
            "`sinusoid` must be a Sinusoid, got str",
        ),
        (lambda: encode_positions(jnp.ones(3, bool), 4), "`positions` must be .* got bool"),
        (
            lambda: encode_positions(jnp.ones(3, jnp.bfloat16), 4),
            r"`positions` must be integers or float32, got bfloat16.* above 256 \(bfloat16\)",
        ),
        (lambda: encode_positions(np.ones(3), 4), "`positions` must be .* got float64"),
        (lambda: encode_positions(1j, 4), "`positions` must be .* got complex"),
    ],
)
def test_a_wrong_type_is_named_with_the_way_out(build, message):
    with pytest.raises(TypeError, match=message):
        build()


def test_a_traced_size_is_refused_by_name():
    with pytest.raises(TypeError, match=r"`max_len` must be a Python integer, got .*Tracer"):
        jax.jit(lambda n: sinusoidal_table(n, 4))(3)
