"""Normalisation of vectors."""

from typing import get_args

from jaxtyping import Float
from torch import Tensor

from torch_ref.config import NormForm, require_eps
from torch_ref.dense import Params, require_names, vector
from torch_ref.requirements import require_floats, require_one_of
from torch_ref.rounding import narrow, widen


def layer_norm(
    x: Float[Tensor, "*batch d_model"],
    params: Params,
    *,
    eps: float = 1e-5,
    form: NormForm = "standard",
) -> Float[Tensor, "*batch d_model"]:
    """Bring each vector to mean 0 and deviation 1, then scale and shift it.

    In float32 (float64 for float64), rounded once; the variance is the mean of squared distances
    from the mean, never a difference of two means.

    Args:
      x: the last axis is normalised.
      params: "scale", and "bias", which may be absent, both [d_model].
      eps: added to the variance; PyTorch's 1e-5 by default, where Flax has 1e-6 and BERT 1e-12.
      form: "standard" divides by sqrt(variance + eps); "annotated", the published form, by the
        unbiased deviation plus eps (a constant vector gives its bias, and passes no gradient).

    Returns:
      The shape and dtype of ``x``.

    Raises:
      TypeError: if ``x`` or a parameter holds no supported floats.
      ValueError: if a parameter is missing or has another shape, an option is none of these, or
        ``x`` is a single number in the "annotated" form.

    Source: Ba et al. 2016, section 3. Port: ``jax_input.layer_norm``.
    """
    require_floats("x", x)
    require_one_of("form", form, get_args(NormForm))
    eps = require_eps(eps)
    require_names("params", params, ("scale",), ("bias",))
    width = x.shape[-1] if x.ndim else 0
    if width < (2 if form == "annotated" else 1):
        least = "two entries, for the unbiased deviation," if form == "annotated" else "an entry"
        raise ValueError(f"`x` must have {least} in its last axis, got {list(x.shape)}.")
    wide = widen(x)
    centred = wide - wide.mean(-1, keepdim=True)
    squares = centred.square().sum(-1, keepdim=True)
    if form == "standard":
        normal = centred / (squares / width + eps).sqrt()
    else:
        normal = centred / (_root(squares / (width - 1)) + eps)
    y = normal * vector(params, "scale", (width,), name="params").to(wide.dtype)
    if params.get("bias") is not None:
        y = y + vector(params, "bias", (width,), name="params").to(wide.dtype)
    return narrow(y, x.dtype)


def _root(variance: Tensor) -> Tensor:
    """Return the root of numbers from 0, with the gradient 0 where they are 0."""
    is_zero = variance == 0
    return variance.masked_fill(is_zero, 1.0).sqrt().masked_fill(is_zero, 0.0)
