"""PyTorch: known mistakes of ports, as other answers to the calls of the reference."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from parity.frameworks.torch_calls import Call
from parity.mistakes.activations import activation_mistakes
from parity.mistakes.attention import attention_mistakes
from parity.mistakes.blocks import block_mistakes
from parity.mistakes.convolutions import convolution_mistakes
from parity.mistakes.digits import digit_mistakes
from parity.mistakes.embeddings import embedding_mistakes
from parity.mistakes.guess import Guess
from parity.mistakes.images import image_mistakes
from parity.mistakes.inputs import input_mistakes
from parity.mistakes.linear import linear_mistakes
from parity.mistakes.losses import loss_mistakes
from parity.mistakes.masks import mask_mistakes
from parity.mistakes.norms import norm_mistakes
from parity.mistakes.order import order_mistakes
from parity.mistakes.positions import position_mistakes
from parity.mistakes.recurrent import recurrent_mistakes
from parity.mistakes.reductions import reduction_mistakes
from parity.mistakes.rotary import rotary_mistakes
from parity.mistakes.shapes import shape_mistakes
from parity.mistakes.values import value_mistakes

# The specific ones first: of two that explain a port equally well, the first is named.
MISTAKES = (
    activation_mistakes,
    norm_mistakes,
    linear_mistakes,
    mask_mistakes,
    attention_mistakes,
    rotary_mistakes,
    block_mistakes,
    embedding_mistakes,
    position_mistakes,
    convolution_mistakes,
    image_mistakes,
    recurrent_mistakes,
)
# Of any computation: named where none of the others explains a port.
GENERAL = (
    order_mistakes,
    loss_mistakes,
    reduction_mistakes,
    shape_mistakes,
    value_mistakes,
    digit_mistakes,
    input_mistakes,
)


# What a call of another form than is known here may raise, while its mistakes are looked for.
UNKNOWN = (RuntimeError, ValueError, IndexError, TypeError, AttributeError, KeyError)


def guesses(call: Call) -> Iterator[Guess]:
    """Yield what known mistakes would make of a call."""
    for mistakes in MISTAKES:
        with suppress(*UNKNOWN):
            yield from mistakes(call)
    for mistakes in GENERAL:
        with suppress(*UNKNOWN):
            yield from (replace(guess, is_general=True) for guess in mistakes(call))
