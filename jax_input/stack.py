"""The encoder: layers one after the other, scanned or unrolled, kept or computed again."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from jax_input.attention import AttentionFn, dot_product_attention
from jax_input.config import EncoderConfig, require_config
from jax_input.dense import require_names, require_vectors
from jax_input.inputs import PRNGKey, require_key
from jax_input.layers import Params, encoder_layer
from jax_input.masks import Mask
from jax_input.normalization import layer_norm
from jax_input.requirements import require_flag

_OPTIONS = ("attention_fn", "return_taps", "return_weights")


def encoder(
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
    """Pass vectors through all layers.

    Args:
      x: vectors along a sequence, such as ``transformer_input`` gives.
      params: "layers", the parameters of ``encoder_layer``, each array with a leading axis of
        ``num_layers``; and "final_norm" if the config says so. See ``encoder_params``.
      config: the options.
      mask: True = may attend; the same for all layers.
      dropout_key: draws what is dropped, in each layer anew; None drops nothing.
      attention_fn: as in ``multi_head_attention``.
      return_taps: also return every step of every layer by name, as ``encoder_layer`` does, each
        with a leading axis of ``num_layers``; and "final_norm".
      return_weights: have the "attention_weights" among the taps, and return these.

    Returns:
      The shape of ``x``, in ``config.dtype`` or the dtype of ``x``; with taps, these as a dict
      beside it.

    Raises:
      TypeError, ValueError: as ``encoder_layer``, or if ``params`` don't fit ``config``.

    Source: Vaswani et al. 2017, section 3.1. Reference: ``torch_ref.encoder``.
    """
    require_config(config)
    x = require_vectors(x, config.d_model)
    x = x if config.dtype is None else x.astype(config.dtype)
    require_names("params", params, ("layers", "final_norm") if config.final_norm else ("layers",))
    _require_stacked(params["layers"], config.num_layers)
    flags = {"return_taps": return_taps, "return_weights": return_weights}
    for name, flag in flags.items():
        require_flag(name, flag)
    keys = None
    if dropout_key is not None and config.dropout_rate:
        keys = jax.random.split(require_key(dropout_key), config.num_layers)

    x, taps = _encode(x, params, mask, keys, config, attention_fn=attention_fn, **flags)
    return (x, taps) if any(flags.values()) else x


# Compiled, so that a call outside of jit does not compile its scan anew.
@partial(jax.jit, static_argnums=4, static_argnames=_OPTIONS)
def _encode(
    x: Array,
    params: Params,
    mask: Any,
    keys: Any,
    config: EncoderConfig,
    **options: Any,
) -> tuple[Array, dict[str, Array]]:
    """Return what all layers make of ``x``, and their taps."""

    def layer(x: Array, given: Any) -> tuple[Array, Any]:
        result = encoder_layer(x, given[0], config, mask=mask, dropout_key=given[1], **options)
        return result if isinstance(result, tuple) else (result, {})

    x, taps = _through(layer, x, (params["layers"], keys), config)
    if config.final_norm:
        x = layer_norm(x, params["final_norm"], eps=config.eps, form=config.norm_form)
        taps = {**taps, "final_norm": x}
    return x, taps


def _through(layer: Any, x: Array, stacked: Any, config: EncoderConfig) -> tuple[Array, Any]:
    """Pass ``x`` through one layer after the other; stack what else they return."""
    if config.remat is not None:
        policy = None if config.remat == "full" else config.remat
        # A scan keeps a compiler from joining both computations by itself.
        layer = jax.checkpoint(layer, policy=policy, prevent_cse=not config.scan)
    if config.scan:
        return lax.scan(layer, x, stacked, length=config.num_layers)
    taps = []
    for index in range(config.num_layers):
        x, tapped = layer(
            x, jax.tree.map(partial(lax.index_in_dim, index=index, keepdims=False), stacked)
        )
        taps.append(tapped)
    return x, jax.tree.map(lambda *each: jnp.stack(each), *taps)


def _require_stacked(layers: Any, num_layers: int) -> None:
    """Refuse arrays that don't lead with an axis of all layers."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(layers):
        if jnp.shape(leaf)[:1] != (num_layers,):
            raise ValueError(
                f"`params['layers']{jax.tree_util.keystr(path)}` must have a leading axis of "
                f"num_layers, {num_layers}, got shape {list(jnp.shape(leaf))}. "
                "Stack the layers with jax.tree.map(lambda *each: jnp.stack(each), *layers)."
            )
