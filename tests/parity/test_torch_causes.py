"""Which of several mistakes are told (parity.frameworks.torch_causes)."""

import numpy as np
import pytest
import torch

from parity.frameworks import torch_trace
from parity.frameworks.torch_causes import _is_sure
from parity.frameworks.torch_tries import Try
from parity.locate import Status, Step
from parity.mistakes.guess import Guess

RUN = torch_trace.run(
    lambda x: x.tanh().tanh().tanh(), {"0": np.linspace(-1, 1, 4, dtype=np.float32)}
)
KEYS = [*RUN.results]


def lost(*keys):
    """Return what became of the steps, of which some are lost."""
    nothing = np.zeros(0)
    return tuple(
        Status(Step(key, "", "tanh", (), nothing, 0.0), "off" if key in keys else "ok", 0.0, 0)
        for key in KEYS
    )


def attempt(everywhere=False, **options):
    guess = Guess("code", "cause", "fix", lambda: torch.zeros(4), **options)
    return Try(RUN.results[KEYS[0]].call, guess, everywhere)


@pytest.mark.parametrize(
    ("tried", "before", "after", "sure"),
    [
        (attempt(), KEYS, KEYS[1:], False),  # its own step says little
        (attempt(), KEYS, KEYS[2:], True),
        (attempt(everywhere=True), KEYS, (), False),
        (attempt(everywhere=True, change=lambda model: None), KEYS, (), True),
        (attempt(rounds=True), KEYS, KEYS, True),
    ],
)
def test_a_mistake_that_explains_a_part_is_sure_where_what_follows_is_found(
    tried, before, after, sure
):
    assert _is_sure(tried, RUN, lost(*before), lost(*after)) == sure
