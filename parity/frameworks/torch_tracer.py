"""PyTorch: the calls that a reference makes, each seen, and answered otherwise where asked for.

Every function of PyTorch that a reference calls, in a module or not, passes through a
`TorchFunctionMode`: what it computes is seen without a change of its code, and a call can be given
the answer that a known mistake would give.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from parity.frameworks.torch_calls import (
    Call,
    Noise,
    Result,
    Rewrite,
    is_in_place,
    kept,
    tensors,
)
from parity.frameworks.torch_composites import COMPOSITES

_NARROW = (torch.float32, torch.bfloat16, torch.float16)
# They can be told to write into what they are given.
_ACTIVATIONS = """
    relu relu6 elu selu celu leaky_relu rrelu hardtanh hardsigmoid hardswish silu mish
    dropout dropout1d dropout2d dropout3d
"""
_FLAGGED = frozenset(_ACTIVATIONS.split())


class Tracer(TorchFunctionMode):
    """Sees all calls of one run."""

    def __init__(
        self,
        *,
        rewrites: Sequence[Rewrite] = (),
        noise: Noise | None = None,
        wide: bool = False,
    ) -> None:
        """Prepare for one run.

        Args:
          rewrites: the first that has an answer to a call gives it.
          noise: what becomes of the result of a call.
          wide: whether a narrower format that is asked for is float64 instead.
        """
        super().__init__()
        self.results: dict[str, Result] = {}
        self._rewrites, self._noise, self._wide = rewrites, noise, wide
        self._modules = [""]
        self._counts: Counter[tuple[str, str]] = Counter()
        self._keys: dict[int, str] = {}
        self._weights: dict[str, Tensor] = {}
        self._busy = False
        self._alive: list[Any] = []  # an id is taken again once its tensor is gone

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Answer a call; attention and recurrent layers are taken apart."""
        name, named = getattr(func, "__name__", "call").strip("_"), dict(kwargs or {})
        if self._busy or name == "get":
            return func(*args, **named)
        if self._wide:
            func, args, named = _widened(func, name, args, named)
        if composite := COMPOSITES.get(name):
            with self:
                result = composite(self.step, *args, **named)
            if result is not NotImplemented:
                return result
        return self.step(name, func, *args, **named)

    def step(self, name: str, function: Callable[..., Any], *places: Any, **named: Any) -> Any:
        """Make one call under a name. What it calls in turn is not seen."""
        self._busy = True
        try:
            return self._step(name, function, places, named)
        finally:
            self._busy = False

    def name(self, named: Mapping[str, Tensor]) -> None:
        """Give keys to what the reference is called with, and to its weights."""
        self._keys |= {id(value): key for key, value in named.items()}
        weights = {key: value for key, value in named.items() if key.startswith("weights/")}
        self._weights |= {key.removeprefix("weights/"): value for key, value in weights.items()}
        self._alive.extend(named.values())

    def key(self, value: Tensor) -> str:
        """Return the key of a result; "" if no call has made it."""
        return self._keys.get(id(value), "")

    def _step(self, name: str, function: Any, places: tuple[Any, ...], named: Any) -> Any:
        module = self._modules[-1]
        self._counts[module, name] += 1
        key = f"{module}:{name}#{self._counts[module, name]}"
        given = list(tensors((places, named)))
        sources = tuple(self._keys[id(value)] for value in given if id(value) in self._keys)
        mutates = _may_write(function, places, named)
        before = kept(places) if mutates else places
        call = Call(
            *(name, module, key, function, before, named),
            *(sources, self.results, self._weights, mutates),
        )
        versions = [value._version for value in given]
        result = self._answer(call, places)
        if "dropout" in name and any(result is value for value in given):
            # Off, it returns what it was given: a step all the same.
            result = result.view_as(result)
        made = [value for value in tensors(result) if value.is_floating_point()]
        self._inherit(given, result, sources)
        is_new = {id(value) for value in made} - {id(value) for value in given}
        if not is_new and versions == [value._version for value in given]:
            return result
        self._alive.append((given, result))
        for part, value in enumerate(made):
            if value.requires_grad and not value.is_leaf:
                value.retain_grad()
            own_key = f"{key}[{part}]" if len(made) > 1 else key
            self._keys[id(value)] = own_key
            self.results[own_key] = Result(call, own_key, value.detach().clone(), value)
        return result

    def _inherit(self, given: list[Tensor], result: Any, sources: tuple[str, ...]) -> None:
        """Let integers and complex numbers, which are no steps, stand for what made them."""
        if not sources:
            return
        known = {id(value) for value in given}
        others = [value for value in tensors(result) if not value.is_floating_point()]
        others = [value for value in others if value.dtype != torch.bool]
        self._alive.append(others)
        first = next((key for key in sources if not key.startswith("weights/")), sources[0])
        self._keys |= {id(value): first for value in others if id(value) not in known}

    def _answer(self, call: Call, places: tuple[Any, ...]) -> Any:
        answers = (rewrite(call) for rewrite in self._rewrites)
        result = next((answer for answer in answers if answer is not NotImplemented), None)
        if result is None:
            result = call.function(*places, **call.named)
        elif call.mutates and isinstance(result, Tensor) and result.shape == places[0].shape:
            result = places[0].copy_(result)
        return self._noise(call, result) if self._noise is not None else result

    @contextmanager
    def following(self, model: Any) -> Iterator[None]:
        """Know which submodule makes a call."""
        with ExitStack() as stack:
            for path, module in model.named_modules() if isinstance(model, nn.Module) else ():
                enter, leave = self._hooks(path)
                stack.callback(module.register_forward_pre_hook(enter).remove)
                stack.callback(module.register_forward_hook(leave).remove)
            yield

    def _hooks(self, path: str) -> tuple[Callable[..., None], Callable[..., None]]:
        def enter(*_: Any) -> None:
            self._modules.append(path)

        def leave(*_: Any) -> None:
            self._modules.pop()

        return enter, leave


def _may_write(function: Any, places: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    """Say whether a call may be one in place: by its name, or since a flag tells it to."""
    name = getattr(function, "__name__", "")
    # Of dropout the flag is the fourth argument, after that of the mode; of others the last.
    at_end = len(places) == 4 if "dropout" in name else len(places) > 1
    has_flag = name in _FLAGGED and at_end and places[-1] is True
    is_given = bool(places) and isinstance(places[0], Tensor)
    by_name = is_in_place(function) or name.startswith("__i")
    return is_given and (by_name or has_flag or named.get("inplace") is True)


def _widened(func: Any, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Ask for float64 where a narrower format is asked for."""
    if name in ("float", "half", "bfloat16"):
        return torch.Tensor.double, args, {}
    wide = {
        key: torch.float64 if value in _NARROW else value
        for key, value in named.items()
        if isinstance(value, torch.dtype)
    }
    return func, tuple(_wide_dtype(value) for value in args), named | wide


def _wide_dtype(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value
