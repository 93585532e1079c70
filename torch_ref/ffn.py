"""The feed-forward network of an encoder: a wider layer and back."""

from collections.abc import Callable
from functools import partial
from typing import get_args

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from torch_ref.config import Activation
from torch_ref.dense import Params, dense, require_names
from torch_ref.dropout_masks import require_dropout_mask
from torch_ref.inputs import dropout
from torch_ref.requirements import require_floats, require_one_of, require_rate
from torch_ref.rounding import narrow, widen

_ACTIVATE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": partial(functional.gelu, approximate="none"),
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
}


def feed_forward(
    x: Float[Tensor, "*batch d_model"],
    params: Params,
    *,
    activation: Activation = "relu",
    dropout_rate: float = 0.0,
    dropout_mask: Bool[Tensor, "*batch d_ff"] | None = None,
) -> Float[Tensor, "*batch d_model"]:
    """Go through a wider layer and back.

    Args:
      x: any number of vectors.
      params: "in", {"kernel": [d_model, d_ff], "bias": [d_ff]}, and "out", {"kernel": [d_ff,
        d_model], "bias": [d_model]}; each "bias" may be absent.
      activation: "relu", "gelu" (exact) or "gelu_tanh" (its approximation).
      dropout_rate: the chance of a zero that ``dropout_mask`` was drawn with.
      dropout_mask: True = keep an entry after the activation; None drops nothing.

    Returns:
      The shape and dtype of ``x``.

    Raises:
      TypeError: if ``x`` or a parameter holds no supported floats, or the mask is not boolean.
      ValueError: if a parameter is missing or has another shape, or as ``dropout``.

    Source: Vaswani et al. 2017, section 3.3; Hendrycks and Gimpel 2016. Port:
    ``jax_input.feed_forward``.
    """
    require_floats("x", x)
    rate = require_rate("dropout_rate", dropout_rate)
    hidden = to_hidden(x, params, activation)
    if dropout_mask is not None:
        require_dropout_mask("dropout_mask", dropout_mask, hidden.shape)
    return from_hidden(hidden, params, rate, dropout_mask)


def to_hidden(x: Tensor, params: Params, activation: Activation) -> Float[Tensor, "*batch d_ff"]:
    """Return the hidden vectors, activated; ``feed_forward`` says of what."""
    require_names("params", params, ("in", "out"))
    require_one_of("activation", activation, get_args(Activation))
    y = dense(x, params["in"], name="params['in']")
    return narrow(_ACTIVATE[activation](widen(y)), y.dtype)


def from_hidden(
    hidden: Float[Tensor, "*batch d_ff"], params: Params, rate: float, mask: Tensor | None
) -> Float[Tensor, "*batch d_model"]:
    """Return what hidden vectors become, dropped where there is a mask."""
    kept = hidden if mask is None else dropout(hidden, rate, mask=mask)
    return dense(kept, params["out"], name="params['out']")
