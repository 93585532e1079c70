"""One problem for the input part, however it is packed: its arrays, and its terms apart.

A scaled embedding is thirty times the size of a position row, so that a sum hides most faults of
the table. So each term is also compared alone: the rows, the scaled rows, and, with an embedding
of zeros, the rows of the position table.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from parity import exact
from parity.case import Arrays, Tensor
from parity.cases.expected import WIDE, half_ulp, holds, product, rng, rounded, scattered
from parity.cases.sides import COTANGENT, on_jax, on_torch, torch
from parity.formats import round_to

# What has an example along its first axis.
BATCH = ("token_ids", "positions", COTANGENT, "rows", "scale", "table", "sum", "halves")
# The draws of a mask are as they should be: its share, and that examples differ.
DRAWN = holds(2)
_MASKS = {
    "right": [[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0]],
    "left": [[1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 1]],
    "everywhere": [[0, 0, 0, 0, 0, 0, 0]],
    "nowhere": [[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]],
}


@dataclass(frozen=True, eq=False)
class Problem:
    """What the input part is given.

    Attributes:
      token_ids: int32 ``[batch, seq_len]``.
      embedding: float32 ``[vocab_size, d_model]``.
      positions: int32 ``[batch, seq_len]``, or None for 0, 1, ...
      padding_idx: the padding token.
      dtype: of the position table and of the result.
    """

    token_ids: np.ndarray
    embedding: np.ndarray
    positions: np.ndarray | None
    padding_idx: int
    dtype: str

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arguments by keyword."""
        given = {"token_ids": self.token_ids, "embedding": self.embedding}
        return given if self.positions is None else {**given, "positions": self.positions}

    @property
    def differentiated(self) -> dict[str, np.ndarray]:
        """The arguments, and a random cotangent of the result."""
        return {**self.arrays, COTANGENT: self.cotangent}

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes that a module is built with."""
        vocab_size, d_model = self.embedding.shape
        return {"vocab_size": vocab_size, "d_model": d_model, "max_len": 64}

    @property
    def cotangent(self) -> np.ndarray:
        """A random cotangent of the result."""
        shape = (*self.token_ids.shape, self.embedding.shape[1])
        return round_to(rng(7).normal(size=shape), self.dtype)


def problem(dtype: str, padding: str = "right") -> Problem:
    """Make one whose padding row is not zero; with positions if that is left or everywhere."""
    random = rng(8)
    mask = np.array(_MASKS[padding], bool)
    token_ids = np.where(mask, random.integers(1, 19, size=mask.shape), 0).astype(np.int32)
    counted = np.where(mask, np.cumsum(mask, axis=1) - 1, 0).astype(np.int32)
    # sqrt(48) is no power of two, so that a missing rounding shows.
    embedding = random.normal(size=(19, 48)).astype(np.float32)
    return Problem(
        token_ids, embedding, counted if padding in ("left", "everywhere") else None, 0, dtype
    )


def expected(problem: Problem) -> dict[str, Tensor]:
    """Return the exact value of each term, of the sum, and of the gradient."""
    factor = problem.embedding.shape[1] ** 0.5
    rows = problem.embedding.astype(np.float64)[problem.token_ids]
    positions = problem.positions
    if positions is None:
        positions = np.broadcast_to(np.arange(problem.token_ids.shape[1]), problem.token_ids.shape)
    table = exact.sinusoid(positions, problem.embedding.shape[1])
    terms = np.where(
        (problem.token_ids == problem.padding_idx)[..., None],
        0.0,
        problem.cotangent.astype(np.float64) * factor,
    )
    scale = product(rows, factor, problem.dtype)
    named = {
        "rows": rounded(rows, problem.dtype),
        "scale": scale,
        "table": rounded(table, problem.dtype),
        "sum": _sum(scale, rounded(table, problem.dtype), problem.dtype),
        "gradient/embedding": scattered(
            problem.token_ids, terms, len(problem.embedding), "float32"
        ),
    }
    if problem.positions is None:
        named["table"] = replace(named["table"], uniform="every row counts from 0")
    if np.all(problem.token_ids == problem.padding_idx):
        named = {
            name: replace(term, uniform="every token is padding") for name, term in named.items()
        }
    return named


def _sum(scale: Tensor, table: Tensor, dtype: str) -> Tensor:
    values = scale.exact + table.exact
    off = scale.ceiling + table.ceiling
    ceiling = off + half_ulp(np.abs(values) + off, dtype)
    return Tensor(values, ceiling, "the roundings of both terms and of their sum", True)


def kept(problem: Problem, rate: float) -> Tensor:
    """Return what dropout makes of the sum where it keeps it."""
    whole = expected(problem)["sum"]
    factor = 1 / (1 - rate)
    values = whole.exact * factor
    ceiling = whole.ceiling * factor * (1 + 3 * WIDE) + 3 * WIDE * np.abs(values)
    ceiling = ceiling + half_ulp(np.abs(values) + ceiling, problem.dtype)
    return Tensor(values, ceiling, "those of the sum, and of a product", True)


@dataclass(frozen=True)
class Functions:
    """One side's input part.

    Attributes:
      embed: the look-up, of ``(token_ids, embedding, scale)``.
      whole: the input part without dropout, of ``(token_ids, embedding, positions=None)``.
      halves: the same by two modules, one after the other; None where there are none.
    """

    embed: Callable[..., Any]
    whole: Callable[..., Any]
    halves: Callable[..., Any] | None = None

    def terms(self, token_ids: Any, embedding: Any, zeros: Any, **rest: Any) -> dict[str, Any]:
        """Compute each term alone; ``zeros`` is an embedding that adds nothing."""
        named = {
            "rows": self.embed(token_ids, embedding, scale=None),
            "scale": self.embed(token_ids, embedding, scale="sqrt"),
            "table": self.whole(token_ids, zeros, **rest),
        }
        if self.halves is not None:
            named["halves"] = self.halves(token_ids, embedding, **rest)
        return named


def port(side: Functions, *, jit: bool = True) -> Callable[[Arrays], Arrays]:
    """Return what runs a JAX side, term by term, in one program."""
    return on_jax(
        side.whole,
        name="sum",
        others=lambda embedding, **rest: side.terms(
            embedding=embedding, zeros=jnp.zeros_like(embedding), **rest
        ),
        jit=jit,
    )


def reference(side: Functions) -> Callable[[Arrays], Arrays]:
    """Return what runs a PyTorch side, term by term."""
    return on_torch(
        side.whole,
        name="sum",
        others=lambda embedding, **rest: side.terms(
            embedding=embedding, zeros=torch.zeros_like(embedding), **rest
        ),
    )


def table_of(problem: Problem) -> np.ndarray:
    """Return the position table, rounded from the closed form."""
    rows = exact.sinusoid(np.arange(problem.sizes["max_len"]), problem.sizes["d_model"])
    return round_to(rows, problem.dtype)


def drawing(side: Callable[[Arrays], Arrays], rate: float) -> Callable[[Arrays], Arrays]:
    """Return what also says how a JAX side drew what it dropped: see ``DRAWN``."""

    def run(arrays: Arrays) -> Arrays:
        dropped = side(arrays)["dropout"]
        mask = dropped != 0
        sigma = (rate * (1 - rate) / mask.size) ** 0.5
        share = abs(mask.mean() - (1 - rate)) < 5 * sigma
        return {"dropout": dropped, "mask": np.array([share, (mask[0] != mask[1]).any()])}

    return run


def keeping(forward: Callable[..., Any]) -> Callable[[Arrays], Arrays]:
    """Return what runs a PyTorch side in training, with a mask that keeps everything."""

    def run(arrays: Arrays) -> Arrays:
        shape = (*arrays["token_ids"].shape, arrays["embedding"].shape[1])
        masked = {**arrays, "dropout_mask": np.ones(shape, bool)}
        return {**on_torch(forward, name="dropout")(masked), "mask": DRAWN.exact}

    return run
