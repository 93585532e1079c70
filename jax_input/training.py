"""Training steps in float16: the loss is scaled, steps with inf or NaN gradients are left out.

float16 rounds gradients up to 2**-25 to zero, so the loss is multiplied before the backward pass
and the gradients are divided after it. bfloat16 and float32 have the range, and need none of this.
``import jax_input`` does not load this module: write ``from jax_input import training``.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.dynamic_scale import DynamicScale
from jax import Array
from jaxtyping import Float, Float32, PyTree

from jax_input.requirements import require_size

SMALLEST, LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)

Params = PyTree[Float32[Array, "..."]]


def loss_scale(
    init_scale: float = 2.0**16,
    *,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
    minimum_scale: float = SMALLEST,
) -> DynamicScale:
    """Build Flax's ``DynamicScale`` with the arguments and meanings of ``torch.amp.GradScaler``.

    ``growth_interval`` counts as PyTorch does; a ``DynamicScale(growth_interval=n)`` built by hand
    grows after n + 1 finite steps. The two differ at the ends of float32 alone. At the upper one
    PyTorch leaves a scale that would overflow, Flax sets the largest float32. At the lower one
    PyTorch halves down to 0, and its next finite step makes the parameters NaN; here the scale
    stays at ``minimum_scale``.

    Args:
      init_scale: the first scale. Powers of two, with factors that are powers of two, scale without
        rounding.
      growth_factor: multiplies the scale after ``growth_interval`` finite steps in a row; above 1.
      backoff_factor: multiplies the scale after a step with inf or NaN; above 0, below 1.
      growth_interval: at least 1.
      minimum_scale: the scale falls no further. A scale below 1 that falls on means that the loss
        itself is not finite.

    Returns:
      A pytree of two arrays, ``scale`` float32 and ``fin_steps`` int32, both of shape (). Save it
      with the parameters.

    Raises:
      TypeError: if an argument is no Python number.
      ValueError: if it is outside the range above; scales are from 2**-126 to the largest float32.

    Source: Micikevicius et al. 2018, section 3.2. Reference: ``torch.amp.GradScaler``.
    """
    floor = _require_within("minimum_scale", minimum_scale, SMALLEST, LARGEST)
    init_scale = _require_within("init_scale", init_scale, floor, LARGEST)
    above_one = float(np.nextafter(1.0, 2.0))
    growth_factor = _require_within("growth_factor", growth_factor, above_one, LARGEST)
    below_one = float(np.nextafter(1.0, 0.0))
    backoff_factor = _require_within("backoff_factor", backoff_factor, SMALLEST, below_one)
    scale = DynamicScale(
        growth_factor=growth_factor,
        backoff_factor=backoff_factor,
        # Flax compares before it counts the step at hand.
        growth_interval=require_size("growth_interval", growth_interval) - 1,
        minimum_scale=floor,
    )
    # Flax starts with Python numbers, so that the second step, with arrays, is compiled anew.
    return scale.replace(scale=jnp.float32(init_scale), fin_steps=jnp.int32(0))


def scaled_step(
    loss_fn: Callable[..., Float[Array, ""]],
    params: Params,
    opt_state: optax.OptState,
    optimizer: optax.GradientTransformation,
    scale: DynamicScale,
    *args: Any,
) -> tuple[Params, optax.OptState, DynamicScale, Float[Array, ""]]:
    """Take one step of ``optimizer``, or none where a gradient is inf or NaN.

    Parameters are float32, ``loss_fn`` casts them to float16 where it uses them, and returns its
    loss in float32. In a step that is left out, parameters and optimizer state keep their bits, and
    the scale is multiplied by its backoff factor. With scales that are powers of two the gradients
    are those of the unscaled loss without a further rounding, where they are normal numbers. Under
    ``jax.jit`` the functions are static: ``jax.jit(scaled_step, static_argnums=(0, 3))``.

    Only ``params`` are trained. Constants, a position table for example, go in by ``args``, which
    are not differentiated. Where some stand among the parameters, end the optimizer with
    ``optax.freeze``: ``optax.chain(optax.adamw(1e-3), optax.freeze({"table": True, "rest":
    False}))``. Not ``optax.masked``, which adds the bare gradient to what it leaves out.

    Args:
      loss_fn: takes ``params`` and ``args``.
      params: every leaf float32.
      opt_state: of ``optimizer.init(params)``.
      optimizer: sees the gradients unscaled, so clipping by norm needs no change.
      scale: of ``loss_scale()``, or of the step before.
      *args: whatever else ``loss_fn`` takes: constants, the batch, a dropout key.

    Returns:
      (params, opt_state, scale, loss), the loss as ``loss_fn`` returned it, not scaled.

    Raises:
      TypeError: if a leaf of ``params`` is not float32, ``scale`` is no ``DynamicScale``, or the
        loss is not one number of float32 (or float64).

    Source: Micikevicius et al. 2018, section 3.1 and 3.2. Reference: ``torch.amp.GradScaler``.
    """
    _require_float32(params)
    if not isinstance(scale, DynamicScale):
        raise TypeError(
            f"`scale` must be a flax.training.dynamic_scale.DynamicScale, got "
            f"{type(scale).__name__}. Build one by loss_scale()."
        )

    def loss_twice(params: Params) -> tuple[Array, Array]:
        # Flax divides the scaled loss, which may have overflowed, so the loss comes a second way.
        loss = _require_loss(loss_fn(params, *args))
        return loss, loss

    result = scale.value_and_grad(loss_twice, has_aux=True)(params)
    updates, next_state = optimizer.update(result.grad, opt_state, params)
    stepped = (optax.apply_updates(params, updates), next_state)
    keep_or_step = partial(jnp.where, result.finite)
    params, opt_state = jax.tree.map(keep_or_step, stepped, (params, opt_state))
    return params, opt_state, result.dynamic_scale, result.aux[1]


def _require_within(name: str, number: Any, low: float, high: float) -> float:
    if isinstance(number, bool) or not isinstance(number, (int, float, np.integer, np.floating)):
        raise TypeError(
            f"`{name}` must be a Python number, got {type(number).__name__}. Pass float({name})."
        )
    if not low <= number <= high:
        raise ValueError(f"`{name}` must be from {low} to {high}, got {number}.")
    return float(number)


def _require_float32(params: Params) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        dtype = getattr(leaf, "dtype", type(leaf).__name__)
        if dtype != np.float32:
            raise TypeError(
                f"`params`{jax.tree_util.keystr(path)} must be float32, got {dtype}: 16 bits round "
                "small updates away. Keep float32 parameters, and cast them inside `loss_fn`."
            )


def _require_loss(loss: Any) -> Float[Array, ""]:
    is_array = isinstance(loss, jax.Array | np.ndarray | np.generic)
    got = f"{loss.dtype}{list(loss.shape)}" if is_array else type(loss).__name__
    if got not in ("float32[]", "float64[]"):
        raise TypeError(
            f"`loss_fn` must return one number of float32, got {got}. float16 does not hold the "
            "scale: cast to float32 before the loss is summed or averaged."
        )
    return loss
