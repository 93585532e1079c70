"""The formulas of the articles as they were published, so that their behaviour can be measured.

Nothing here is corrected. In float32 the frequencies are off by some ulp, which the position
multiplies: 3.9e-4 at 5,000 rows. An odd width raises. The table follows the default dtype, is cast
with the model, is saved, and does not load into another ``max_len``. A table of one row is added
to every token of a longer sequence. ``torch_ref`` itself has none of this.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class VocabularyFirstEmbedding(nn.Module):
    """The scaled embedding, in the spelling ``(vocab_size, d_model)``.

    Args:
      vocab_size: number of rows.
      d_model: number of columns.
    """

    def __init__(self, vocab_size: int, d_model: int) -> None:
        """Build the table."""
        super().__init__()
        self.d_model = d_model
        self.embedding = nn.Embedding(vocab_size, d_model)

    def forward(self, x: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape d_model"]:
        """Return the rows times the square root of ``d_model``."""
        return self.embedding(x) * math.sqrt(self.d_model)


class WidthFirstEmbedding(nn.Module):
    """The scaled embedding, in the spelling ``(d_model, vocab)``.

    Args:
      d_model: number of columns.
      vocab: number of rows.
    """

    def __init__(self, d_model: int, vocab: int) -> None:
        """Build the table."""
        super().__init__()
        self.d_model = d_model
        self.lut = nn.Embedding(vocab, d_model)

    def forward(self, x: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape d_model"]:
        """Return the rows times the square root of ``d_model``."""
        return self.lut(x) * math.sqrt(self.d_model)


class ShortPositionalEncoding(nn.Module):
    """The positional encoding with 60 rows by default, its buffer named ``pe``.

    Args:
      d_model: number of columns; an odd one raises.
      dropout: the chance of a zero in training.
      max_len: number of rows.
    """

    pe: Float[Tensor, "1 max_len d_model"]

    def __init__(self, d_model: int, dropout: float, max_len: int = 60) -> None:
        """Build the table."""
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pe", published_table(max_len, d_model))

    def forward(
        self, x: Float[Tensor, "batch seq_len d_model"]
    ) -> Float[Tensor, "batch seq_len d_model"]:
        """Add the first rows, and drop."""
        return self.dropout(x + self.pe[:, : x.size(1)])


class LongPositionalEncoding(nn.Module):
    """The positional encoding with 5,000 rows by default, its buffer named ``pe``.

    Args:
      d_model: number of columns; an odd one raises.
      dropout: the chance of a zero in training.
      max_len: number of rows.
    """

    pe: Float[Tensor, "1 max_len d_model"]

    def __init__(self, d_model: int, dropout: float, max_len: int = 5000) -> None:
        """Build the table."""
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        self.register_buffer("pe", published_table(max_len, d_model))

    def forward(
        self, x: Float[Tensor, "batch seq_len d_model"]
    ) -> Float[Tensor, "batch seq_len d_model"]:
        """Add the first rows, and drop."""
        return self.dropout(x + self.pe[:, : x.size(1)].requires_grad_(False))


def published_table(max_len: int, d_model: int) -> Float[Tensor, "1 max_len d_model"]:
    """Build the table in the default dtype, as both spellings do.

    Args:
      max_len: number of rows.
      d_model: number of columns.

    Raises:
      RuntimeError: if ``d_model`` is odd: as many cosines as sines do not fit.

    Source: the articles; Vaswani et al. 2017, section 3.5, for the formula.
    """
    pe = torch.zeros(max_len, d_model)
    position = torch.arange(0.0, max_len).unsqueeze(1)
    div_term = torch.exp(torch.arange(0.0, d_model, 2) * (-math.log(10000.0) / d_model))
    pe[:, 0::2] = torch.sin(position * div_term)
    pe[:, 1::2] = torch.cos(position * div_term)
    return pe.unsqueeze(0)
