"""Each message names the argument, what came, what may come, and the way out."""

import re

import flax.nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from jax_input import (
    Sinusoid,
    dropout,
    embed_tokens,
    encode_positions,
    linen,
    nnx,
    positions_from_mask,
    sinusoidal_table,
    transformer_input,
)
from jax_input.checkpoints import restore, restore_table
from jax_input.requirements import (
    is_concrete,
    nearest_index,
    require_floats,
    require_inside,
    require_integers,
    require_table,
)

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


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
        (lambda: Sinusoid(base=True), "`base` .* got True"),
        (lambda: Sinusoid(freq_shift=True), "`freq_shift` must be 0 or 1, got True"),
        (
            lambda: encode_positions(np.float32(0.5), 8, sinusoid=Sinusoid(base=0.1)),
            "`sinusoid` has base 0.1, but float32 positions need at least 1: .* Pass integer",
        ),
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


def test_traced_values_are_not_concrete_and_all_others_are():
    seen = []
    jax.jit(lambda x: seen.append(is_concrete(x)))(1)
    jax.vmap(lambda x: seen.append(is_concrete(x)))(jnp.arange(2))
    assert seen == [False, False]
    assert is_concrete(np.arange(3))
    assert is_concrete(jnp.arange(3))


def test_values_that_another_host_holds_are_not_concrete(monkeypatch):
    values = jnp.arange(3)
    monkeypatch.setattr(type(values), "is_fully_addressable", False)
    assert not is_concrete(values)


@pytest.mark.parametrize(
    ("values", "named"),
    [(np.arange(3, dtype=np.int32), "int32"), ([True], "bool"), ([1j], "complex64")],
)
def test_what_is_not_float_is_refused_by_name(values, named):
    with pytest.raises(
        TypeError, match=rf"`x` must hold float32, .* or float64, got {named}\. Cast"
    ):
        require_floats("x", values)


@pytest.mark.parametrize("shape", [(), (3,), (0, 3), (3, 0), (2, 3, 4)])
def test_table_must_be_a_matrix_with_rows_and_columns(shape):
    message = f"`w` must have shape [rows, width], each at least 1, got {list(shape)}."
    with pytest.raises(ValueError, match=re.escape(message)):
        require_table("w", np.zeros(shape, np.float32), ("rows", "width"))


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ([True, False], "bool"),
        ([0.0, 1.0], "float64"),
        (jnp.zeros(2, jnp.bfloat16), "bfloat16"),
        (np.zeros((0, 3)), "float64"),
        ("ab", "<U2"),
    ],
)
def test_what_is_not_integer_is_refused_with_its_dtype(values, named):
    with pytest.raises(TypeError, match=f"`ids` must hold integers, got {named}. Cast it to int32"):
        require_integers("ids", values)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_stay_as_wide_as_they_came(dtype):
    assert require_integers("ids", np.zeros(2, dtype)).dtype == dtype


@pytest.mark.parametrize("values", [[], [[], []], ()])
def test_empty_lists_count_as_integers(values):
    assert require_integers("ids", values).dtype == np.int32


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (np.array([[0, 1], [2, 5]]), r"5 at \[1, 1\]"),
        (np.array([-1, 9]), r"-1 at \[0\]"),
        (np.int64(2**40), rf"{2**40} at \[\]"),
        (np.array([2**64 - 1], np.uint64), rf"{2**64 - 1} at \[0\]"),
        (jnp.array([3, -7]), r"-7 at \[1\]"),
    ],
)
def test_first_value_outside_is_named_with_its_place(values, named):
    with pytest.raises(ValueError, match=rf"`ids` holds {named}, but there are 4\."):
        require_inside("ids", values, 4, "there are 4.")


def test_values_inside_pass():
    require_inside("ids", np.array([0, 3], np.int8), 4, "")
    require_inside("ids", np.zeros((0, 2), np.int32), 4, "")
    require_inside("ids", np.array([127], np.int8), 30_000, "")


@given(
    data=st.data(),
    dtype=st.sampled_from(INTEGERS),
    size=st.sampled_from([1, 8, 127, 128, 30_000, 2**31 - 1]),
    where=st.sampled_from(["host", "device", "traced"]),
    x64=st.booleans(),
)
def test_index_is_the_nearest_row_for_every_width_and_place(data, dtype, size, where, x64):
    with jax.enable_x64(x64):
        values = data.draw(st_numpy.arrays(dtype, st.integers(0, 4)))
        if where != "host" and not x64:
            kept = jnp.asarray(values)  # JAX may have cut it: then that is what we are given
            values = np.asarray(kept)
        if where == "traced":
            nearest, is_inside = jax.jit(nearest_index, static_argnums=1)(values, size)
        else:
            given_values = jnp.asarray(values) if where == "device" else values
            nearest, is_inside = nearest_index(given_values, size)
    given_integers = [int(value) for value in values]
    expected = [min(max(value, 0), size - 1) for value in given_integers]
    assert nearest.dtype == np.int32
    assert nearest.tolist() == expected
    assert is_inside.tolist() == [
        int(value) == near for value, near in zip(values, expected, strict=True)
    ]


EMBEDDING = np.ones((5, 4), np.float32)
IDS = np.array([[1, 2, 3]])


def dropped(**options):
    return dropout(np.ones(3, np.float32), 0.5, **options)


def restored(stored, target=None, **options):
    return restore(stored, {"embedding": EMBEDDING} if target is None else target, **options)


def of_linen(**options):
    sizes = {"vocab_size": 5, "d_model": 4} | options
    return linen.Embed(**sizes).init(jax.random.key(0), IDS)


def of_nnx(**options):
    return nnx.Embed(**{"vocab_size": 5, "d_model": 4, "rngs": flax.nnx.Rngs(0)} | options)


def rows_without_constants(**options):
    encode = linen.PositionalEncoding(**{"d_model": 4, "deterministic": True} | options)
    return encode.apply({}, np.ones((1, 2, 4), np.float32))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: embed_tokens([0], None), TypeError, "`embedding` must be an array, .* NoneType"),
        (lambda: positions_from_mask(None), TypeError, "`mask` must be an array, .* NoneType"),
        (lambda: embed_tokens([[1], [2, 3]], EMBEDDING), TypeError, "`token_ids` .* one length"),
        (lambda: encode_positions([[1], [2, 3]], 4), TypeError, "`positions` .* one length"),
        (lambda: embed_tokens([1, 2**63], EMBEDDING), ValueError, "`token_ids` .* 64 bits"),
        (lambda: encode_positions([1, 2**64], 4), ValueError, "`positions` .* beyond 64 bits"),
        *(
            (lambda dtype=dtype: sinusoidal_table(4, 8, dtype=dtype), TypeError, "`dtype` must be")
            for dtype in ("foo", 5, None, ">f4", np.zeros(2))
        ),
        (
            lambda: embed_tokens([0], EMBEDDING, padding_idx=0, zero_padding="no"),
            TypeError,
            "`zero_padding` must be True or False, .* got str",
        ),
        (lambda: dropped(key=3), TypeError, "`key` .* must be one key, .* got int"),
        (lambda: dropped(key="a"), TypeError, "`key` .* must be one key, .* got str"),
        (
            lambda: dropped(key=jax.random.split(jax.random.key(0))),
            TypeError,
            "`key` .* must be one key",
        ),
        (
            lambda: transformer_input(IDS, EMBEDDING, EMBEDDING, dropout_rate=1.5),
            ValueError,
            "`dropout_rate` must be from 0 to 1, .* got 1.5",
        ),
        (lambda: restored(None), TypeError, "A state must be nested mappings .* NoneType"),
        (
            lambda: restored({"embedding": np.full((5, 4), 1e300)}),
            ValueError,
            "`embedding` holds numbers beyond float32",
        ),
        (
            lambda: restored({"embedding": EMBEDDING}, padding_idx=True),
            ValueError,
            "`padding_idx` must be from 0 to 4, .* got True",
        ),
        (
            lambda: restored({}, {"position_table": np.zeros((2, 6, 4), np.float32)}),
            ValueError,
            r"`position_table` of `target` must have shape .* got \[2, 6, 4\]",
        ),
        (
            lambda: restore_table(EMBEDDING, 5, 4, exact="no"),
            TypeError,
            "`exact` must be True or False",
        ),
        (lambda: rows_without_constants(max_len=-1), ValueError, "`max_len` must be .* got -1"),
        (lambda: rows_without_constants(max_len=True), TypeError, "`max_len` must be .* True"),
        (lambda: rows_without_constants(dtype="foo"), TypeError, "`dtype` must be .* got foo"),
        (
            lambda: rows_without_constants(deterministic="no"),
            TypeError,
            "`deterministic` must be True or False",
        ),
        (lambda: of_nnx(rngs=None), TypeError, "`rngs` must be nnx.Rngs, got NoneType"),
        *(
            case
            for build in (of_linen, of_nnx)
            for case in [
                (lambda build=build: build(vocab_size=-1), ValueError, "`vocab_size` .* got -1"),
                (lambda build=build: build(d_model=1.5), TypeError, "`d_model` .* got float 1.5"),
                (lambda build=build: build(padding_idx=True), TypeError, "`padding_idx` .* True"),
                (lambda build=build: build(param_dtype="foo"), TypeError, "`param_dtype` .* foo"),
                (lambda build=build: build(embedding_init=None), TypeError, "`embedding_init`"),
                (
                    lambda build=build: build(embedding_init=lambda *_: jnp.zeros((9, 9))),
                    ValueError,
                    r"`embedding_init` made shape \[9, 9\], .* \[5, 4\]",
                ),
            ]
        ),
    ],
)
def test_no_bad_argument_reaches_a_library(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_lists_may_hold_traced_integers():
    rows = jax.jit(lambda token: embed_tokens([token, 2], EMBEDDING))(1)
    assert rows.shape == (2, 4)
