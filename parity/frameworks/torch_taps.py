"""PyTorch: what every submodule of a model returns, and what its dropout keeps."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from parity.frameworks.torch_side import to_real_numpy
from parity.trees import leaves

# Those that multiply by zero or by 1 / (1 - p).
DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


@contextmanager
def tapped(model: Any, masks: dict[str, Tensor]) -> Iterator[dict[str, np.ndarray]]:
    """Collect what every submodule returns; a later call of one gets "#2" and so on.

    Args:
      model: a function has no submodules.
      masks: of dropout, by the same names: those that are there are used, others are added.
    """
    taps: dict[str, np.ndarray] = {}
    calls: dict[str, int] = {}
    before: dict[str, tuple[Tensor, Tensor]] = {}

    def hooks(path: str) -> tuple[Callable[..., None], Callable[..., Any]]:
        def begin(module: nn.Module, places: Any, named: Mapping[str, Any]) -> None:
            if isinstance(module, DROPOUT):
                # A copy: dropout may work in place.
                given = (*places, *named.values())[0].clone()
                before[path] = given, torch.get_rng_state()

        def end(module: nn.Module, places: Any, named: Any, result: Any) -> Any:
            calls[path] = calls.get(path, 0) + 1
            name = f"{path or 'module'}#{calls[path]}" if calls[path] > 1 else path or "module"
            if isinstance(module, DROPOUT) and module.training and module.p > 0:
                masks[name] = _drawn(module, *before[path])
            elif name in masks:
                result = _dropped(module, before[path][0], masks[name])
            for inner, leaf in leaves(result) if path else ():
                if isinstance(leaf, Tensor):
                    taps[f"{name}/{inner}" if inner else name] = to_real_numpy(leaf)
            return result

        return begin, end

    with ExitStack() as stack:
        for path, module in model.named_modules() if isinstance(model, nn.Module) else ():
            begin, end = hooks(path)
            stack.callback(module.register_forward_pre_hook(begin, with_kwargs=True).remove)
            stack.callback(module.register_forward_hook(end, with_kwargs=True).remove)
        yield taps


def _drawn(module: Any, given: Tensor, state: Tensor) -> Tensor:
    """Return what a module has kept: it draws again, for ones, from where it drew."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.set_rng_state(state)
        return module.forward(torch.ones_like(given)) != 0


def _dropped(module: Any, given: Tensor, mask: Tensor) -> Tensor:
    return given * (mask / (1 - module.p) if module.p < 1 else mask).to(given.dtype)
