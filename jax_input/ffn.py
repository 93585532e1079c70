"""The feed-forward network of an encoder: a wider layer and back."""

from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import jax
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from jax_input.config import Activation
from jax_input.dense import Params, dense, require_names
from jax_input.inputs import PRNGKey, dropout, require_rate
from jax_input.requirements import require_floats, require_one_of
from jax_input.rounding import wide_dtype

_ACTIVATE: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
}


def feed_forward(
    x: Float[ArrayLike, "*batch d_model"],
    params: Params,
    *,
    activation: Activation = "relu",
    dropout_rate: int | float = 0.0,
    dropout_key: PRNGKey | None = None,
    matmul_precision: lax.PrecisionLike = None,
) -> Float[Array, "*batch d_model"]:
    """Pass each vector through a hidden layer.

    Args:
      x: any shape; their dtype is computed in.
      params: "in", {"kernel": [d_model, d_ff], "bias": [d_ff]}, and "out", {"kernel": [d_ff,
        d_model], "bias": [d_model]}; each "bias" may be absent.
      activation: "relu", "gelu" (exact) or "gelu_tanh" (the approximation that ``jax.nn.gelu`` has
        by default; up to 4.8e-4 away).
      dropout_rate: the chance that a hidden element is dropped, where there is a ``dropout_key``.
      dropout_key: draws them.
      matmul_precision: of both products.

    Returns:
      The shape and dtype of ``x``.

    Raises:
      TypeError, ValueError: if ``params`` lack an array, one has another shape or dtype, or
        ``activation`` is another word.

    Source: Vaswani et al. 2017, section 3.3. Reference: ``torch_ref.feed_forward``.
    """
    hidden = to_hidden(x, params, activation, matmul_precision)
    kept = dropout(hidden, require_rate("dropout_rate", dropout_rate), key=dropout_key)
    return from_hidden(kept, params, matmul_precision)


def to_hidden(
    x: Any, params: Params, activation: Activation, matmul_precision: lax.PrecisionLike
) -> Float[Array, "*batch d_ff"]:
    """Return the hidden vectors, activated; ``feed_forward`` says of what."""
    require_names("params", params, ("in", "out"))
    require_one_of("activation", activation, get_args(Activation))
    x = require_floats("x", x)
    y = dense(x, params["in"], name="params['in']", matmul_precision=matmul_precision)
    return _ACTIVATE[activation](y.astype(wide_dtype(y.dtype))).astype(y.dtype)


def from_hidden(
    hidden: Float[Array, "*batch d_ff"], params: Params, matmul_precision: lax.PrecisionLike
) -> Float[Array, "*batch d_model"]:
    """Return what hidden vectors become, dropped where it is wanted."""
    return dense(hidden, params["out"], name="params['out']", matmul_precision=matmul_precision)
