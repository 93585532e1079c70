import re

import pytest

from jax_input.states import by_name, like, require_same_weights


@pytest.mark.parametrize(
    ("state", "names"),
    [
        ({"params": {"a": {"b": 1}}, "constants": {"a": {"pe": 2}}}, ["a.b", "a.position_table"]),
        ({"a.b": 1, "a.position_table": 2}, ["a.b", "a.position_table"]),
        ({"layers": {0: {"w": 1}, 1: {"w": 2}}}, ["layers.0.w", "layers.1.w"]),
        ({"params": 1}, ["params"]),
        ({"a": {"params": {"w": 1}}}, ["a.params.w"]),
        ({}, []),
    ],
)
def test_a_name_is_the_path_without_its_collection(state, names):
    assert [".".join(path) for path in by_name(state, "state")] == names


def test_a_name_that_comes_twice_raises_with_its_second_path():
    state = {"params": {"w": 1}, "constants": {"w": 2}}
    message = "`state` holds `w` twice, the second time at ['constants', 'w']. Leave one"
    with pytest.raises(ValueError, match=re.escape(message)):
        by_name(state, "state")


def test_leaves_go_back_to_their_places():
    state = {"params": {"a.b": {0: None}}, "constants": {"pe": None}}
    restored = {("a", "b", "0"): 1, ("position_table",): 2, ("more",): 3}
    assert like(state, restored) == {"params": {"a.b": {0: 1}}, "constants": {"pe": 2}}


def test_tables_need_not_be_on_both_sides():
    require_same_weights({("w",), ("position_table",)}, {("w",)})
    require_same_weights({("w",)}, {("w",), ("a", "position_table")})


def test_all_weights_of_one_side_alone_are_named():
    message = "do not name the same weights; missing: b.w, c; left over: a. Rename or remove"
    with pytest.raises(ValueError, match=message):
        require_same_weights({("a",), ("x",)}, {("c",), ("b", "w"), ("x",)})
