"""Which output is which, and in which order of axes."""

import numpy as np

from parity.pairing import layouts_of, paired, turned

RANDOM = np.random.default_rng(0)
IMAGE = RANDOM.normal(size=(2, 3, 5, 4)).astype(np.float32)
LAST = IMAGE.transpose(0, 2, 3, 1)


def names(ours, theirs):
    pairs, told = paired(ours, theirs)
    return [(pair.port, pair.reference) for pair in pairs], told


def test_the_same_names_are_paired():
    assert names({"a": IMAGE, "b": LAST}, {"b": LAST, "a": IMAGE}) == (
        [("b", "b"), ("a", "a")],
        (),
    )


def test_one_output_is_the_first_of_several_that_has_its_shape():
    pairs, told = names({"output": LAST}, {"[0]": IMAGE, "[1]": LAST})
    assert pairs == [("output", "[1]")]
    assert told == ("output [0] of the reference is not compared: the other side has none",)


def test_as_many_of_other_names_are_paired_in_order():
    assert names({"x": IMAGE, "y": LAST}, {"[0]": IMAGE, "[1]": LAST})[0] == [
        *(("x", "[0]"), ("y", "[1]"))
    ]


def test_an_output_of_another_shape_has_no_axes():
    (pair,), _ = paired({"output": LAST}, {"output": IMAGE})
    assert pair.axes is None


def test_outputs_may_differ_as_the_inputs_do():
    layouts = layouts_of({"0": LAST}, {"0": IMAGE})
    assert layouts == ((0, 3, 1, 2),)
    (pair,), _ = paired({"output": LAST}, {"output": IMAGE}, layouts)
    assert pair.axes == (0, 3, 1, 2)


def test_inputs_that_are_the_same_differ_in_no_layout():
    assert layouts_of({"0": IMAGE}, {"0": IMAGE}) == ()


def test_the_nearest_order_of_axes_is_found():
    assert turned(LAST, IMAGE.astype(np.float64)) == (0, 3, 1, 2)
    square = RANDOM.normal(size=(4, 4))
    assert turned(square.T, square) == (1, 0)
    assert turned(np.arange(3), np.arange(3)) is None
