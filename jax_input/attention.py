"""Scaled dot-product attention, and the multi-head attention made of it."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from jax_input.attention_arguments import require_fitting, require_heads, select_seen
from jax_input.dense import dense, linear, require_leaves, require_names, require_vectors
from jax_input.inputs import PRNGKey, dropout, require_key, require_rate
from jax_input.masks import Mask
from jax_input.matmul import matmul
from jax_input.requirements import require_flag
from jax_input.rounding import wide_dtype

AttentionFn = Callable[..., Any]
# Scores: 1 MiB in float32.
_AT_ONCE = 2**18
_PROJECTIONS = ("query", "key", "value")


def dot_product_attention(
    query: Float[ArrayLike, "batch query num_heads head_dim"],
    key: Float[ArrayLike, "batch key num_heads head_dim"],
    value: Float[ArrayLike, "batch key num_heads value_dim"],
    *,
    mask: Mask | None = None,
    dropout_rate: int | float = 0.0,
    dropout_key: PRNGKey | None = None,
    matmul_precision: lax.PrecisionLike = None,
    return_weights: bool = False,
) -> Any:
    """Average the values by the softmax of query . key / sqrt(head_dim).

    Scores and softmax are float32 (float64 for float64). The weights are computed again in the
    backward pass, so that no array of [query, key] is kept for it; on CPU one head at a time.

    Args:
      query: what looks.
      key: what is looked at.
      value: what is averaged.
      mask: True = may attend. A query without any key gives exactly 0 and passes no gradient. What
        no query may see, and queries that see nothing, are left out of every sum: a NaN or inf in
        padding shows neither in the output nor in a gradient. (A key that some query may see, as
        under a causal mask, has to be finite.)
      dropout_rate: the chance that a weight is dropped, where there is a ``dropout_key``.
      dropout_key: draws the weights that are dropped, for each example and head apart.
      matmul_precision: of both products.
      return_weights: also return the weights, before dropout; they are then kept.

    Returns:
      ``[batch, query, num_heads, value_dim]`` in the dtype of ``query``; with ``return_weights``
      also float32 (or float64) ``[batch, num_heads, query, key]``.

    Raises:
      TypeError: if arrays hold no supported floats or are of different dtypes, ``mask`` is not
        boolean, or as ``dropout``.
      ValueError: if the shapes don't fit.

    Source: Vaswani et al. 2017, section 3.2.1; the weights that are computed again: Dao et al.
    2022. Reference: ``torch_ref.dot_product_attention``.
    """
    query, key, value = require_heads(query, key, value)
    rate = require_rate("dropout_rate", dropout_rate)
    if mask is not None:
        mask = require_fitting(mask, query, key)
    query, key, value = (x.swapaxes(1, 2) for x in (query, key, value))
    if mask is not None:
        query, key, value = select_seen(query, key, value, mask)
    key = key.swapaxes(2, 3)
    keys = None
    if dropout_key is not None and rate:
        keys = jax.random.split(require_key(dropout_key), query.shape[:2])
    options: dict[str, Any] = {"rate": rate, "matmul_precision": matmul_precision}
    if require_flag("return_weights", return_weights):
        heads, weights = _together(partial(_attend, **options), query, key, value, mask, keys)
        return heads.swapaxes(1, 2), weights
    return _recomputed(query, key, value, mask, keys, **options).swapaxes(1, 2)


def multi_head_attention(
    x: Float[ArrayLike, "batch seq_len d_model"],
    params: Mapping[str, Any],
    *,
    mask: Mask | None = None,
    dropout_rate: int | float = 0.0,
    dropout_key: PRNGKey | None = None,
    matmul_precision: lax.PrecisionLike = None,
    attention_fn: AttentionFn = dot_product_attention,
    return_weights: bool = False,
) -> Any:
    """Let each vector attend to the others, in several heads.

    Args:
      x: vectors along a sequence; their dtype is computed in.
      params: "query", "key" and "value", each {"kernel": [d_model, num_heads, head_dim], "bias":
        [num_heads, head_dim]}, and "out", {"kernel": [num_heads, head_dim, d_model], "bias":
        [d_model]}; each "bias" may be absent.
      mask: as in ``dot_product_attention``.
      dropout_rate: as in ``dot_product_attention``.
      dropout_key: as in ``dot_product_attention``.
      matmul_precision: of every product.
      attention_fn: called as ``dot_product_attention`` is; its options only where they are used.
      return_weights: also return the weights, as ``dot_product_attention`` does.

    Returns:
      The shape and dtype of ``x``; with ``return_weights`` also ``[batch, num_heads, query, key]``.

    Raises:
      TypeError, ValueError: as ``dot_product_attention``, or if ``params`` lack an array or one has
        another shape.

    Source: Vaswani et al. 2017, section 3.2.2. Reference: ``torch_ref.multi_head_attention``.
    """
    x = require_vectors(x)
    require_names("params", params, (*_PROJECTIONS, "out"))
    projected = _project(x, params, matmul_precision)
    used: dict[str, Any] = {"mask": mask, "matmul_precision": matmul_precision}
    if dropout_key is not None:
        used |= {"dropout_rate": dropout_rate, "dropout_key": dropout_key}
    if require_flag("return_weights", return_weights):
        used |= {"return_weights": True}
    given = {name: option for name, option in used.items() if option is not None}
    result = attention_fn(*projected, **given)
    heads, weights = result if return_weights else (result, None)
    y = dense(heads, params["out"], 2, name="params['out']", matmul_precision=matmul_precision)
    return (y, weights) if return_weights else y


def _project(
    x: Float[Array, "batch seq_len d_model"],
    params: Mapping[str, Any],
    matmul_precision: lax.PrecisionLike,
) -> list[Array]:
    """Return query, key and value: of one product, if they have as many heads."""
    leaves = [require_leaves(f"params[{name!r}]", params[name], x, 1) for name in _PROJECTIONS]
    heads = {kernel.shape[:-1] for kernel, _ in leaves}
    if len(heads) > 1 or len(heads.pop()) != 2:
        return [linear(x, *each, 1, matmul_precision) for each in leaves]
    return _joined(x, leaves, matmul_precision)


# The joined kernels are not kept for the backward pass.
@partial(jax.checkpoint, prevent_cse=False, static_argnums=2)
def _joined(
    x: Float[Array, "batch seq_len d_model"],
    leaves: Sequence[tuple[Array, Array | None]],
    matmul_precision: lax.PrecisionLike,
) -> list[Array]:
    """Multiply by all kernels, side by side in each head."""
    wide, kernels = wide_dtype(x.dtype), [kernel.astype(x.dtype) for kernel, _ in leaves]
    zeros = [jnp.zeros(kernel.shape[1:], wide) for kernel in kernels]
    biases = [z if b is None else b.astype(wide) for z, (_, b) in zip(zeros, leaves, strict=True)]
    bias = None if all(bias is None for _, bias in leaves) else jnp.concatenate(biases, axis=-1)
    y = linear(x, jnp.concatenate(kernels, axis=-1), bias, 1, matmul_precision)
    ends = itertools.accumulate(kernel.shape[-1] for kernel in kernels)
    return jnp.split(y, [*ends][:-1], axis=-1)


def _attend(
    query: Float[Array, "query head_dim"],
    key: Float[Array, "head_dim key"],
    value: Float[Array, "key value_dim"],
    mask: Bool[Array, "#query #key"] | None,
    dropout_key: PRNGKey | None,
    *,
    rate: float,
    matmul_precision: lax.PrecisionLike,
) -> tuple[Float[Array, "query value_dim"], Float[Array, "query key"]]:
    """Return the output and the weights of one head of one example."""
    wide = wide_dtype(query.dtype)
    scores = matmul(query, key, matmul_precision, as_batch=True)
    scores *= wide.type(query.shape[-1] ** -0.5)
    if mask is not None:
        mask = jnp.broadcast_to(mask, scores.shape)
        scores = jnp.where(mask, scores, jnp.finfo(wide).min)
    greatest = lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))
    terms = jnp.exp(scores - greatest)
    if mask is not None:
        terms = jnp.where(mask, terms, 0)
    total = jnp.sum(terms, axis=-1, keepdims=True)
    total = jnp.where(total == 0, 1, total)
    kept = terms if dropout_key is None else dropout(terms, rate, key=dropout_key)
    # Divided after the product, where there are fewer elements.
    output = matmul(kept.astype(value.dtype), value, matmul_precision, as_batch=True) / total
    return output.astype(query.dtype), terms / total


# Compiled, so that a call outside of jit does not compile its loop anew.
@partial(jax.jit, static_argnames=("rate", "matmul_precision"))
def _recomputed(*arrays: Any, **options: Any) -> Float[Array, "batch num_heads query value_dim"]:
    """Return the outputs; their weights are computed again in the backward pass."""

    def attend(*head: Any) -> Array:
        return _attend(*head, **options)[0]

    return lax.platform_dependent(
        *arrays,
        cpu=partial(_in_turn, attend),
        default=partial(_together, jax.checkpoint(attend)),
    )


def _together(attend: Callable[..., Any], *arrays: Any) -> Any:
    """Call for all heads of all examples at once; an axis of size 1 of the mask serves all."""
    *given, mask, keys = arrays
    drawn = None if keys is None else 0
    for axis in (1, 0):
        shared = mask is None or mask.shape[axis] == 1
        mask = mask if mask is None or not shared else jnp.squeeze(mask, axis)
        attend = jax.vmap(attend, (*(0 for _ in given), None if shared else 0, drawn))
    return attend(*given, mask, keys)


def _in_turn(attend: Callable[..., Array], *arrays: Any) -> Array:
    """Call for a few heads after others, so that their scores stay in the cache of a CPU."""
    *given, mask, keys = arrays
    batch, num_heads = given[0].shape[:2]

    # The mask too is cut anew: it would be kept for each head otherwise.
    @partial(jax.checkpoint, prevent_cse=False)
    def one(head: tuple[Any, ...]) -> Array:
        place, *rest, key = head
        if mask is None:
            return attend(*rest, None, key)
        example, inner = place // num_heads, place % num_heads
        row = mask[0 if mask.shape[0] == 1 else example]
        return attend(*rest, row[0 if mask.shape[1] == 1 else inner], key)

    count, scores = batch * num_heads, given[0].shape[2] * given[1].shape[3]
    heads = [x.reshape(count, *x.shape[2:]) for x in given]
    keys = None if keys is None else keys.reshape(count, *keys.shape[2:])
    few = max([1, *(n for n in range(1, count + 1) if count % n == 0 and n * scores <= _AT_ONCE)])
    result = lax.map(one, (jnp.arange(count), *heads, keys), batch_size=few if few > 1 else None)
    return result.reshape(batch, num_heads, *result.shape[1:])
