"""Parity of a port with its reference: who is off, by how much, where, and why.

``compare`` holds arrays and trees against one another, ``record`` keeps what a PyTorch reference
computes; ``parity run`` is the suite of this repository.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parity.comparison import ParityError, Report, compare
    from parity.model_recording import record

__all__ = ["ParityError", "Report", "compare", "record"]


def __getattr__(name: str) -> Any:
    """Load NumPy with the first name that needs it: ``parity --help`` has none (0.2 s less)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from parity import comparison, model_recording

    return getattr(model_recording if name == "record" else comparison, name)


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
