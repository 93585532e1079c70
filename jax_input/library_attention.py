"""Attention of a library, with the promises of ours or not at all."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from jax_input.attention_arguments import require_fitting, require_heads, select_seen
from jax_input.masks import Mask

_WHY = {
    "dropout_key": "it drops no weights",
    "matmul_precision": "it takes no precision",
    "return_weights": "it returns no weights",
}


def jax_nn_attention(
    query: Float[ArrayLike, "batch query num_heads head_dim"],
    key: Float[ArrayLike, "batch key num_heads head_dim"],
    value: Float[ArrayLike, "batch key num_heads head_dim"],
    *,
    mask: Mask | None = None,
    implementation: Literal["xla", "cudnn"] | None = None,
    **options: Any,
) -> Float[Array, "batch query num_heads head_dim"]:
    """Call ``jax.nn.dot_product_attention``; pass it as ``attention_fn``.

    It gives the mean of all values for a query without any key, and lets a NaN in padding through;
    both are mended here. For cuDNN's kernel pass ``functools.partial(jax_nn_attention,
    implementation="cudnn")``.

    Args:
      query: what looks.
      key: what is looked at.
      value: what is averaged.
      mask: as in ``dot_product_attention``.
      implementation: as ``jax.nn.dot_product_attention`` takes it.
      options: others of ``dot_product_attention``; each is refused where it would ask for
        something.

    Returns:
      ``[batch, query, num_heads, head_dim]`` in the dtype of ``query``.

    Raises:
      ValueError: if an option asks for dropout, a precision or the weights, or shapes don't fit.
      TypeError: as ``dot_product_attention``, or if an option is unknown.

    Source: ``jax.nn.dot_product_attention``. Reference: ``torch_ref.dot_product_attention``.
    """
    query, key, value = require_heads(query, key, value)
    _refuse(options)
    if mask is None:
        return jax.nn.dot_product_attention(query, key, value, implementation=implementation)
    kept = require_fitting(mask, query, key)
    query, key, value = (x.swapaxes(1, 2) for x in (query, key, value))
    selected = select_seen(query, key, value, kept)
    query, key, value = (x.swapaxes(1, 2) for x in selected)
    output = jax.nn.dot_product_attention(
        query, key, value, mask=kept, implementation=implementation
    )
    sees = jnp.any(kept, axis=3).swapaxes(1, 2)[..., None]
    return jnp.where(jnp.broadcast_to(sees, output.shape), output, 0)


def _refuse(options: dict[str, Any]) -> None:
    """Refuse what the library can't do, rather than leave it out."""
    if options.get("dropout_rate", 0) == 0:
        options = {name: option for name, option in options.items() if name != "dropout_key"}
    for name, option in options.items():
        if name not in (*_WHY, "dropout_rate"):
            raise TypeError(f"`{name}` is no option of `dot_product_attention`.")
        if name in _WHY and option is not None and option is not False:
            raise ValueError(
                f"`jax_nn_attention` got `{name}`, but {_WHY[name]}. Leave the option out, or take "
                "`dot_product_attention`."
            )
