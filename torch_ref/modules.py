"""``torch.nn`` modules of the input part: they own the state, the pure functions compute."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from torch_ref.checkpoints import restore_table
from torch_ref.embedding import Embeddings, Scale
from torch_ref.inputs import dropout, transformer_input
from torch_ref.positions import add_positions
from torch_ref.requirements import require_dtype, require_one_of, require_rate, require_size
from torch_ref.rounding import narrow, widen
from torch_ref.sinusoidal import PAPER, Sinusoid, sinusoidal_table


class PositionalEncoding(nn.Module):
    """``add_positions`` and ``dropout``, with the table as a buffer that is always right.

    The buffer ``position_table`` is not saved, since it can be built again; it is built anew, not
    cast, when ``.to()`` changes its dtype, and when a module made on the meta device gets memory.
    Default dtype, default device and autocast do not touch its values.

    A state may hold a table, as ``position_table`` or ``pe``, of any number of rows, or none; all
    load, strictly too. A stored table is told apart (``torch_ref.checkpoints``). An exact one is
    rebuilt. One of the published float32 formula is kept, since the model was trained on it: bit
    for bit, continued with exact rows, cast with the module, and from then on saved with it. Any
    other is refused, and so is a state with both names. A strict load of a state without a table
    goes back to the exact one.

    Attributes:
      table_origin: "exact" or "published": what the module adds.
      table_difference: the largest distance of the stored table last loaded from the exact one.

    Args:
      d_model: number of columns.
      max_len: number of rows.
      dropout_rate: the chance of a zero in training.
      dtype: of the table; the sum has the dtype of ``x``.
      sinusoid: the convention.
      published_table: "keep" a published table, or use the "exact" one in its place.

    Raises:
      ValueError, TypeError: as ``sinusoidal_table`` and ``dropout``; on loading as
        ``restore_table``, or if a state has both names.

    Source: Vaswani et al. 2017, section 3.5. Port: ``jax_input.linen.PositionalEncoding``.
    """

    position_table: Float[Tensor, "max_len d_model"]

    def __init__(
        self,
        *,
        d_model: int,
        max_len: int = 5000,
        dropout_rate: float = 0.1,
        dtype: torch.dtype = torch.float32,
        sinusoid: Sinusoid = PAPER,
        published_table: Literal["keep", "exact"] = "keep",
    ) -> None:
        """Check the options and build the state."""
        super().__init__()
        require_dtype("dtype", dtype)
        require_one_of("published_table", published_table, ("keep", "exact"))
        self.d_model = require_size("d_model", d_model)
        self.max_len = require_size("max_len", max_len)
        self.dropout_rate = require_rate("dropout_rate", dropout_rate)
        self.sinusoid = sinusoid
        self.published_table = published_table
        self.table_origin: Literal["exact", "published"] = "exact"
        self.table_difference = 0.0
        self._kept: Tensor | None = None
        table = self._build(dtype, torch.get_default_device())
        self.register_buffer("position_table", table, persistent=False)

    def forward(
        self,
        x: Float[Tensor, "*batch seq_len d_model"],
        positions: Int[Tensor, "*batch seq_len"] | Int[Tensor, " seq_len"] | None = None,
        dropout_mask: Bool[Tensor, "*batch seq_len d_model"] | None = None,
    ) -> Float[Tensor, "*batch seq_len d_model"]:
        """Add the rows; in training drop entries, by ``dropout_mask`` where it is given."""
        x = add_positions(x, self.position_table, positions=positions)
        if not self.training or (self.dropout_rate == 0 and dropout_mask is None):
            return x
        return dropout(x, self.dropout_rate, mask=dropout_mask)

    def _build(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return the table that the module should hold."""
        if device.type == "meta":
            return torch.empty(self.max_len, self.d_model, dtype=dtype, device=device)
        if self._kept is not None:
            return narrow(widen(self._kept), dtype).to(device)
        table = sinusoidal_table(self.max_len, self.d_model, sinusoid=self.sinusoid, dtype=dtype)
        return table.to(device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "PositionalEncoding":
        """Follow every ``.to()``; ``to_empty`` and a cast leave wrong values, so set them right."""
        before = self.position_table
        super()._apply(fn, recurse)
        after = self.position_table
        if before.is_meta or before.dtype != after.dtype:
            self.position_table = self._build(after.dtype, after.device)
        else:
            self.position_table = before.to(after.device)
        return self

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._kept is not None:
            destination[prefix + "position_table"] = self._kept

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        *errors: list[str],
    ) -> None:
        names = [name for name in ("position_table", "pe") if prefix + name in state_dict]
        if len(names) == 2:
            both = " and ".join(f"`{prefix}{name}`" for name in names)
            raise ValueError(
                f"The state holds both {both}, but the module has one table. Delete one of them."
            )
        for name in names:
            self._restore(state_dict.pop(prefix + name), name)
        table, device = self.position_table, self.position_table.device
        assigned = table.is_meta and local_metadata.get("assign_to_params_buffers", False)
        if assigned:  # the parameters leave the meta device with this load, so the table has to
            device = torch.device("cpu")
        if names or assigned:
            self.position_table = self._build(table.dtype, device)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *errors)

    def _restore(self, stored: Tensor, name: str) -> None:
        """Keep a stored table, or note that it is exact, or refuse it."""
        found = restore_table(stored, self.max_len, self.d_model, sinusoid=self.sinusoid, name=name)
        keep = found.origin == "published" and self.published_table == "keep"
        if keep and torch.finfo(stored.dtype).bits < torch.finfo(self.position_table.dtype).bits:
            raise ValueError(
                f"`{name}` holds the published formula in {stored.dtype}, which is too coarse for "
                f"a module of {self.position_table.dtype}. Cast it to {stored.dtype} first, "
                'or build it with published_table="exact".'
            )
        self._kept = found.table if keep else None
        self.table_origin = "published" if keep else "exact"
        self.table_difference = found.difference


class TransformerInput(nn.Module):
    """``transformer_input``: ``Embeddings`` and ``PositionalEncoding`` in one call.

    Its result has the dtype of the position table, so ``.to()`` moves everything.

    Args:
      vocab_size: rows of the embedding.
      d_model: columns of both tables.
      max_len: rows of the position table.
      scale: as in ``embed_tokens``.
      padding_idx: as in ``embed_tokens``; its row is zero at first.
      dropout_rate: the chance of a zero in training.
      dtype: of the position table and of the result.
      param_dtype: of the embedding.
      sinusoid: the convention.
      embedding_init: as in ``Embeddings``.
      published_table: as in ``PositionalEncoding``.

    Raises:
      ValueError, TypeError: as the two modules.

    Source: Vaswani et al. 2017, sections 3.4 and 3.5. Port: ``jax_input.linen.TransformerInput``.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        d_model: int,
        max_len: int = 5000,
        scale: Scale = "sqrt",
        padding_idx: int | None = None,
        dropout_rate: float = 0.1,
        dtype: torch.dtype = torch.float32,
        param_dtype: torch.dtype = torch.float32,
        sinusoid: Sinusoid = PAPER,
        embedding_init: Callable[[Tensor], object] = nn.init.normal_,
        published_table: Literal["keep", "exact"] = "keep",
    ) -> None:
        """Check the options and build the state."""
        super().__init__()
        self.embeddings = Embeddings(
            vocab_size=vocab_size,
            d_model=d_model,
            scale=scale,
            padding_idx=padding_idx,
            param_dtype=param_dtype,
            embedding_init=embedding_init,
        )
        self.positional_encoding = PositionalEncoding(
            d_model=d_model,
            max_len=max_len,
            dropout_rate=dropout_rate,
            dtype=dtype,
            sinusoid=sinusoid,
            published_table=published_table,
        )

    def forward(
        self,
        token_ids: Int[Tensor, "*batch seq_len"],
        positions: Int[Tensor, "*batch seq_len"] | Int[Tensor, " seq_len"] | None = None,
        dropout_mask: Bool[Tensor, "*batch seq_len d_model"] | None = None,
    ) -> Float[Tensor, "*batch seq_len d_model"]:
        """Embed, add, and in training drop, by ``dropout_mask`` where it is given."""
        embeddings, encoding = self.embeddings, self.positional_encoding
        return transformer_input(
            token_ids,
            embeddings.embedding,
            encoding.position_table,
            positions=positions,
            scale=embeddings.scale,
            padding_idx=embeddings.padding_idx,
            dropout_rate=encoding.dropout_rate if encoding.training else 0.0,
            dropout_mask=dropout_mask if encoding.training else None,
        )
