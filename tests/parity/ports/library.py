"""All pairs, by model; Equinox's where it is installed."""

from importlib import import_module
from importlib.util import find_spec

from tests.parity.ports.pair import Pair

MODELS = (
    "mlp",
    "cnn",
    "attention",
    "lstm",
    "gru",
    "encoder_pairs",
    "bert_pairs",
    "embedding",
    "tied",
    "rotary",
    *(["mlp_equinox"] if find_spec("equinox") else []),
)
PAIRS: tuple[Pair, ...] = tuple(
    pair for model in MODELS for pair in import_module(f"tests.parity.ports.{model}").PAIRS
)
