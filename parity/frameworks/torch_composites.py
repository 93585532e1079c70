"""PyTorch: the functions that are taken apart, so that what they compute inside can be seen."""

from collections.abc import Callable
from typing import Any

from parity.frameworks.torch_attention import (
    multi_head_attention_forward,
    scaled_dot_product_attention,
)
from parity.frameworks.torch_norms import batch_norm, instance_norm
from parity.frameworks.torch_recurrent import (
    gru_cell,
    lstm_cell,
    one_step,
    recurrent,
    rnn_cell,
    rnn_relu_cell,
)

COMPOSITES: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "multi_head_attention_forward": multi_head_attention_forward,
    "batch_norm": batch_norm,
    "instance_norm": instance_norm,
    "lstm": recurrent(lstm_cell),
    "gru": recurrent(gru_cell),
    "rnn_tanh": recurrent(rnn_cell),
    "rnn_relu": recurrent(rnn_relu_cell),
    "lstm_cell": one_step(lstm_cell),
    "gru_cell": one_step(gru_cell),
    "rnn_tanh_cell": one_step(rnn_cell),
    "rnn_relu_cell": one_step(rnn_relu_cell),
}
