"""Scaled token embedding: look up, scale, one rounding; padding row and ids out of range."""

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from torch_ref.requirements import (
    outside_of,
    require_between,
    require_dtype,
    require_floats,
    require_integer,
    require_integers,
    require_one_of,
    require_real,
    require_size,
)
from torch_ref.rounding import narrow, widen

Scale: TypeAlias = float | Literal["sqrt"] | None
OutOfRange: TypeAlias = Literal["error", "nan", "clip", "zero"]
POLICIES = ("error", "nan", "clip", "zero")


def embed_tokens(
    token_ids: Int[Tensor, "*shape"],
    embedding: Float[Tensor, "vocab_size d_model"],
    *,
    scale: Scale = None,
    padding_idx: int | None = None,
    dtype: torch.dtype | None = None,
    out_of_range: OutOfRange = "error",
    zero_padding: bool = False,
) -> Float[Tensor, "*shape d_model"]:
    """Look the row of each id up and multiply it by the scale.

    The product is formed in float32 (float64 for a float64 embedding) from the float32 scale and
    rounded to ``dtype`` once. The gradient is summed in float32 too and rounded to the dtype of
    ``embedding`` once: a bfloat16 sum of ones would stop at 256.

    Args:
      token_ids: integers of any shape; negative ids never count from the end.
      embedding: one row per token.
      scale: None, a finite number, or "sqrt" for the square root of ``d_model``.
      padding_idx: the row whose gradient is exactly zero; it is read as it is stored.
      dtype: of the result; by default that of ``embedding``.
      out_of_range: an id outside the vocabulary raises ("error"), reads NaN ("nan") or zeros
        ("zero"), both without a gradient, or reads and trains the nearest row ("clip").
      zero_padding: ids equal to ``padding_idx`` read zeros, whatever the row holds.

    Returns:
      ``token_ids.shape + (d_model,)``.

    Raises:
      ValueError: if an id is out of range and the policy is "error" (naming the id and its place),
        ``padding_idx`` is not a row, ``scale`` is not finite, ``out_of_range`` is another word, or
        ``zero_padding`` is asked for without a ``padding_idx``.
      TypeError: if ``token_ids`` are not integers, or a dtype is not one of the four floats.

    Source: Vaswani et al. 2017, section 3.4. Port: ``jax_input.embed_tokens``.
    """
    require_integers("token_ids", token_ids)
    require_floats("embedding", embedding, rank=2)
    vocab_size, d_model = embedding.shape
    dtype = embedding.dtype if dtype is None else dtype
    require_dtype("dtype", dtype)
    padding_idx = require_options(vocab_size, padding_idx, out_of_range, zero_padding)
    factor = scale_factor(scale, d_model, embedding.dtype)
    if out_of_range == "error":
        way_out = (
            "Check the tokenizer, or choose an `out_of_range` policy: 'nan', 'zero' or 'clip'."
        )
        require_between("token_ids", token_ids, 0, vocab_size - 1, way_out)

    # The whole table is widened, not the rows, so that autograd sums their gradients in float32.
    nearest = _nearest_row(token_ids, vocab_size)
    rows = functional.embedding(nearest, widen(embedding), padding_idx)
    if factor is not None:
        rows = rows * factor
    if zero_padding and padding_idx is not None:
        rows = rows.masked_fill(nearest.eq(padding_idx)[..., None], 0.0)
    if out_of_range in {"nan", "zero"}:
        outside = outside_of(token_ids, 0, vocab_size - 1)
        rows = rows.masked_fill(outside[..., None], math.nan if out_of_range == "nan" else 0.0)
    return narrow(rows, dtype)


def scale_factor(scale: Scale, d_model: int, dtype: torch.dtype) -> float | None:
    """Return the scale as a number; multiplied into a float32 tensor, it is rounded to float32.

    Args:
      scale: as in ``embed_tokens``.
      d_model: what "sqrt" takes the root of.
      dtype: of the embedding; the scale has to be finite in the wide dtype of its product.
    """
    if scale is None:
        return None
    if isinstance(scale, str):
        require_one_of("scale", scale, ("sqrt", None))
        return math.sqrt(d_model)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return require_real("scale", scale, wide)


def require_options(
    vocab_size: int, padding_idx: int | None, out_of_range: str, zero_padding: bool
) -> int | None:
    """Return ``padding_idx``; refuse options of ``embed_tokens`` that are not among its values."""
    require_one_of("out_of_range", out_of_range, POLICIES)
    require_one_of("zero_padding", zero_padding, (True, False))
    if padding_idx is None:
        if zero_padding:
            raise ValueError("`zero_padding` needs a `padding_idx`, got None. Name the padding id.")
        return None
    padding_idx = require_integer("padding_idx", padding_idx, "or None")
    if not 0 <= padding_idx < vocab_size:
        raise ValueError(
            f"`padding_idx` must be from 0 to {vocab_size - 1}, got {padding_idx}. "
            "Negative ids do not count from the end."
        )
    return padding_idx


def _nearest_row(token_ids: Tensor, vocab_size: int) -> Tensor:
    """Return int64 ids within the vocabulary; huge unsigned ids are above it, not below."""
    wide = token_ids.to(torch.int64)
    if not token_ids.dtype.is_signed:
        wide = wide.masked_fill(wide < 0, vocab_size - 1)
    return wide.clamp(0, vocab_size - 1)


class Embeddings(nn.Module):
    """``embed_tokens`` with its table as the parameter ``embedding``, N(0, 1) at first.

    Args:
      vocab_size: number of rows.
      d_model: number of columns.
      scale: as in ``embed_tokens``.
      padding_idx: as in ``embed_tokens``; this row starts at zero, whatever the initialiser does.
      dtype: of the result; by default that of the parameter.
      param_dtype: of the parameter.
      zero_padding: as in ``embed_tokens``.
      out_of_range: as in ``embed_tokens``.
      embedding_init: fills a tensor in place, as the functions of ``torch.nn.init`` do; what it
        returns is not used.

    Raises:
      ValueError: as ``embed_tokens``, already when the module is built; or if ``embedding_init``
        leaves an entry unfilled.
      TypeError: as ``embed_tokens``, or if ``embedding_init`` cannot be called.

    Source: Vaswani et al. 2017, section 3.4. Port: ``jax_input.linen.Embed``.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        d_model: int,
        scale: Scale = "sqrt",
        padding_idx: int | None = None,
        dtype: torch.dtype | None = None,
        param_dtype: torch.dtype = torch.float32,
        zero_padding: bool = False,
        out_of_range: OutOfRange = "error",
        embedding_init: Callable[[Tensor], object] = nn.init.normal_,
    ) -> None:
        """Check the options and build the state."""
        super().__init__()
        vocab_size = require_size("vocab_size", vocab_size)
        d_model = require_size("d_model", d_model)
        require_dtype("param_dtype", param_dtype)
        if dtype is not None:
            require_dtype("dtype", dtype)
        padding_idx = require_options(vocab_size, padding_idx, out_of_range, zero_padding)
        scale_factor(scale, d_model, param_dtype)
        if not callable(embedding_init):
            raise TypeError(
                "`embedding_init` must be a function that fills a tensor in place, as "
                f"torch.nn.init.normal_ does, got {type(embedding_init).__name__} "
                f"{embedding_init!r}. Leave it out for that one."
            )
        self.scale: Scale = scale
        self.padding_idx = padding_idx
        self.dtype = dtype
        self.zero_padding = zero_padding
        self.out_of_range: OutOfRange = out_of_range
        self.embedding_init = embedding_init
        self.embedding = nn.Parameter(torch.empty(vocab_size, d_model, dtype=param_dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill the table anew, and the padding row with zeros."""
        with torch.no_grad():
            self.embedding.fill_(math.nan)  # shows what the initialiser leaves unfilled
            self.embedding_init(self.embedding)
            self._require_filled()
            if self.padding_idx is not None:
                self.embedding[self.padding_idx].zero_()

    def _require_filled(self) -> None:
        if self.embedding.is_meta:
            return
        unfilled = self.embedding.isnan()
        if unfilled.any():
            raise ValueError(
                "`embedding_init` must fill the tensor it is given in place, but after it the "
                f"embedding holds NaN at {unfilled.nonzero()[0].tolist()}. "
                "Write `tensor.copy_(values)` in place of `return values`."
            )

    def forward(self, token_ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape d_model"]:
        """Look the ids up, as ``embed_tokens``."""
        return embed_tokens(
            token_ids,
            self.embedding,
            scale=self.scale,
            padding_idx=self.padding_idx,
            dtype=self.dtype,
            out_of_range=self.out_of_range,
            zero_padding=self.zero_padding,
        )
