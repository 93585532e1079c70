"""Each guess about a weight is named, by what it makes of the weight."""

import numpy as np
import pytest

from parity.layouts import Layout
from parity.weight_guesses import weight_guesses

SQUARE = np.random.default_rng(0).normal(size=(6, 6))
KERNEL = np.random.default_rng(1).normal(size=(3, 3, 4, 4))  # height, width, in, out
CUBE = np.random.default_rng(2).normal(size=(4, 4, 4, 4))
LAST = Layout("channels last", (2, 3, 1, 0))
SQUARE8 = np.random.default_rng(3).normal(size=(8, 5))
HALVES = [0, 2, 1, 3, 4, 6, 5, 7]  # of each of two heads
POSITIVE = np.abs(SQUARE) + 0.1


def named(wrong: np.ndarray, right: np.ndarray, layout: Layout) -> str:
    """Return the code of the first guess that gives an array."""
    return next(
        code
        for code, _, guess in weight_guesses(right, layout)
        if guess.shape == wrong.shape and np.array_equal(guess, wrong)
    )


@pytest.mark.parametrize(
    ("code", "wrong", "right", "layout"),
    [
        ("untransposed-square", SQUARE.T, SQUARE, Layout("transposed", (1, 0))),
        ("sign", -SQUARE, SQUARE, Layout()),
        ("scale-plus-one", SQUARE + 1, SQUARE, Layout()),
        ("shifted-by-one", np.roll(SQUARE, 1, 0), SQUARE, Layout()),
        ("halves-swapped", np.roll(SQUARE, 3, 1), SQUARE, Layout()),
        ("variance-form", np.sqrt(POSITIVE), POSITIVE, Layout()),
        ("kernel-flipped", KERNEL[::-1, ::-1], KERNEL, LAST),
        ("kernel-turned", KERNEL.swapaxes(0, 1), KERNEL, LAST),
        ("untransposed-square", KERNEL.swapaxes(2, 3), KERNEL, LAST),
        ("kernel-turned", KERNEL.T.swapaxes(2, 3), KERNEL.T, Layout()),
        ("interleaved-halves", SQUARE8[HALVES], SQUARE8, Layout("transposed", (1, 0))),
        ("untransposed", CUBE.transpose(2, 1, 0, 3), CUBE, LAST),
    ],
)
def test_wrong_weight_has_its_code(code, wrong, right, layout):
    assert named(wrong, right, layout) == code


def test_no_guess_leaves_the_weight_as_it_is():
    for code, cause, guess in weight_guesses(SQUARE, Layout()):
        assert guess.shape != SQUARE.shape or not np.array_equal(guess, SQUARE), (code, cause)
