"""The options of an encoder, in one place."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from jax_input.inputs import require_rate
from jax_input.requirements import require_dtype, require_flag, require_one_of, require_size

Norm = Literal["post", "pre"]
Activation = Literal["relu", "gelu", "gelu_tanh"]
NormForm = Literal["standard", "annotated"]


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The options of ``encoder``, as PyTorch's encoder has them by default.

    Attributes:
      num_layers: how many layers.
      d_model: size of the vectors.
      num_heads: divides ``d_model``.
      d_ff: size of the hidden vectors of the feed-forward network.
      norm: "post" normalises the sum of a sublayer and its input, "pre" the input of a sublayer.
      final_norm: whether the result is normalised once more, as "pre" needs it.
      activation: "relu", "gelu" (exact, PyTorch's default) or "gelu_tanh" (JAX's default).
      eps: of every normalisation.
      norm_form: as in ``layer_norm``.
      use_bias: whether ``encoder_params`` draws biases; the functions use those that are there.
      dropout_rate: the chance of a zero in each of the four places.
      remat: what is computed again in the backward pass: None nothing but attention weights, "full"
        everything, or what a policy of ``jax.checkpoint_policies`` says.
      scan: one compiled layer for all, instead of each by itself.
      matmul_precision: of every matrix product.
      dtype: what ``encoder`` casts ``x`` to, and so computes in; None for the dtype of ``x``.
      param_dtype: of the parameters that ``encoder_params`` draws.

    Raises:
      TypeError, ValueError: naming the option, what came, and what may come.

    Source: Vaswani et al. 2017, section 3. Reference: ``torch_ref.EncoderConfig``.
    """

    num_layers: int
    d_model: int
    num_heads: int
    d_ff: int
    norm: Norm = "post"
    final_norm: bool = False
    activation: Activation = "relu"
    eps: float = 1e-5
    norm_form: NormForm = "standard"
    use_bias: bool = True
    dropout_rate: float = 0.1
    remat: Literal["full"] | Callable[..., Any] | None = None
    scan: bool = True
    matmul_precision: lax.PrecisionLike = None
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32

    def __post_init__(self) -> None:
        """Check every option."""
        for name in ("num_layers", "d_model", "num_heads", "d_ff"):
            require_size(name, getattr(self, name))
        for name in ("final_norm", "use_bias", "scan"):
            require_flag(name, getattr(self, name))
        if self.d_model % self.num_heads:
            raise ValueError(
                f"`num_heads` must divide `d_model`, {self.d_model}, got {self.num_heads}."
            )
        require_one_of("norm", self.norm, get_args(Norm))
        require_one_of("activation", self.activation, get_args(Activation))
        require_one_of("norm_form", self.norm_form, get_args(NormForm))
        require_eps(self.eps)
        require_rate("dropout_rate", self.dropout_rate)
        if self.remat not in (None, "full") and not callable(self.remat):
            raise ValueError(
                '`remat` must be None, "full", or a policy such as '
                f"jax.checkpoint_policies.dots_saveable, got {self.remat!r}."
            )
        if self.dtype is not None:
            require_dtype(self.dtype)
        require_dtype(self.param_dtype, "param_dtype")


def require_config(config: Any) -> EncoderConfig:
    """Return the options, or say what came instead."""
    if not isinstance(config, EncoderConfig):
        came = f"{type(config).__module__}.{type(config).__qualname__}".removeprefix("builtins.")
        raise TypeError(
            f"`config` must be a jax_input.EncoderConfig, got {came}. Make one with "
            "jax_input.EncoderConfig(num_layers=..., d_model=..., num_heads=..., d_ff=...)."
        )
    return config


def require_eps(eps: Any) -> float:
    """Return what is added to a variance or a deviation, or say what it may be."""
    if isinstance(eps, bool) or not isinstance(eps, (int, float, np.integer, np.floating)):
        raise TypeError(f"`eps` must be a Python number above 0, got {type(eps).__name__} {eps!r}.")
    if not 0 < eps < 1:
        raise ValueError(f"`eps` must be above 0 and below 1, got {eps!r}. PyTorch's is 1e-5.")
    return float(eps)
