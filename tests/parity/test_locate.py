"""Which steps of a reference are found in a port, and where it leaves them."""

import numpy as np
import pytest

from parity.locate import Status, Step, Values, located, with_nearest

RANDOM = np.random.default_rng(0)
A, B, C, D = (RANDOM.normal(size=(2, 3, 4)) for _ in range(4))


def step(key, value, *sources, limit=1e-6):
    return Step(key, "", key, sources, value, limit)


def states(steps, held, **outputs):
    return [status.state for status in located(steps, Values(held), outputs)]


def test_the_first_that_is_lost_is_here_and_what_follows_is_off():
    steps = [step("a", A, "inputs/0"), step("b", B, "a"), step("c", C, "b")]
    assert states(steps, [A, B + 1, C + 1], c=False) == ["ok", "here", "off"]


def test_a_step_that_is_never_held_is_no_loss_if_what_follows_is_right():
    steps = [step("a", A, "inputs/0"), step("b", B, "a"), step("c", C, "b")]
    assert states(steps, [A, C], c=True) == ["ok", "elsewhere", "ok"]


def test_one_of_two_branches_is_lost():
    steps = [
        *(step("a", A, "inputs/0"), step("b", B, "inputs/0")),
        *(step("c", C, "a", "b"), step("d", D, "c")),
    ]
    assert states(steps, [A, B + 1, C + 1, D + 1], d=False) == ["ok", "here", "off", "off"]


def test_what_no_input_goes_into_is_constant():
    steps = [step("w", A, "weights/w"), step("b", B, "inputs/0", "w")]
    assert states(steps, [B], b=True) == ["constant", "ok"]


def test_an_output_is_held_on_the_way_and_not_returned():
    assert states([step("a", A, "inputs/0")], [A, A + 1], a=False) == ["here"]


def test_a_dead_end_is_no_loss():
    steps = [step("a", A, "inputs/0"), step("b", B, "a")]
    assert states(steps, [A], a=True) == ["ok", "elsewhere"]


def test_a_value_is_found_with_its_axes_in_any_order():
    for order in ((0, 2, 1), (2, 0, 1), (1, 2, 0)):
        assert Values([A.transpose(order)]).holds(A, 1e-9) == (0.0, 0)
    assert Values([A.reshape(6, 4)]).holds(A, 1e-9) == (0.0, 0)


def test_values_in_another_order_are_not_the_same():
    mixed = A.reshape(-1)[::-1].reshape(A.shape)
    assert Values([mixed]).holds(A, 1e-9) == (np.inf, -1)
    assert Values([mixed]).nearest(A)[0] > 0.1


def test_the_parts_of_a_packed_value_are_found_one_by_one():
    held = Values([part.copy() for part in np.split(A, 2, axis=-1)])
    assert held.holds(A, 1e-9)[0] == 0
    assert held.nearest(A) == (np.inf, -1)


def test_the_limit_is_kept():
    held = Values([A + 2e-6])
    assert held.holds(A, 1e-6) == (np.inf, -1)
    assert held.holds(A, 3e-6)[0] <= 3e-6


def test_the_nearest_is_looked_for_in_any_order_of_axes():
    error, place = Values([A + 1.0, (A + 0.01).transpose(2, 0, 1)]).nearest(A)
    assert (error, place) == (pytest.approx(0.01), 1)


def test_what_is_no_number_anywhere_is_nearest_to_nothing():
    held = Values([np.full(A.shape, np.nan), np.where(A > 0, A, np.inf)])
    assert held.nearest(A) == (np.inf, -1)
    lost = Status(step("a", A, "inputs/0"), "here", np.inf, -1)
    assert with_nearest(lost, held).place == -1
    assert with_nearest(lost, Values([np.full(A.shape, np.nan), A + 1])).place == 1
    infinite = Status(step("a", np.where(A > 0, A, np.nan), "inputs/0"), "here", np.inf, -1)
    assert with_nearest(infinite, Values([A])) is infinite


def test_each_value_is_sorted_once(monkeypatch):
    held, sizes = Values([A, B]), []
    plain = np.sort
    monkeypatch.setattr(
        np, "sort", lambda x, **options: sizes.append(x.size) or plain(x, **options)
    )
    for value in (C, D):
        held.nearest(value)
    assert len(sizes) == 4  # the two that are held, and the two that are looked for


def test_infinite_steps_are_nowhere_found():
    hidden = np.where(A > 0, A, np.inf)
    steps = [step("a", hidden, "inputs/0"), step("b", B, "a")]
    assert states(steps, [hidden, B], b=True) == ["elsewhere", "ok"]
