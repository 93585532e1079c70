"""Arithmetic that ports get wrong in the same way, whatever the model."""

import jax
import jax.numpy as jnp


def rounded_dot(lhs: jax.Array, rhs: jax.Array, *args: object, **kwargs: object) -> jax.Array:
    """Multiply as an accelerator does by default: operands in bfloat16, the sum in full."""
    lhs, rhs = (x.astype(jnp.bfloat16).astype(x.dtype) for x in (lhs, rhs))
    return jax.lax.dot_general(lhs, rhs, *args, **kwargs)


def unbiased_norm(x: jax.Array, scale: jax.Array, bias: jax.Array, eps: float) -> jax.Array:
    """Divide by the variance of a sample, as ``std()`` of PyTorch has it and no layer norm."""
    deviation = x - x.mean(-1, keepdims=True)
    variance = x.var(-1, keepdims=True, ddof=1)
    affine = (jnp.broadcast_to(given, x.shape) for given in (scale, bias))
    scale, bias = affine
    return deviation / jnp.sqrt(variance + eps) * scale + bias


def through_bfloat16(x: jax.Array) -> jax.Array:
    return x.astype(jnp.bfloat16).astype(x.dtype)
