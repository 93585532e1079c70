"""The matrix product: its values and derivatives, and what its gradient is compiled to."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_input.matmul import matmul
from tests.jax_input.encoder_float64 import FLOATS, draw

# In the first the transpose of `a` is the smaller copy, in the second that of `b`'s cotangent.
SHAPES = [((4, 6, 24), (24, 64)), ((40, 48), (48, 3)), ((24,), (24, 7))]
FLAT = [((1024, 64), (64, 1024)), ((1024, 1024), (1024, 64))]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shapes", SHAPES)
def test_a_product_is_summed_in_float32_and_returned_so(shapes, dtype):
    a, b = draw(shapes[0], dtype), draw(shapes[1], dtype, seed=1)
    y = matmul(a, b)
    assert y.dtype == np.float32
    wide = [np.asarray(x, np.float64) for x in (a, b)]
    # A product of two 16-bit numbers is exact in float32.
    bound = shapes[1][0] * np.finfo(np.float32).eps * np.matmul(*map(np.abs, wide))
    assert (np.abs(np.asarray(y, np.float64) - np.matmul(*wide)) <= bound).all()


@pytest.mark.parametrize("shapes", SHAPES)
def test_derivatives_of_first_and_second_order_are_those_of_matmul_in_float64(shapes):
    with jax.enable_x64(True):
        points = [draw(shape, np.float64, seed=seed) for seed, shape in enumerate(shapes)]
        moves = [draw(shape, np.float64, seed=2 + seed) for seed, shape in enumerate(shapes)]

        def every(function):
            def loss(*points):
                return (function(*points) ** 2).sum()

            gradient = jax.grad(loss, argnums=(0, 1))
            return (
                jax.jvp(function, points, moves),
                gradient(*points),
                jax.jvp(gradient, points, moves),
                jax.vmap(gradient)(*(jnp.stack(pair) for pair in zip(points, moves, strict=True))),
            )

        for ours, theirs in zip(
            *map(jax.tree.leaves, map(every, (matmul, jnp.matmul))), strict=True
        ):
            assert ours.dtype == np.float64
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=2**-40 * np.abs(theirs).max())


@pytest.mark.parametrize("argnums", [0, 1])
def test_a_gradient_of_one_array_takes_one_more_product(argnums):
    a, b = (draw(shape, seed=1) for shape in SHAPES[0])
    text = str(jax.make_jaxpr(jax.grad(lambda *x: matmul(*x).sum(), argnums))(a, b))
    # The product itself is seen by no one, and what is transposed names each device's own.
    assert text.count("dot_general[") <= 3
    compiled = jax.jit(jax.grad(lambda *x: matmul(*x).sum(), argnums)).lower(a, b).compile()
    assert compiled.as_text().count(" dot(") <= 1


@pytest.mark.parametrize("shapes", FLAT)
def test_on_a_cpu_no_gradient_sums_over_the_first_axis_of_the_first_array(shapes):
    given = [jax.ShapeDtypeStruct(shape, np.float32) for shape in (*shapes, (1024, shapes[1][1]))]

    def products(function):
        def gradients(a, b, cotangent):
            return jax.vjp(function, a, b)[1](cotangent)

        text = jax.jit(gradients).lower(*given).compile().as_text()
        return re.findall(r" dot\(.*lhs_contracting_dims={(\d)}", text)

    assert products(matmul) == ["1", "1"]
    assert "0" in products(jnp.matmul)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_elsewhere_nothing_is_laid_out_anew(platform):
    a, b = (draw(shape) for shape in SHAPES[0])
    traced = jax.jit(jax.grad(lambda *x: matmul(*x).sum(), argnums=(0, 1))).trace(a, b)
    assert "barrier" not in traced.lower(lowering_platforms=(platform,)).as_text()
    assert "barrier" in traced.lower(lowering_platforms=("cpu",)).as_text()


def test_the_precision_reaches_every_product():
    a, b = (draw(shape) for shape in SHAPES[0])

    def loss(a, b):
        return matmul(a, b, "highest").sum()

    text = str(jax.make_jaxpr(jax.grad(loss, argnums=(0, 1)))(a, b))
    highest = text.count("precision=(Precision.HIGHEST, Precision.HIGHEST)")
    assert text.count("dot_general[") == highest >= 3
