"""Parity of a port with its reference: who is off, by how much, where, and why.

``check`` holds a port against its PyTorch reference and says what to write instead, ``convert``
moves weights, ``compare`` holds arrays and trees against one another, ``record`` keeps what a
PyTorch reference computes; ``parity run`` is the suite of this repository.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parity.check_report import CheckReport
    from parity.checking import check
    from parity.comparison import ParityError, Report, compare
    from parity.model_recording import record
    from parity.pair import Pair
    from parity.weights import MappingError, convert

__all__ = [
    "CheckReport",
    "MappingError",
    "Pair",
    "ParityError",
    "Report",
    "check",
    "compare",
    "convert",
    "record",
]

_HOMES = {
    "CheckReport": "check_report",
    "MappingError": "weights",
    "Pair": "pair",
    "ParityError": "comparison",
    "Report": "comparison",
    "check": "checking",
    "compare": "comparison",
    "convert": "weights",
    "record": "model_recording",
}


def __getattr__(name: str) -> Any:
    """Load NumPy with the first name that needs it: ``parity --help`` has none (0.2 s less)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"parity.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
