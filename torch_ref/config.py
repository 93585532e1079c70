"""The options of an encoder, in one place."""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import torch

from torch_ref.requirements import (
    require_dtype,
    require_one_of,
    require_rate,
    require_real,
    require_size,
)

Norm: TypeAlias = Literal["post", "pre"]
Activation: TypeAlias = Literal["relu", "gelu", "gelu_tanh"]
NormForm: TypeAlias = Literal["standard", "annotated"]


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The sizes and choices of an encoder; by default those of ``nn.TransformerEncoderLayer``.

    Attributes:
      num_layers: how many layers.
      d_model: width of the vectors.
      num_heads: heads of attention; it divides ``d_model``.
      d_ff: width within the feed-forward network.
      norm: "post", after each sum, or "pre", before attention and feed-forward network.
      final_norm: one more norm after the last layer; "pre" needs it as a rule.
      activation: "relu", "gelu" (exact) or "gelu_tanh" (its approximation).
      eps: of every norm, between 0 and 1.
      norm_form: of every norm, as ``layer_norm`` takes it.
      use_bias: whether dense layers and norms are drawn with a bias.
      dropout_rate: the chance of a zero where something is dropped.
      dtype: what is computed in and returned; by default that of ``x``.
      param_dtype: of the parameters that are drawn.

    Raises:
      ValueError: if an attribute is none of these, naming it.
      TypeError: if it is not even of their kind.

    Port: ``jax_input.EncoderConfig``.
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
    dtype: torch.dtype | None = None
    param_dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        """Refuse what no encoder can be built from."""
        for name in ("num_layers", "d_model", "num_heads", "d_ff"):
            require_size(name, getattr(self, name))
        if self.d_model % self.num_heads:
            raise ValueError(
                f"`num_heads` must divide `d_model`, {self.d_model}, got {self.num_heads}."
            )
        require_one_of("norm", self.norm, get_args(Norm))
        require_one_of("activation", self.activation, get_args(Activation))
        require_one_of("norm_form", self.norm_form, get_args(NormForm))
        for name in ("final_norm", "use_bias"):
            require_one_of(name, getattr(self, name), (True, False))
        require_eps(self.eps)
        require_rate("dropout_rate", self.dropout_rate)
        if self.dtype is not None:
            require_dtype("dtype", self.dtype)
        require_dtype("param_dtype", self.param_dtype)

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.d_model // self.num_heads


def require_config(config: Any) -> EncoderConfig:
    """Return the options, or say what came instead."""
    if not isinstance(config, EncoderConfig):
        came = f"{type(config).__module__}.{type(config).__qualname__}".removeprefix("builtins.")
        raise TypeError(
            f"`config` must be a torch_ref.EncoderConfig, got {came}. Make one with "
            "torch_ref.EncoderConfig(num_layers=..., d_model=..., num_heads=..., d_ff=...)."
        )
    return config


def require_eps(eps: Any) -> float:
    """Return what is added to a variance or a deviation, or say what it may be."""
    number = require_real("eps", eps, torch.float64)
    if not 0 < number < 1:
        raise ValueError(f"`eps` must be above 0 and below 1, got {eps!r}. PyTorch's is 1e-5.")
    return number
