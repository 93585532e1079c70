"""``torch.nn`` modules of the encoder: they own the parameters, the pure functions compute.

Parameters have PyTorch's own layout and the names of the functions' ``params``:
``layers.0.attention.query.weight``, ``layers.0.feed_forward.in.bias``, ``final_norm.weight``.
"""

from dataclasses import replace
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from torch_ref.attention import multi_head_attention
from torch_ref.config import EncoderConfig, require_config
from torch_ref.dropout_masks import DropoutMasks, encoder_dropout_masks
from torch_ref.initial import projection_bound
from torch_ref.layers import encoder_layer
from torch_ref.modules import TransformerInput
from torch_ref.requirements import require_integers
from torch_ref.stack import encoder
from torch_ref.torch_layout import linear_params, norm_params, split_heads, stacked

Mask = Bool[Tensor, "batch_or_1 num_heads_or_1 query_or_1 key_or_1"]


class MultiHeadAttention(nn.Module):
    """``multi_head_attention``, with four ``nn.Linear`` for its parameters.

    Args:
      config: its sizes, ``use_bias``, ``dropout_rate`` and ``param_dtype``.

    Source: Vaswani et al. 2017, section 3.2.2. Port: ``jax_input.multi_head_attention``.
    """

    def __init__(self, config: EncoderConfig) -> None:
        """Draw the parameters as ``encoder_params`` does."""
        super().__init__()
        self.config = config = require_config(config)
        width = config.d_model
        self.query, self.key, self.value, self.out = (
            _linear(width, width, config) for _ in range(4)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw anew."""
        bound = projection_bound(self.config.d_model)
        for linear in (self.query, self.key, self.value, self.out):
            linear.reset_parameters()
            if linear is not self.out:
                nn.init.uniform_(linear.weight, -bound, bound)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def params(self) -> dict[str, Any]:
        """Return the parameters as ``multi_head_attention`` takes them; gradients come back."""
        linears = {name: linear_params(linear) for name, linear in self.named_children()}
        return split_heads(linears, self.config.num_heads)

    def forward(
        self,
        x: Float[Tensor, "batch seq_len d_model"],
        mask: Mask | None = None,
        dropout_mask: Bool[Tensor, "batch num_heads query key"] | None = None,
        return_weights: bool = False,
    ) -> Any:
        """Attend; in training drop weights, by ``dropout_mask`` where it is given."""
        given = {} if dropout_mask is None else {"attention_weights": dropout_mask[None]}
        kept = _kept(self, x, replace(self.config, num_layers=1), given).get("attention_weights")
        return multi_head_attention(
            x,
            self.params(),
            mask=mask,
            dropout_rate=self.config.dropout_rate,
            dropout_mask=None if kept is None else kept[0],
            return_weights=return_weights,
        )


class EncoderLayer(nn.Module):
    """``encoder_layer``, with the parameters of one layer.

    Args:
      config: of the encoder.

    Source: Vaswani et al. 2017, section 3.1. Port: ``jax_input.encoder_layer``.
    """

    def __init__(self, config: EncoderConfig) -> None:
        """Draw the parameters as ``encoder_params`` does."""
        super().__init__()
        self.config = config = require_config(config)
        self.attention = MultiHeadAttention(config)
        self.attention_norm = _norm(config)
        # A dict of modules, since `in` can be no attribute.
        self.feed_forward = nn.ModuleDict({
            "in": _linear(config.d_model, config.d_ff, config),
            "out": _linear(config.d_ff, config.d_model, config),
        })
        self.feed_forward_norm = _norm(config)

    def params(self) -> dict[str, Any]:
        """Return the parameters as ``encoder_layer`` takes them; gradients come back."""
        return {
            "attention": self.attention.params(),
            "attention_norm": norm_params(self.attention_norm),
            "feed_forward": {
                name: linear_params(linear) for name, linear in self.feed_forward.items()
            },
            "feed_forward_norm": norm_params(self.feed_forward_norm),
        }

    def forward(
        self,
        x: Float[Tensor, "batch seq_len d_model"],
        mask: Mask | None = None,
        dropout_masks: DropoutMasks | None = None,
        return_taps: bool = False,
        return_weights: bool = False,
    ) -> Any:
        """Go through the layer; in training drop, by ``dropout_masks`` where they are given."""
        given = {name: mask[None] for name, mask in (dropout_masks or {}).items()}
        kept = _kept(self, x, replace(self.config, num_layers=1), given)
        return encoder_layer(
            x,
            self.params(),
            self.config,
            mask=mask,
            dropout_masks={name: mask[0] for name, mask in kept.items()},
            return_taps=return_taps,
            return_weights=return_weights,
        )


class Encoder(nn.Module):
    """``encoder``, and before it ``transformer_input`` where there is a vocabulary.

    In training entries are dropped; which ones PyTorch draws, but for those that are given.

    Args:
      config: of the encoder; its ``dropout_rate``, ``dtype`` (or else ``param_dtype``) and
        ``param_dtype`` are those of the input part too.
      vocab_size: rows of the embedding; None for an encoder of vectors, without an input part.
      max_len: rows of the position table.
      padding_idx: as in ``embed_tokens``. It hides nothing: pass a ``mask`` for that.

    Raises:
      ValueError, TypeError: as ``TransformerInput``, or if there is a ``padding_idx`` and no
        vocabulary.

    Source: Vaswani et al. 2017, section 3.1. Port: ``jax_input.encoder``.
    """

    def __init__(
        self,
        config: EncoderConfig,
        *,
        vocab_size: int | None = None,
        max_len: int = 5000,
        padding_idx: int | None = None,
    ) -> None:
        """Check the options and draw the parameters."""
        super().__init__()
        self.config = config = require_config(config)
        if vocab_size is None and padding_idx is not None:
            raise ValueError(f"`padding_idx` needs a `vocab_size`, got {padding_idx!r} and None.")
        self.input = None
        if vocab_size is not None:
            self.input = TransformerInput(
                vocab_size=vocab_size,
                d_model=config.d_model,
                max_len=max_len,
                padding_idx=padding_idx,
                dropout_rate=config.dropout_rate,
                dtype=config.dtype or config.param_dtype,
                param_dtype=config.param_dtype,
            )
        self.layers: Any = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_layers))
        self.final_norm = _norm(config) if config.final_norm else None

    def params(self) -> dict[str, Any]:
        """Return the parameters as ``encoder`` takes them; gradients come back."""
        params: dict[str, Any] = {"layers": stacked([layer.params() for layer in self.layers])}
        if self.final_norm is not None:
            params["final_norm"] = norm_params(self.final_norm)
        return params

    def forward(
        self,
        inputs: Int[Tensor, "batch seq_len"] | Float[Tensor, "batch seq_len d_model"],
        *,
        positions: Int[Tensor, "batch seq_len"] | Int[Tensor, " seq_len"] | None = None,
        mask: Mask | None = None,
        dropout_masks: DropoutMasks | None = None,
        return_taps: bool = False,
        return_weights: bool = False,
    ) -> Any:
        """Encode token ids, or vectors where there is no vocabulary.

        Args:
          inputs: token ids, or vectors.
          positions: as in ``add_positions``; only beside token ids.
          mask: as in ``encoder``.
          dropout_masks: as in ``encoder``, and "input", of the shape of the vectors; what is not
            named is drawn, and in evaluation none is used.
          return_taps: as in ``encoder``.
          return_weights: as in ``encoder``.
        """
        given = dict(dropout_masks or {})
        if self.input is not None:
            require_integers("inputs", inputs)
            x = self.input(inputs, positions, given.pop("input", None))
        elif positions is not None:
            raise ValueError(
                "`positions` need token ids, and the encoder has no `vocab_size`: add them before."
            )
        else:
            x = inputs
        return encoder(
            x,
            self.params(),
            self.config,
            mask=mask,
            dropout_masks=_kept(self, x, self.config, given),
            return_taps=return_taps,
            return_weights=return_weights,
        )


def _kept(
    module: nn.Module, x: Tensor, config: EncoderConfig, given: DropoutMasks
) -> dict[str, Tensor]:
    """Return the masks of a training step: those given, and the others drawn."""
    if not module.training:
        return {}
    if config.dropout_rate == 0:
        return dict(given)
    return encoder_dropout_masks(config, *x.shape[:2], device=x.device) | dict(given)


def _linear(d_in: int, d_out: int, config: EncoderConfig) -> nn.Linear:
    return nn.Linear(d_in, d_out, bias=config.use_bias, dtype=config.param_dtype)


def _norm(config: EncoderConfig) -> nn.LayerNorm:
    return nn.LayerNorm(
        config.d_model, eps=config.eps, bias=config.use_bias, dtype=config.param_dtype
    )
