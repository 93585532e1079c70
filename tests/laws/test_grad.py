"""Derivatives: reverse mode is forward mode transposed, and both are the slope."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_input.sinusoidal import encode_positions
from tests.catalogue import CAST, EXAMPLES, SMOOTH, same_bits

pytestmark = pytest.mark.usefixtures("programs_run_once")


def of_smooth(example, call=None):
    """Return the call as a function of the arguments that have a gradient, and these."""

    def function(*given):
        arguments = list(example.arguments)
        for place, value in zip(example.smooth, given, strict=True):
            arguments[place] = value
        return (call or example.call)(*arguments)

    return function, tuple(jnp.asarray(example.arguments[place]) for place in example.smooth)


def compiled_pullback(function):
    return jax.jit(lambda cotangent, *given: jax.vjp(function, *given)[1](cotangent))


def directions(arguments, seed):
    generator = np.random.default_rng(seed)
    return tuple(generator.standard_normal(given.shape).astype(given.dtype) for given in arguments)


def inner(left, right):
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return sum(np.vdot(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in pairs)


@pytest.mark.parametrize("example", SMOOTH + [e for e in CAST if e.smooth], ids=str)
def test_reverse_mode_is_forward_mode_transposed(example):
    function, arguments = of_smooth(example)
    tangents = directions(arguments, 1)
    result, tangent = jax.jit(lambda *given: jax.jvp(function, *given))(arguments, tangents)
    example.agree(result, example.call(*example.arguments))
    assert tangent.dtype == result.dtype
    (cotangent,) = directions((result,), 2)
    gradients = compiled_pullback(function)(cotangent, *arguments)
    assert [g.dtype for g in gradients] == [given.dtype for given in arguments]
    # The terms are rounded to the dtype on either side, each by half an ulp.
    scale = np.linalg.norm(np.asarray(tangent, np.float64)) * np.linalg.norm(
        np.asarray(cotangent, np.float64)
    )
    bound = 4 * float(jnp.finfo(result.dtype).eps) * scale
    if example.summed:  # either side is wrong by what its own factors are
        sizes = [np.linalg.norm(np.asarray(g, np.float64)) for g in (*tangents, *gradients)]
        half = len(tangents)
        scale += sum(a * b for a, b in zip(sizes[:half], sizes[half:], strict=True))
        bound += 3 * example.slack(result.dtype) * scale
    assert abs(inner(tangent, cotangent) - inner(tangents, gradients)) <= bound


# The gradient of timesteps sums over the columns, and the compiler may contract that.
BY_ELEMENT = [e for e in SMOOTH if e.function is not encode_positions]


@pytest.mark.parametrize("example", BY_ELEMENT + [e for e in CAST if e.smooth], ids=str)
def test_gradient_has_the_same_bits_compiled(example):
    function, arguments = of_smooth(example)
    (cotangent,) = directions((function(*arguments),), 3)
    eager = jax.vjp(function, *arguments)[1](cotangent)
    compiled = compiled_pullback(function)(cotangent, *arguments)
    for ours, theirs in zip(compiled, eager, strict=True):
        example.agree(ours, theirs, times=3)  # forward, and two products back


@pytest.mark.parametrize("example", [e for e in SMOOTH if not e.withheld], ids=str)
def test_derivative_is_the_slope_in_float64(example):
    # The float32 timesteps move by exactly 2**-12. Functions that are no lines need a smaller step:
    # its square, times a third derivative, is nothing, and 2**-52 / step is as little.
    step = 2.0**-20 if example.summed else 2.0**-12
    wide = example.cast(np.float64)
    with jax.enable_x64(True):
        function, arguments = of_smooth(wide, example.in_float64)
        tangents = tuple(np.sign(direction) for direction in directions(arguments, 4))
        ahead, behind = (
            function(*(x + sign * step * t for x, t in zip(arguments, tangents, strict=True)))
            for sign in (1, -1)
        )
        slope = (np.asarray(ahead) - np.asarray(behind)) / (2 * step)
    function, arguments = of_smooth(example)
    tangents = tuple(direction.astype(np.float32) for direction in tangents)
    _, tangent = jax.jvp(function, arguments, tangents)
    # Linear functions have no truncation error; the timesteps' is step**2 / 6.
    slack = 3 * example.slack(np.float32) * np.abs(slope).max()
    np.testing.assert_allclose(tangent, slope, rtol=3e-7, atol=3e-7 + slack)


@pytest.mark.parametrize("example", [e for e in SMOOTH if e.withheld], ids=str)
def test_withheld_gradient_is_that_of_the_other_rows(example):
    function, (embedding, *others) = of_smooth(example)
    rest = embedding.at[0].set(0)  # row 0 is the padding row of these examples
    tangents = directions((embedding, *others), 5)
    moved = (tangents[0] * np.any(np.asarray(rest) != 0, axis=1, keepdims=True), *tangents[1:])
    _, tangent = jax.jvp(function, (embedding, *others), tangents)
    _, expected = jax.jvp(function, (embedding, *others), moved)
    same_bits(tangent, expected)
    assert np.any(np.asarray(tangent) != 0)


@pytest.mark.parametrize("example", [e for e in EXAMPLES if not e.smooth], ids=str)
def test_what_has_no_gradient_gives_integers_or_takes_them(example):
    floats = [g for g in example.arguments if jnp.issubdtype(g.dtype, jnp.floating)]
    result = example.call(*example.arguments)
    is_exact = not jnp.issubdtype(result.dtype, jnp.floating)
    assert not floats or is_exact or np.isnan(np.asarray(result, np.float64)).any()
