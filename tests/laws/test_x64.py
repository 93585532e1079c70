"""64-bit types on or off: the same bits and dtypes, for arguments of 32 bits."""

import jax
import pytest

from tests.catalogue import CAST, EXAMPLES, same_bits


@pytest.mark.parametrize("example", EXAMPLES + CAST, ids=str)
def test_x64_changes_neither_bits_nor_dtypes(example):
    results = []
    for x64 in (False, True):
        with jax.enable_x64(x64):
            results += [
                example.call(*example.arguments),
                jax.jit(example.call)(*example.arguments),
            ]
    for result in results[1:]:
        same_bits(result, results[0])
