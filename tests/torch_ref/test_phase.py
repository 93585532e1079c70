import mpmath
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mp

from torch_ref.phase import (
    BITS,
    POINTS,
    circle,
    pi,
    reduce,
    sine_and_cosine,
    sine_of_turns,
    turns_per_position,
)
from torch_ref.sinusoidal import PAPER, Sinusoid

TURN = 1 << BITS
PRECISION = 700


@pytest.mark.parametrize("bits", [10, 256, 1000])
def test_pi_is_within_one_unit(bits):
    with mp.workprec(2 * bits + 64):
        assert abs(pi(bits) - mp.pi * mp.mpf(2) ** bits) < 1


@given(phase=st.integers(-2 * TURN, 2 * TURN))
def test_integer_sine_is_within_its_stated_error(phase):
    with mp.workprec(PRECISION):
        exact = mp.sin(2 * mp.pi * mp.mpf(phase) / TURN) * TURN
        assert abs(sine_of_turns(phase) - exact) < 2**8


@pytest.mark.parametrize("quarter", [0, 1, 2, 3])
def test_integer_sine_at_quarter_turns(quarter):
    assert abs(sine_of_turns(quarter * TURN // 4) - [0, TURN, 0, -TURN][quarter]) < 2**8


@pytest.mark.parametrize("base", [2.0, 10_000.0, 1e6, 3.7, 0.01, 1e300, 5e-324])
@pytest.mark.parametrize("sinusoid", [PAPER, Sinusoid(freq_shift=1)])
def test_frequencies_are_within_one_unit(base, sinusoid):
    step = sinusoid.step(10)
    with mp.workprec(3_000):
        exact = [
            mp.power(mp.mpf(base), -mp.mpf(step.numerator * i) / step.denominator) / (2 * mp.pi)
            for i in range(5)
        ]
        got = turns_per_position(base, step, 5)
        assert all(abs(g - e * TURN) < 1 for g, e in zip(got, exact, strict=True))


def test_points_of_the_circle_are_known_to_106_bits():
    on = circle()
    with mp.workprec(PRECISION):
        for k in range(POINTS):
            angle = 2 * mp.pi * k / POINTS
            sine = mp.mpf(on.sine[k].item()) + mp.mpf(on.sine_rest[k].item())
            cosine = mp.mpf(on.cosine[k].item()) + mp.mpf(on.cosine_rest[k].item())
            assert abs(sine - mp.sin(angle)) <= mp.mpf(2) ** -106
            assert abs(cosine - mp.cos(angle)) <= mp.mpf(2) ** -106


def test_quarter_points_are_exact():
    on = circle()
    quarters = slice(0, POINTS, POINTS // 4)
    assert on.sine[quarters].tolist() == [0, 1, 0, -1]
    assert on.cosine[quarters].tolist() == [1, 0, -1, 0]
    assert not on.sine_rest[quarters].any()


@given(
    position=st.integers(-(2**31), 2**31),
    frequency=st.integers(0, TURN - 1) | st.just(TURN - 1) | st.just(0),
)
@example(position=3, frequency=TURN // POINTS // 4)  # three quarters of a step: the next point
@example(position=-(2**31), frequency=TURN - 1)
def test_reduction_keeps_the_fraction_of_a_turn(position, frequency):
    point, rest = reduce(torch.tensor([[position]]), [frequency])
    with mp.workprec(PRECISION):
        got = mp.mpf(point.item()) / POINTS + mp.mpf(rest.item()) * mp.mpf(2) ** -64
        error = got - mp.mpf(position * frequency) / TURN
        error -= mpmath.nint(error)
        # The frequency's rounding times the position, and the rest's own rounding to 53 bits.
        assert abs(error) <= abs(position) * mp.mpf(2) ** -129 + abs(rest.item()) * 2.0**-117
    assert abs(rest.item()) <= 2.0**64 / POINTS / 2


@given(st.integers(0, POINTS - 1), st.floats(-(2.0**55), 2.0**55))
def test_sine_and_cosine_are_within_their_derived_error(point, rest):
    at = torch.tensor([[point]]), torch.tensor([[rest]], dtype=torch.float64)
    sine, cosine = (value.item() for value in sine_and_cosine(*at, circle()))
    with mp.workprec(PRECISION):
        angle = 2 * mp.pi * (mp.mpf(point) / POINTS + mp.mpf(rest) * mp.mpf(2) ** -64)
        for got, exact in ((sine, mp.sin(angle)), (cosine, mp.cos(angle))):
            assert abs(got - exact) <= mp.mpf(2) ** -54 + mp.mpf(2) ** -57
            assert abs(got - exact) <= abs(exact) * mp.mpf(2) ** -50
