"""PyTorch: dropout that drops nothing, so that two frameworks can be compared with it on.

No two of them draw the same. Where every value is kept and scaled, as it is if it is not dropped,
both sides compute the same; what is dropped is compared by how much is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from parity.frameworks.torch_calls import Call, Result

_KEEPS_OR_DROPS = ("dropout", "dropout1d", "dropout2d", "dropout3d")
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_DRAWS = ("alpha_dropout", "feature_alpha_dropout", "bernoulli", "rand_like", "randn_like", "rand")


def undropped(call: Call) -> Any:
    """Answer a call of dropout as if it had kept everything."""
    rate = rate_of(call)
    if not 0 < rate < 1:
        return NotImplemented
    x = call.places[0] if call.places else call.named["input"]
    return x / (1 - rate)


def rate_of(call: Call) -> float:
    """Return the rate of a call of dropout; 0 if it is another, or off."""
    if call.name not in _KEEPS_OR_DROPS:
        return 0.0
    given = dict(zip(("input", "p", "training"), call.places, strict=False)) | dict(call.named)
    return float(given.get("p", 0.5)) if given.get("training", True) else 0.0


def drawn(results: Iterable[Result]) -> list[tuple[str, int]]:
    """Return where dropout is on, and how many values it keeps or drops on their own."""
    found = []
    for result in results:
        if rate_of(result.call) > 0:
            shape = result.value.shape
            size = result.value.numel() if result.call.name == "dropout" else shape[:2].numel()
            found.append((result.call.module or result.call.name, size))
    return found


def random_call(results: Iterable[Result]) -> str:
    """Return a call that draws otherwise, by module and function; "" if there is none."""
    for result in results:
        call = result.call
        # Those with dropout between their layers are not taken apart, and so are seen as a whole.
        rates = [value for value in call.places if isinstance(value, float)]
        if call.name in _DRAWS or (call.name in _RECURRENT and any(rates)):
            return f"{call.module}: {call.name}".removeprefix(": ")
    return ""
