"""A Flax shell against PyTorch's module: forward, gradient, fresh padding row, dropout, halves."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.case import Arrays, Case, Tensor
from parity.cases import problem as problems
from parity.cases.expected import FLOATS, holds
from parity.cases.problem import Functions, Problem, problem
from parity.cases.sides import built, on_jax, torch, torch_dtype, torch_ref

RATE = 0.25


@dataclass(frozen=True)
class Shell:
    """How one framework's modules are called, as functions of arrays.

    Attributes:
      name: of the concept.
      embed: the look-up alone, of ``(problem) -> (token_ids, embedding, scale) -> array``.
      forward: the whole without dropout, ``(problem) -> (token_ids, embedding, positions=None)``.
      halves: the look-up, then the positions, by the two half modules, as ``forward``.
      train: the whole with dropout, as ``forward``.
      fresh: the embedding of a new module, ``(problem) -> array``.
    """

    name: str
    embed: Callable[[Problem], Callable[..., Any]]
    forward: Callable[[Problem], Callable[..., Any]]
    halves: Callable[[Problem], Callable[..., Any]]
    train: Callable[[Problem], Callable[..., Any]]
    fresh: Callable[[Problem], np.ndarray]


def cases(shell: Shell) -> Iterator[Case]:
    """Yield the cases that both frameworks have."""
    for dtype in FLOATS:
        yield _terms(shell, problem(dtype), f"padding right, {dtype}, jit", default=False)
        yield _dropout(shell, dtype, default=dtype == "float32")
    yield _terms(shell, problem("bfloat16", "left"), "padding left, bfloat16, jit")
    left = problem("float32", "left")
    yield _terms(shell, left, "padding left, float32, eager", default=False)
    yield _fresh(shell)


def _terms(shell: Shell, given: Problem, parameters: str, *, default: bool = True) -> Case:
    """Compare the input part term by term, and the look-up and the positions as two modules."""

    def port() -> Callable[[Arrays], Arrays]:
        side = Functions(shell.embed(given), shell.forward(given), shell.halves(given))
        return problems.port(side, jit=parameters.endswith("jit"))

    def reference() -> Callable[[Arrays], Arrays]:
        side = Functions(_torch_embed(given), torch_forward(given), _torch_halves(given))
        return problems.reference(side)

    def expected() -> Mapping[str, Tensor]:
        named = problems.expected(given)
        return {**named, "halves": named["sum"]}

    return Case(
        f"{shell.name}/TransformerInput[{parameters}]",
        given.dtype,
        lambda: given.differentiated,
        built(port),
        built(reference),
        expected,
        default=default,
        batch=problems.BATCH,
    )


def _fresh(shell: Shell) -> Case:
    """Compare new modules: the padding row is zero, the others are drawn from N(0, 1)."""
    given = problem("float32")
    padding_idx, d_model = given.padding_idx, given.embedding.shape[1]

    def look(embedding: np.ndarray) -> Arrays:
        drawn = np.delete(embedding, padding_idx, axis=0)
        sigmas = abs(drawn.mean()) * drawn.size**0.5, abs(drawn.std() - 1) * (2 * drawn.size) ** 0.5
        return {
            "init/padding": embedding[padding_idx],
            "init/normal": np.array([sigma < 5 for sigma in sigmas]),
        }

    def reference(_: Arrays) -> Arrays:
        torch.manual_seed(0)
        module = torch_ref.TransformerInput(**given.sizes, padding_idx=padding_idx)
        return look(module.embeddings.embedding.detach().numpy())

    def expected() -> Mapping[str, Tensor]:
        return {
            "init/padding": Tensor(
                np.zeros(d_model), 0.0, "set to zero", True, uniform="it is zero"
            ),
            "init/normal": holds(2),
        }

    return Case(
        f"{shell.name}/init[float32]",
        "float32",
        dict,
        lambda _: look(shell.fresh(given)),
        reference,
        expected,
    )


def _dropout(shell: Shell, dtype: str, *, default: bool) -> Case:
    """Let the shell draw its mask; PyTorch's module keeps everything."""
    given = problem(dtype, "nowhere")
    return Case(
        f"{shell.name}/dropout[rate {RATE}, {dtype}, jit]",
        dtype,
        lambda: given.arrays,
        problems.drawing(built(lambda: on_jax(shell.train(given), name="dropout")), RATE),
        problems.keeping(lambda **arrays: torch_forward(given, training=True)(**arrays)),
        lambda: {"dropout": problems.kept(given, RATE), "mask": problems.DRAWN},
        default=default,
        drops=("dropout",),
    )


def _torch_embed(given: Problem) -> Callable[..., Any]:
    vocab_size, d_model = given.embedding.shape

    def embed(token_ids: Any, embedding: Any, scale: Any) -> Any:
        module = torch_ref.Embeddings(
            vocab_size=vocab_size,
            d_model=d_model,
            scale=scale,
            padding_idx=given.padding_idx,
            dtype=torch_dtype(given.dtype),
        )
        return torch.func.functional_call(module, {"embedding": embedding}, (token_ids,))

    return embed


def torch_forward(given: Problem, *, training: bool = False) -> Callable[..., Any]:
    """Return PyTorch's module as a function."""
    module = torch_ref.TransformerInput(
        **given.sizes,
        padding_idx=given.padding_idx,
        dropout_rate=RATE,
        dtype=torch_dtype(given.dtype),
    ).train(training)

    def forward(token_ids: Any, embedding: Any, **rest: Any) -> Any:
        parameters = {"embeddings.embedding": embedding}
        return torch.func.functional_call(module, parameters, (token_ids,), rest)

    return forward


def _torch_halves(given: Problem) -> Callable[..., Any]:
    embed = _torch_embed(given)
    encode = torch_ref.PositionalEncoding(
        d_model=given.embedding.shape[1], max_len=64, dtype=torch_dtype(given.dtype)
    ).eval()
    return lambda token_ids, embedding, positions=None: encode(
        embed(token_ids, embedding, "sqrt"), positions
    )
