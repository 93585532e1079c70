"""The input part of the Transformer: embed, add positions, drop."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from torch_ref.embedding import Scale, embed_tokens
from torch_ref.positions import add_positions
from torch_ref.requirements import require_floats, require_rate
from torch_ref.rounding import widen


def dropout(
    x: Float[Tensor, "*shape"],
    rate: float,
    *,
    generator: torch.Generator | None = None,
    mask: Bool[Tensor, "*shape"] | None = None,
) -> Float[Tensor, "*shape"]:
    """Set entries to zero by chance, and raise the others so that the mean stays.

    Kept entries are multiplied by ``1 / (1 - rate)``, rounded to float32, in float32 (in float64
    for float64), and rounded to the dtype of ``x`` once. Dropped ones are zero, NaN among them.

    Args:
      x: any shape.
      rate: the chance of a zero, in [0, 1].
      generator: where the mask is drawn from; by default PyTorch's global generator, with the
        draws of ``torch.nn.Dropout``. (The port, without a key, leaves ``x`` as it is.)
      mask: True where an entry is kept, in place of a draw.

    Returns:
      As ``x``.

    Raises:
      ValueError: if ``rate`` is not in [0, 1], ``mask`` has another shape, or both a ``generator``
        and a ``mask`` are given.
      TypeError: if ``x`` is not floating, ``rate`` is not a number, ``mask`` is not bool, or
        ``generator`` is not a ``torch.Generator``.

    Source: Srivastava et al. 2014. Port: ``jax_input.dropout``.
    """
    require_floats("x", x)
    rate = require_rate("rate", rate)
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(
            "`generator` must be a torch.Generator or None, got "
            f"{type(generator).__name__} {generator!r}. "
            "For a seed, pass torch.Generator().manual_seed(seed)."
        )
    if mask is None:
        mask = torch.empty_like(x).bernoulli_(1.0 - rate, generator=generator).bool()
    elif generator is not None:
        raise ValueError("`generator` and `mask` are both given. Leave one of them out.")
    _require_mask(mask, x)
    if rate == 1.0:
        return x.masked_fill(torch.ones_like(mask), 0.0)
    return (widen(x) * (1.0 / (1.0 - rate))).masked_fill(~mask, 0.0).to(x.dtype)


def transformer_input(
    token_ids: Int[Tensor, "*batch seq_len"],
    embedding: Float[Tensor, "vocab_size d_model"],
    table: Float[Tensor, "max_len d_model"],
    *,
    positions: Int[Tensor, "*batch seq_len"] | Int[Tensor, " seq_len"] | None = None,
    scale: Scale = "sqrt",
    padding_idx: int | None = None,
    dropout_rate: float = 0.0,
    dropout_mask: Bool[Tensor, "*batch seq_len d_model"] | None = None,
) -> Float[Tensor, "*batch seq_len d_model"]:
    """Embed the tokens, add their positions, and drop.

    Args:
      token_ids: integers; the last axis is the sequence.
      embedding: one row per token.
      table: one row per position; its dtype is that of the result.
      positions: as in ``add_positions``.
      scale: as in ``embed_tokens``.
      padding_idx: as in ``embed_tokens``.
      dropout_rate: as in ``dropout``; 0 draws nothing.
      dropout_mask: as in ``dropout``.

    Returns:
      ``token_ids.shape + (d_model,)``, in the dtype of ``table``.

    Raises:
      ValueError, TypeError: as the three functions.

    Source: Vaswani et al. 2017, sections 3.4 and 3.5. Port: ``jax_input.transformer_input``.
    """
    require_floats("table", table, rank=2)
    dropout_rate = require_rate("dropout_rate", dropout_rate)
    x = embed_tokens(token_ids, embedding, scale=scale, padding_idx=padding_idx, dtype=table.dtype)
    x = add_positions(x, table, positions=positions)
    if dropout_rate == 0 and dropout_mask is None:
        return x
    return dropout(x, dropout_rate, mask=dropout_mask)


def _require_mask(mask: Tensor, x: Tensor) -> None:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"`mask` must be a torch.bool tensor, True to keep an entry, got {kind}.")
    if mask.shape != x.shape:
        raise ValueError(f"`mask` has shape {list(mask.shape)}, but `x` has {list(x.shape)}.")
