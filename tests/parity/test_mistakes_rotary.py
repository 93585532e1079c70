"""Rotations are found however they are written, and guesses at them compute what they say."""

import numpy as np
import pytest
import torch
from torch import Tensor

from parity.mistakes.rotary import rotation
from tests.parity.test_mistakes_attention import answers, draw, equal, seen

LENGTH, WIDTH, HALF = 5, 8, 4
FREQUENCIES = 10_000.0 ** (-torch.arange(HALF, dtype=torch.float64) / HALF)
ANGLES = torch.arange(LENGTH, dtype=torch.float64)[:, None] * FREQUENCIES
Q, K = draw(2, 3, LENGTH, WIDTH), draw(2, 3, LENGTH, WIDTH, seed=1)


def halves(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    cos, sin = ANGLES.cos(), ANGLES.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def half_turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    both = torch.cat([ANGLES, ANGLES], -1)
    return x * both.cos() + torch.cat([-second, first], -1) * both.sin()


def stacked(x: Tensor) -> Tensor:
    first, second = x[..., ::2], x[..., 1::2]
    cos, sin = ANGLES.cos(), ANGLES.sin()
    return torch.stack([first * cos - second * sin, second * cos + first * sin], -1).flatten(-2)


def complex_product(x: Tensor) -> Tensor:
    turn = torch.polar(torch.ones_like(ANGLES), ANGLES)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn).flatten(-2)


FORMS = {
    "halves": (halves, "cat", "halves"),
    "half turned": (half_turned, "add", "halves"),
    "stacked": (stacked, "flatten", "interleaved"),
    "complex": (complex_product, "flatten", "interleaved"),
}


def call_of(form: str):
    function, name, _ = FORMS[form]
    return seen(name, lambda: function(Q * 1.0), place=-1)


def turned(x: np.ndarray, angles: np.ndarray, layout: str) -> np.ndarray:
    """Turn pairs as complex numbers."""
    if layout == "interleaved":
        first, second = x[..., ::2], x[..., 1::2]
    else:
        first, second = np.split(x, 2, -1)
    product = (first + 1j * second) * np.exp(1j * angles)
    parts = [product.real, product.imag]
    if layout == "interleaved":
        return np.stack(parts, -1).reshape(x.shape)
    return np.concatenate(parts, -1)


@pytest.mark.parametrize("form", FORMS)
def test_a_rotation_is_found_with_its_layout_and_angles(form: str) -> None:
    found = rotation(call_of(form))
    assert found is not None
    assert found.layout == FORMS[form][2]
    assert torch.equal(found.x, Q)
    np.testing.assert_allclose(
        np.exp(1j * found.angles.numpy()),
        np.exp(1j * ANGLES.numpy()[None, None]).repeat(2, 0).repeat(3, 1),
    )


@pytest.mark.parametrize("form", FORMS)
def test_other_rotations(form: str) -> None:
    call, layout, angles = call_of(form), FORMS[form][2], ANGLES.numpy()
    other = {"halves": "interleaved", "interleaved": "halves"}[layout]
    slower = np.arange(LENGTH)[:, None] * 500_000.0 ** (-np.arange(HALF) / HALF)
    for code, part, theirs in (
        ("key-not-rotated", "", Q.numpy()),
        ("rotary-missing", "", Q.numpy()),
        ("rotated-backwards", "", turned(Q.numpy(), -angles, layout)),
        ("interleaved-halves", "pairs that turn", turned(Q.numpy(), angles, other)),
        ("sine-cosine-swapped", "rotation", turned(Q.numpy(), np.pi / 2 - angles, layout)),
        ("rotary-base", "500000", turned(Q.numpy(), slower, layout)),
        ("rotary-scaling", "count 2 ", turned(Q.numpy(), 2 * angles, layout)),
    ):
        (ours,) = answers(call, code, part)
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-9, atol=1e-9, err_msg=code)


def test_values_that_are_rotated_too() -> None:
    value = draw(2, 3, LENGTH, WIDTH, seed=2)

    def attend() -> Tensor:
        weights = torch.softmax(halves(Q * 1.0) @ halves(K * 1.0).mT, -1)
        return weights @ value

    call = seen("matmul", attend, place=-1)
    (ours,) = answers(call, "value-rotated")
    equal(ours, call.places[0].numpy() @ turned(value.numpy(), ANGLES.numpy(), "halves"))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.cat([x[..., 4:], x[..., :4]], -1),
        lambda x: torch.cat([-x[..., 4:], x[..., :4]], -1),
        lambda x: torch.cat([x[..., :4] * 2, x[..., 4:]], -1),
        lambda x: torch.cat([x[..., :4], x[..., 4:]], -1),
    ],
)
def test_what_only_moves_or_scales_is_no_rotation(function) -> None:
    assert rotation(seen("cat", lambda: function(Q * 1.0))) is None
