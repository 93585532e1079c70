"""What an encoder is made of: the feed-forward network, and a layer of it and attention."""

from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from jax_input.attention import AttentionFn, dot_product_attention, multi_head_attention
from jax_input.config import Activation, EncoderConfig
from jax_input.dense import Params, dense, require_names, require_vectors
from jax_input.inputs import PRNGKey, dropout, require_key, require_rate
from jax_input.masks import Mask
from jax_input.normalization import layer_norm
from jax_input.requirements import require_flag, require_floats, require_one_of
from jax_input.rounding import wide_dtype

_ACTIVATE: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
}
_LEAVES = ("", "_norm")


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
    hidden = _hidden(x, params, activation, matmul_precision)
    return _out(hidden, params, dropout_rate, dropout_key, matmul_precision)


def encoder_layer(
    x: Float[ArrayLike, "batch seq_len d_model"],
    params: Params,
    config: EncoderConfig,
    *,
    mask: Mask | None = None,
    dropout_key: PRNGKey | None = None,
    attention_fn: AttentionFn = dot_product_attention,
    return_taps: bool = False,
    return_weights: bool = False,
) -> Any:
    """Attend, then feed forward, each with its residual and normalisation.

    With ``norm="post"`` a sublayer is norm(x + sublayer(x)), with "pre" x + sublayer(norm(x)).
    Entries are dropped in four places, as in PyTorch: of the attention weights, of what either
    sublayer gives before it is added, and of the hidden vectors.

    Args:
      x: vectors along a sequence; their dtype is computed in.
      params: "attention" as in ``multi_head_attention``, "feed_forward" as in ``feed_forward``,
        and "attention_norm" and "feed_forward_norm" as in ``layer_norm``.
      config: the options.
      mask: True = may attend.
      dropout_key: draws what is dropped; None drops nothing.
      attention_fn: as in ``multi_head_attention``.
      return_taps: also return every step by name: "attention" and "feed_forward" as they come,
        "_sum" of each with its residual, "_norm" of each, and "feed_forward_hidden".
      return_weights: have the "attention_weights" among the taps, and return these.

    Returns:
      The shape and dtype of ``x``; with taps, these as a dict beside it.

    Raises:
      TypeError, ValueError: as the functions it is made of, or if ``params`` don't fit ``config``.

    Source: Vaswani et al. 2017, section 3.1; "pre": Xiong et al. 2020. Reference:
    ``torch_ref.encoder_layer``.
    """
    x = require_vectors(x, config.d_model)
    sublayers: dict[str, Callable[..., Any]] = {
        "attention": partial(
            _attention, attention_fn=attention_fn, mask=mask, with_weights=return_weights
        ),
        "feed_forward": _feed_forward,
    }
    require_names("params", params, tuple(f"{name}{end}" for name in sublayers for end in _LEAVES))
    _require_sizes(params, config)
    has_taps = require_flag("return_taps", return_taps)
    has_taps = require_flag("return_weights", return_weights) or has_taps
    is_dropped = dropout_key is not None and config.dropout_rate > 0
    keys = iter(jax.random.split(require_key(dropout_key), 4) if is_dropped else (None,) * 4)
    taps: dict[str, Array] = {}
    for name, sublayer in sublayers.items():
        norm = partial(
            layer_norm, params=params[f"{name}_norm"], eps=config.eps, form=config.norm_form
        )
        y = x
        if config.norm == "pre":
            y = taps[f"{name}_norm"] = norm(y)
        y, inner = sublayer(y, params[name], config, next(keys))
        taps |= {**inner, name: y}
        x = taps[f"{name}_sum"] = x + dropout(y, config.dropout_rate, key=next(keys))
        if config.norm == "post":
            x = taps[f"{name}_norm"] = norm(x)
    return (x, taps) if has_taps else x


def _attention(
    x: Array,
    params: Params,
    config: EncoderConfig,
    key: PRNGKey | None,
    *,
    with_weights: bool,
    attention_fn: AttentionFn,
    mask: Any,
) -> tuple[Array, dict[str, Array]]:
    """Return what attention gives, and its weights if they are asked for."""
    result = multi_head_attention(
        x,
        params,
        mask=mask,
        dropout_rate=config.dropout_rate,
        dropout_key=key,
        matmul_precision=config.matmul_precision,
        attention_fn=attention_fn,
        return_weights=with_weights,
    )
    return (result[0], {"attention_weights": result[1]}) if with_weights else (result, {})


def _feed_forward(
    x: Array, params: Params, config: EncoderConfig, key: PRNGKey | None
) -> tuple[Array, dict[str, Array]]:
    """Return what the feed-forward network gives, and its hidden vectors."""
    hidden = _hidden(x, params, config.activation, config.matmul_precision)
    y = _out(hidden, params, config.dropout_rate, key, config.matmul_precision)
    return y, {"feed_forward_hidden": hidden}


def _hidden(x: Any, params: Params, activation: str, matmul_precision: Any) -> Array:
    require_names("params", params, ("in", "out"))
    require_one_of("activation", activation, get_args(Activation))
    x = require_floats("x", x)
    y = dense(x, params["in"], name="params['in']", matmul_precision=matmul_precision)
    return _ACTIVATE[activation](y.astype(wide_dtype(y.dtype))).astype(y.dtype)


def _out(hidden: Array, params: Params, rate: Any, key: Any, matmul_precision: Any) -> Array:
    kept = dropout(hidden, require_rate("dropout_rate", rate), key=key)
    return dense(kept, params["out"], name="params['out']", matmul_precision=matmul_precision)


def _require_sizes(params: Params, config: EncoderConfig) -> None:
    """Refuse kernels of other sizes than the config's: each of them would fit some other one."""
    projections = ("query", "key", "value")
    require_names("params['attention']", params["attention"], (*projections, "out"))
    require_names("params['feed_forward']", params["feed_forward"], ("in", "out"))
    split = (config.d_model, config.num_heads, config.d_model // config.num_heads)
    expected: dict[tuple[str, str], tuple[tuple[int, ...], str]] = {
        **{("attention", name): (split, "d_model, num_heads, head_dim") for name in projections},
        ("attention", "out"): ((*split[1:], config.d_model), "num_heads, head_dim, d_model"),
        ("feed_forward", "in"): ((config.d_model, config.d_ff), "d_model, d_ff"),
        ("feed_forward", "out"): ((config.d_ff, config.d_model), "d_ff, d_model"),
    }
    for (part, name), (sizes, words) in expected.items():
        require_names(f"params[{part!r}][{name!r}]", params[part][name], ("kernel",), ("bias",))
        if (shape := jnp.shape(params[part][name]["kernel"])) != sizes:
            raise ValueError(
                f"`params[{part!r}][{name!r}]['kernel']` must have shape {list(sizes)} "
                f"({words} of `config`), got {list(shape)}."
            )
