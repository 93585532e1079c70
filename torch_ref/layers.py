"""A layer of an encoder: attention and the feed-forward network, each with its residual."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from jaxtyping import Bool, Float
from torch import Tensor

from torch_ref.attention import multi_head_attention
from torch_ref.config import EncoderConfig, require_config
from torch_ref.dense import Params, require_names, require_vectors
from torch_ref.dropout_masks import DropoutMasks, mask_shapes, require_dropout_masks
from torch_ref.ffn import from_hidden, to_hidden
from torch_ref.inputs import dropout
from torch_ref.normalization import layer_norm
from torch_ref.requirements import require_one_of

Taps: TypeAlias = dict[str, Tensor]


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
    require_config(config)
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
        dropped = dropout(y, config.dropout_rate, mask=kept[name]) if name in kept else y
        x = taps[f"{name}_sum"] = x + dropped
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
    hidden = to_hidden(x, params, config.activation)
    y = from_hidden(hidden, params, config.dropout_rate, kept.get("feed_forward_hidden"))
    return y, {"feed_forward_hidden": hidden}


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
    for part in ("attention_norm", "feed_forward_norm"):
        require_names(f"params[{part!r}]", params[part], ("scale",), ("bias",))
    for (part, name), (sizes, words) in expected.items():
        require_names(f"params[{part!r}][{name!r}]", params[part][name], ("kernel",), ("bias",))
        if (shape := tuple(params[part][name]["kernel"].shape)) != sizes:
            raise ValueError(
                f"`params[{part!r}][{name!r}]['kernel']` must have shape {list(sizes)} "
                f"({words} of `config`), got {list(shape)}."
            )
