"""A layer of an encoder: attention and the feed-forward network, each with its residual."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from jax_input.attention import AttentionFn, dot_product_attention, multi_head_attention
from jax_input.config import EncoderConfig, Norm, require_config
from jax_input.dense import Params, require_names, require_vectors
from jax_input.ffn import from_hidden, to_hidden
from jax_input.inputs import PRNGKey, draw_kept, dropout, require_key
from jax_input.masks import Mask
from jax_input.normalization import layer_norm
from jax_input.requirements import require_flag
from jax_input.rounding import round_to, widen

Taps = dict[str, Array]
# So many vectors a block: its products are as fast as those of all, and its arrays much smaller.
_ROWS = 512


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
    require_config(config)
    x = require_vectors(x, config.d_model)
    names = ("attention", "attention_norm", "feed_forward", "feed_forward_norm")
    require_names("params", params, names)
    _require_sizes(params, config)
    has_taps = require_flag("return_taps", return_taps)
    has_taps = require_flag("return_weights", return_weights) or has_taps
    is_dropped = dropout_key is not None and config.dropout_rate > 0
    keys = jax.random.split(require_key(dropout_key), 4) if is_dropped else (None,) * 4
    shapes = (x.shape, (*x.shape[:-1], config.d_ff), x.shape)
    # Of all vectors, however many of them are computed at a time.
    kept, kept_hidden, kept_last = (
        None if key is None else draw_kept(key, config.dropout_rate, shape)
        for key, shape in zip(keys[1:], shapes, strict=True)
    )

    normed, taps = _normed("pre", "attention", x, params, config)
    y = multi_head_attention(
        normed,
        params["attention"],
        mask=mask,
        dropout_rate=config.dropout_rate,
        dropout_key=keys[0],
        matmul_precision=config.matmul_precision,
        attention_fn=attention_fn,
        return_weights=return_weights,
    )
    if return_weights:
        y, taps["attention_weights"] = y
    x, others = _added("attention", x, y, kept, params, config)
    taps |= others
    # Unrolled, XLA joins both computations on a CPU: there is nothing to gain.
    in_blocks = config.remat == "full" and config.scan
    feed_forward = _in_blocks if in_blocks else _feed_forward
    x, others = feed_forward(x, kept_hidden, kept_last, params=params, config=config)
    return (x, taps | others) if has_taps else x


def _normed(
    when: Norm, name: str, x: Array, params: Params, config: EncoderConfig
) -> tuple[Array, Taps]:
    """Normalise, if the config does so then."""
    if config.norm != when:
        return x, {}
    x = layer_norm(x, params[f"{name}_norm"], eps=config.eps, form=config.norm_form)
    return x, {f"{name}_norm": x}


def _added(
    name: str, x: Array, y: Array, kept: Array | None, params: Params, config: EncoderConfig
) -> tuple[Array, Taps]:
    """Add what a sublayer gives to its input."""
    # A compiler may leave out a cast to 16 bits, where no block begins.
    total = widen(x) + widen(dropout(y, config.dropout_rate, mask=kept))
    total = round_to(total, x.dtype)
    x, taps = _normed("post", name, total, params, config)
    return x, {name: y, f"{name}_sum": total, **taps}


def _feed_forward(
    x: Array,
    kept_hidden: Array | None,
    kept: Array | None,
    params: Params,
    config: EncoderConfig,
) -> tuple[Array, Taps]:
    """Return what a layer gives, and the steps to it, from the feed-forward network on."""
    inner = params["feed_forward"]
    normed, before = _normed("pre", "feed_forward", x, params, config)
    hidden = to_hidden(normed, inner, config.activation, config.matmul_precision)
    dropped = dropout(hidden, config.dropout_rate, mask=kept_hidden)
    y = from_hidden(dropped, inner, config.matmul_precision)
    x, taps = _added("feed_forward", x, y, kept, params, config)
    return x, {**before, "feed_forward_hidden": hidden, **taps}


# Compiled, so that a call outside of jit does not compile its loop anew.
@partial(jax.jit, static_argnames="config")
def _in_blocks(*arrays: Any, params: Params, config: EncoderConfig) -> tuple[Array, Taps]:
    """Do the same, on a CPU for a few vectors after others: XLA holds several arrays of theirs."""
    whole = partial(_feed_forward, params=params, config=config)
    return lax.platform_dependent(*arrays, cpu=partial(_in_turn, whole), default=whole)


def _in_turn(function: Callable[..., Any], *arrays: Any) -> Any:
    """Call for blocks of vectors; what each computes is computed again in the backward pass."""
    shape = arrays[0].shape[:-1]
    rows = math.prod(shape)
    count = max(1, -(-rows // _ROWS))
    size = -(-rows // count)

    def blocks(x: Array) -> Array:
        padded = jnp.pad(x.reshape(rows, x.shape[-1]), ((0, count * size - rows), (0, 0)))
        return padded.reshape(count, size, x.shape[-1])

    def whole(y: Array) -> Array:
        return y.reshape(count * size, y.shape[-1])[:rows].reshape(*shape, y.shape[-1])

    @partial(jax.checkpoint, prevent_cse=False)
    def one(block: Any) -> Any:
        return function(*block)

    return jax.tree.map(whole, lax.map(one, jax.tree.map(blocks, arrays)))


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
    for part in ("attention_norm", "feed_forward_norm"):
        require_names(f"params[{part!r}]", params[part], ("scale",), ("bias",))
    for (part, name), (sizes, words) in expected.items():
        require_names(f"params[{part!r}][{name!r}]", params[part][name], ("kernel",), ("bias",))
        if (shape := jnp.shape(params[part][name]["kernel"])) != sizes:
            raise ValueError(
                f"`params[{part!r}][{name!r}]['kernel']` must have shape {list(sizes)} "
                f"({words} of `config`), got {list(shape)}."
            )
