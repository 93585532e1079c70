"""64-bit types on or off: the same bits and dtypes, for arguments of 32 bits."""

import jax
import pytest

from tests.catalogue import CAST, EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES + CAST, ids=str)
def test_x64_changes_neither_bits_nor_dtypes_compiled(example):
    expected = example.call(*example.arguments)
    with jax.enable_x64(True):
        compiled = jax.jit(example.call)(*example.arguments)
        example.agree(compiled, expected)
        # Constants and weak types are decided where the call is traced.
        assert compiled.weak_type == expected.weak_type


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_x64_changes_nothing_eagerly(example):
    expected = example.call(*example.arguments)
    with jax.enable_x64(True):
        example.agree(example.call(*example.arguments), expected)
