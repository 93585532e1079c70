"""The bridges between NumPy, JAX and PyTorch (reports B15 and B16), and what they tell."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

from parity.frameworks import jax_side, torch_side
from parity.usage import PRECISIONS

ALL_PATTERNS = np.arange(2**16, dtype=np.uint16)
DTYPES = ["float32", "float16", "int32", "int8", "uint8", "bool"]


def every_bfloat16():
    return ALL_PATTERNS.view(ml_dtypes.bfloat16)


def patterns(array):
    assert array.dtype == ml_dtypes.bfloat16
    return array.view(np.uint16)


def test_every_bfloat16_goes_from_torch_to_jax_and_back_bit_for_bit():
    start = torch.from_numpy(ALL_PATTERNS.view(np.int16).copy()).view(torch.bfloat16)
    there = jax_side.from_numpy(torch_side.to_numpy(start))
    assert there.dtype == jnp.bfloat16
    back = torch_side.from_numpy(jax_side.to_numpy(there))
    assert back.dtype == torch.bfloat16
    assert torch.equal(back.view(torch.int16), start.view(torch.int16))


def test_every_bfloat16_goes_from_jax_to_torch_and_back_bit_for_bit():
    start = jax.lax.bitcast_convert_type(jnp.asarray(ALL_PATTERNS), jnp.bfloat16)
    there = torch_side.from_numpy(jax_side.to_numpy(start))
    assert there.dtype == torch.bfloat16
    back = jax_side.from_numpy(torch_side.to_numpy(there))
    bits = jax.lax.bitcast_convert_type(back, jnp.uint16)
    np.testing.assert_array_equal(bits, ALL_PATTERNS)


@pytest.mark.parametrize("side", [jax_side, torch_side])
def test_every_bfloat16_comes_back_from_one_side_bit_for_bit(side):
    back = side.to_numpy(side.from_numpy(every_bfloat16()))
    np.testing.assert_array_equal(patterns(back), ALL_PATTERNS)


@pytest.mark.parametrize("side", [jax_side, torch_side])
@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_dtype_and_shape_are_kept(side, dtype, shape):
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    array = np.ones(shape, kind)
    back = side.to_numpy(side.from_numpy(array))
    assert (back.dtype, back.shape) == (array.dtype, shape)
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize("side", [jax_side, torch_side])
def test_arrays_that_are_not_contiguous_are_taken(side):
    array = np.arange(12, dtype=np.float32).reshape(3, 4).T[::-1]
    np.testing.assert_array_equal(side.to_numpy(side.from_numpy(array)), array)


def test_tensors_with_gradient_conjugate_or_sparse_are_taken():
    leaf = torch.arange(3.0, requires_grad=True)
    np.testing.assert_array_equal(torch_side.to_numpy(leaf * 2), [0.0, 2.0, 4.0])
    np.testing.assert_array_equal(torch_side.to_numpy(torch.eye(2).to_sparse()), np.eye(2))
    conjugate = torch.tensor([1 + 2j]).conj()
    np.testing.assert_array_equal(torch_side.to_numpy(conjugate), [1 - 2j])


def test_a_tensor_with_a_gradient_in_bfloat16_is_taken():
    leaf = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
    assert torch_side.to_numpy(leaf).dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("side", [jax_side, torch_side])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_overwriting_the_source_at_once_never_shows(side, dtype):
    """Fifty tries: an aliased or unfinished copy shows in some of them."""
    for _ in range(50):
        source = np.full((4096, 128), 3.0, dtype)
        copy = side.from_numpy(source)
        source[...] = -1
        assert (side.to_numpy(copy) == 3).all()


def test_the_table_of_the_report_never_shows_the_overwrite():
    for _ in range(50):
        source = np.full((4096, 512), 3.0, np.float32)
        copy = jax_side.from_numpy(source)
        source[...] = -1
        assert bool(jnp.all(copy == 3))


def test_overwriting_what_came_from_torch_leaves_the_tensor_alone():
    for dtype in (torch.float32, torch.bfloat16):
        tensor = torch.ones(8, dtype=dtype)
        array = torch_side.to_numpy(tensor)
        array[...] = 5
        assert (tensor == 1).all()
        tensor.zero_()
        assert (array == 5).all()


def test_what_came_from_jax_can_be_written_to():
    array = jnp.ones(8)
    copy = jax_side.to_numpy(array)
    copy[...] = 5
    assert bool(jnp.all(array == 1))


@pytest.mark.parametrize(("dtype", "cut"), [("float64", "float32"), ("int64", "int32")])
def test_what_jax_would_cut_to_32_bits_is_refused(dtype, cut):
    with pytest.raises(ValueError, match=f"`array` is {dtype}, which JAX cuts to {cut}"):
        jax_side.from_numpy(np.ones(3, dtype))
    with jax.enable_x64(True):
        assert jax_side.from_numpy(np.ones(3, dtype)).dtype == dtype


def test_a_device_that_is_not_there_is_said_to_be_missing():
    assert jax_side.missing_device("cpu") == ""
    if "tpu" not in {device.platform for device in jax.devices()}:
        assert "no tpu here: JAX has" in jax_side.missing_device("tpu")


def test_the_setting_holds_inside_and_not_after():
    before = jax.config.jax_default_matmul_precision
    with jax_side.configured("cpu", "highest"):
        assert jax.config.jax_default_matmul_precision == "highest"
        assert jnp.ones(2).devices() == {jax.devices("cpu")[0]}
    assert jax.config.jax_default_matmul_precision == before
    with jax_side.configured(None, None):
        assert jax.config.jax_default_matmul_precision == before


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_matmul_precision_that_may_be_asked_for_is_one_of_jax(precision):
    with jax_side.configured(None, precision):
        assert jax.config.jax_default_matmul_precision == precision
        assert float((jnp.ones((2, 2)) @ jnp.ones((2, 2)))[0, 0]) == 2.0


def test_both_sides_tell_what_their_numbers_depend_on():
    told = {**jax_side.describe(), **torch_side.describe()}
    assert told["jax"] == jax.__version__
    assert told["torch"] == torch.__version__
    assert told["jax x64"] == str(jax.config.jax_enable_x64)
    assert {"jax devices", "jax matmul precision", "torch float32 matmul precision"} <= set(told)
    assert all(isinstance(fact, str) for fact in told.values())
    assert jax_side.default_device() in told["jax devices"]
