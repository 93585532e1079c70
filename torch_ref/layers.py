"""The feed-forward network of an encoder, and one layer of it and attention."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, get_args

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from torch_ref.attention import multi_head_attention
from torch_ref.config import Activation, EncoderConfig
from torch_ref.dense import Params, dense, require_names, require_vectors
from torch_ref.dropout_masks import (
    DropoutMasks,
    mask_shapes,
    require_dropout_mask,
    require_dropout_masks,
)
from torch_ref.inputs import dropout
from torch_ref.normalization import layer_norm
from torch_ref.requirements import require_floats, require_one_of, require_rate
from torch_ref.rounding import narrow, widen

Taps: TypeAlias = dict[str, Tensor]
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
    hidden = _hidden(x, params, activation)
    if dropout_mask is not None:
        require_dropout_mask("dropout_mask", dropout_mask, hidden.shape)
    return _out(hidden, params, rate, dropout_mask)


def encoder_layer(
    x: Float[Tensor, "batch seq_len d_model"],
    params: Params,
    config: EncoderConfig,
    *,
    mask: Bool[Tensor, "batch_or_1 num_heads_or_1 query_or_1 key_or_1"] | None = None,
    dropout_masks: DropoutMasks | None = None,
    return_taps: bool = False,
    return_weights: bool = False,
) -> Any:
    """Attend, add and normalise; feed forward, add and normalise.

    post: h = attention_norm(x + drop(attention(x))), y = feed_forward_norm(h + drop(ff(h)));
    pre: h = x + drop(attention(attention_norm(x))), y = h + drop(ff(feed_forward_norm(h))).

    Args:
      x: vectors along a sequence; their dtype is computed in.
      params: "attention" and "feed_forward", as ``multi_head_attention`` and ``feed_forward`` take
        them, and "attention_norm" and "feed_forward_norm", as ``layer_norm`` does.
      config: of the encoder; its ``dtype`` is the encoder's affair.
      mask: as in ``dot_product_attention``.
      dropout_masks: by name, as ``encoder_dropout_masks`` draws them, but of one layer; True =
        keep. Where there is none, nothing is dropped.
      return_taps: also return every step by name: "attention" and "feed_forward" as they come,
        before dropout, "_sum" of each with its residual, "_norm" of each, and
        "feed_forward_hidden", after the activation.
      return_weights: have the "attention_weights" among the taps, and return these.

    Returns:
      The shape and dtype of ``x``; with ``return_taps`` or ``return_weights``, (y, taps).

    Raises:
      TypeError, ValueError: as the parts, or if ``dropout_masks`` has other names or shapes.

    Source: Vaswani et al. 2017, section 3.1; Xiong et al. 2020 ("pre"). Port:
    ``jax_input.encoder_layer``.
    """
    require_vectors(x, config.d_model)
    names = ("attention", "attention_norm", "feed_forward", "feed_forward_norm")
    require_names("params", params, names)
    _require_sizes(params, config)
    for name, flag in (("return_taps", return_taps), ("return_weights", return_weights)):
        require_one_of(name, flag, (False, True))
    kept = require_dropout_masks(
        {} if dropout_masks is None else dropout_masks, mask_shapes(config, *x.shape[:2])
    )
    sublayers: dict[str, Callable[..., tuple[Tensor, Taps]]] = {
        "attention": partial(_attention, mask=mask),
        "feed_forward": _feed_forward,
    }
    taps: Taps = {}
    for name, sublayer in sublayers.items():
        norm = partial(
            layer_norm, params=params[f"{name}_norm"], eps=config.eps, form=config.norm_form
        )
        y = x
        if config.norm == "pre":
            y = taps[f"{name}_norm"] = norm(y)
        y, inner = sublayer(y, params[name], config, kept)
        taps |= {**inner, name: y}
        x = taps[f"{name}_sum"] = x + _dropped(y, config.dropout_rate, kept.get(name))
        if config.norm == "post":
            x = taps[f"{name}_norm"] = norm(x)
    if not return_weights:
        del taps["attention_weights"]
    return (x, taps) if return_taps or return_weights else x


def _attention(
    x: Tensor, params: Params, config: EncoderConfig, kept: DropoutMasks, *, mask: Tensor | None
) -> tuple[Tensor, Taps]:
    """Return what attention gives, and its weights."""
    y, weights = multi_head_attention(
        x,
        params,
        mask=mask,
        dropout_rate=config.dropout_rate,
        dropout_mask=kept.get("attention_weights"),
        return_weights=True,
    )
    return y, {"attention_weights": weights}


def _feed_forward(
    x: Tensor, params: Params, config: EncoderConfig, kept: DropoutMasks
) -> tuple[Tensor, Taps]:
    """Return what the feed-forward network gives, and its hidden vectors."""
    hidden = _hidden(x, params, config.activation)
    y = _out(hidden, params, config.dropout_rate, kept.get("feed_forward_hidden"))
    return y, {"feed_forward_hidden": hidden}


def _hidden(x: Tensor, params: Params, activation: str) -> Tensor:
    require_names("params", params, ("in", "out"))
    require_one_of("activation", activation, get_args(Activation))
    y = dense(x, params["in"], name="params['in']")
    return narrow(_ACTIVATE[activation](widen(y)), y.dtype)


def _out(hidden: Tensor, params: Params, rate: float, mask: Tensor | None) -> Tensor:
    return dense(_dropped(hidden, rate, mask), params["out"], name="params['out']")


def _dropped(x: Tensor, rate: float, mask: Tensor | None) -> Tensor:
    return x if mask is None else dropout(x, rate, mask=mask)


def _require_sizes(params: Any, config: EncoderConfig) -> None:
    """Refuse kernels of other sizes than the config's: each of them would fit some other one."""
    projections = ("query", "key", "value")
    require_names("params['attention']", params["attention"], (*projections, "out"))
    require_names("params['feed_forward']", params["feed_forward"], ("in", "out"))
    split = (config.d_model, config.num_heads, config.head_dim)
    expected: dict[tuple[str, str], tuple[tuple[int, ...], str]] = {
        **{("attention", name): (split, "d_model, num_heads, head_dim") for name in projections},
        ("attention", "out"): ((*split[1:], config.d_model), "num_heads, head_dim, d_model"),
        ("feed_forward", "in"): ((config.d_model, config.d_ff), "d_model, d_ff"),
        ("feed_forward", "out"): ((config.d_ff, config.d_model), "d_ff, d_model"),
    }
    for (part, name), (sizes, words) in expected.items():
        require_names(f"params[{part!r}][{name!r}]", params[part][name], ("kernel",), ("bias",))
        if (shape := tuple(params[part][name]["kernel"].shape)) != sizes:
            raise ValueError(
                f"`params[{part!r}][{name!r}]['kernel']` must have shape {list(sizes)} "
                f"({words} of `config`), got {list(shape)}."
            )
