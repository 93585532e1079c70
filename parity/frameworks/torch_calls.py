"""PyTorch: a call of a function that a reference makes, and what it returned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

# What moves, selects or drops values rounds none of them.
_MOVES = """
    transpose permute reshape view flatten unflatten squeeze unsqueeze expand chunk split unbind
    getitem contiguous detach clone t swapaxes movedim cat stack concat roll flip to type double
    expand_as view_as select narrow tensor_split repeat gather index_select pad zeros ones full
    zeros_like ones_like relu dropout masked_fill where embedding max_pool1d max_pool2d max_pool3d
    abs neg amax amin split_heads merge_heads masked in_time sequence lstm_gates last_state
    attention_inputs repeat_heads repeat_interleave
"""
_EXACT = frozenset(_MOVES.split())


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a function, as the reference made it.

    Attributes:
      name: of the function: "gelu", "add", "layer_norm".
      module: path of the innermost submodule that made it.
      key: tells it from every other call of the run.
      function: what computes it.
      places: what it was given by place.
      named: what it was given by keyword.
      sources: the results that it was given.
      results: all that the run has computed so far, by key.
      weights: all of the reference, by name.
      mutates: whether it may write into its first tensor, of which it has a copy then.
    """

    name: str
    module: str
    key: str
    function: Callable[..., Any]
    places: tuple[Any, ...]
    named: Mapping[str, Any]
    sources: tuple[str, ...]
    results: Mapping[str, Result]
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    mutates: bool = False

    def __call__(self, *places: Any, **named: Any) -> Any:
        """Compute it with some of what it was given replaced."""
        given = (*places, *self.places[len(places) :])
        if self.mutates:
            given = kept(given)
        return self.function(*given, **{**self.named, **named})

    def maker(self, value: Any) -> Call | None:
        """Return the call that made a tensor which this one was given, if one did."""
        made = self.results.get(self.source(value))
        return made.call if made is not None else None

    def source(self, value: Any) -> str:
        """Return the key of the result that this one was given as a tensor, "" if it is none."""
        for key in self.sources:
            if key in self.results and self.results[key].tensor is value:
                return key
        is_copy = self.mutates and value is self.places[0] and self.sources
        return self.sources[0] if is_copy and self.sources[0] in self.results else ""


@dataclass(frozen=True, eq=False)
class Result:
    """A floating tensor that a call has returned.

    Attributes:
      call: which one.
      key: that of the call, with its place among several results.
      value: as it was then; a later call may have changed the tensor in place.
      tensor: with its gradient, once there is one.
    """

    call: Call
    key: str
    value: Tensor
    tensor: Tensor


# It returns what the call gives, or NotImplemented to leave it as it is.
Rewrite = Callable[[Call], Any]
# It returns what becomes of the result of a call.
Noise = Callable[[Call, Any], Any]


def is_rounded(call: Call) -> bool:
    """Say whether a call rounds what it returns; one in place counts as none."""
    return call.name not in _EXACT and not is_in_place(call.function)


def is_in_place(function: Any) -> bool:
    """Say whether a function writes into its first argument, by its name."""
    name = getattr(function, "__name__", "")
    return name.endswith("_") and not name.endswith("__")


def kept(places: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what a call is given, with a copy of what it may write into."""
    return (places[0].clone(), *places[1:])


def tensors(values: Any) -> Iterator[Tensor]:
    """Yield all tensors among arguments or results."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for value in values:
            yield from tensors(value)
    elif isinstance(values, Mapping):
        yield from tensors(list(values.values()))
