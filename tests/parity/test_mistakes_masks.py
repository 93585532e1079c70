"""Guesses at masks compute what they say, each against a formula of its own."""

import numpy as np
import pytest
import torch

from parity.frameworks.torch_attention import masked
from parity.mistakes.masks import masking
from tests.parity.test_mistakes_attention import (
    BATCH,
    HEADS,
    LENGTH,
    answers,
    draw,
    equal,
    seen,
    softmax,
    written_out,
)

HIDDEN = torch.arange(LENGTH) >= torch.tensor([LENGTH, 3])[:, None, None, None]
CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
HIDE = -1e30


def scores_of(call) -> np.ndarray:
    return call.places[0].numpy()


@pytest.mark.parametrize("form", ["masked_fill", "where", "where not", "add", "masked"])
def test_every_form_of_a_mask_is_read(form: str) -> None:
    x = draw(BATCH, HEADS, LENGTH, LENGTH)
    numbers = torch.zeros(HIDDEN.shape).masked_fill(HIDDEN, -1e9)
    low = torch.tensor(-1e9)
    forms = {
        "masked_fill": ("masked_fill", lambda: x.masked_fill(HIDDEN, -1e9)),
        "where": ("where", lambda: torch.where(~HIDDEN, x, low)),
        "where not": ("where", lambda: torch.where(HIDDEN, -1e9, x)),
        "add": ("add", lambda: x + numbers),
        "masked": ("add", lambda: masked(x, numbers)),
    }
    name, function = forms[form]
    found = masking(seen(name, function))
    assert found is not None
    assert torch.equal(found.keep, ~HIDDEN)
    assert torch.equal(found.scores, x)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("add", lambda: draw(3, 4) + draw(3, 4, seed=1)),
        ("masked_fill", lambda: draw(3, 4).masked_fill(draw(3, 4) > 0, 0.0)),
        ("where", lambda: torch.where(draw(3, 4) > 0, draw(3, 4), torch.tensor(0.0))),
    ],
)
def test_what_is_no_mask_has_no_guesses_of_one(name: str, function) -> None:
    assert masking(seen(name, function)) is None


@pytest.mark.parametrize(
    ("code", "part", "keep"),
    [
        ("mask-polarity", "", HIDDEN),
        ("mask-transposed", "", ~HIDDEN.mT),
        ("mask-causal", "", ~HIDDEN & ~CAUSAL),
    ],
)
def test_other_masks_of_padding(code: str, part: str, keep: torch.Tensor) -> None:
    call = seen("masked_fill", written_out(HIDDEN))
    (ours,) = answers(call, code, part)
    equal(ours, np.where(keep.numpy(), scores_of(call), HIDE))


@pytest.mark.parametrize(
    ("code", "part", "keep"),
    [
        ("mask-causal-missing", "", ~HIDDEN),
        ("mask-padding-missing", "", ~CAUSAL),
        ("mask-causal-reversed", "", ~CAUSAL.mT & ~HIDDEN),
        ("mask-causal-shifted", "itself", torch.ones(LENGTH, LENGTH).tril(-1).bool() & ~HIDDEN),
        ("mask-causal-shifted", "next", torch.ones(LENGTH, LENGTH).tril(1).bool() & ~HIDDEN),
    ],
)
def test_other_causal_masks(code: str, part: str, keep: torch.Tensor) -> None:
    call = seen("masked_fill", written_out(HIDDEN | CAUSAL))
    (ours,) = answers(call, code, part)
    equal(ours, np.where(keep.numpy(), scores_of(call), HIDE))


def test_masks_of_numbers_added_multiplied_and_left_out() -> None:
    call = seen("masked_fill", written_out(HIDDEN))
    plain, turned = answers(call, "mask-added")
    equal(plain, scores_of(call) + ~HIDDEN.numpy())
    equal(turned, scores_of(call) + HIDDEN.numpy())
    (product,) = answers(call, "mask-multiplied")
    equal(product, scores_of(call) * ~HIDDEN.numpy())
    (missing,) = answers(call, "mask-missing")
    equal(missing, scores_of(call))


def test_a_mask_of_numbers_that_the_port_is_given_too_is_read_as_truth_values() -> None:
    x, numbers = draw(BATCH, HEADS, LENGTH, LENGTH), torch.zeros(HIDDEN.shape)
    numbers = numbers.masked_fill(HIDDEN, -1e9)[:, 0, 0]
    viewed = seen("add", lambda: x + numbers[:, None, None].to(x.dtype))
    (ours,) = answers(viewed, "additive-mask-as-bool")
    equal(ours, np.where(HIDDEN.numpy(), x.numpy(), HIDE))
    computed = seen("add", lambda: x + torch.zeros(HIDDEN.shape).masked_fill(HIDDEN, -1e9))
    assert not answers(computed, "additive-mask-as-bool")


def test_a_mask_after_softmax() -> None:
    call = seen("softmax", written_out(HIDDEN))
    zeroed = answers(call, "mask-after-softmax", "no longer sum")[0]
    bare = seen("softmax", written_out())
    equal(zeroed, softmax(scores_of(bare)) * ~HIDDEN.numpy())


def test_a_query_that_sees_nothing_is_guessed_only_where_there_is_one() -> None:
    assert not answers(seen("softmax", written_out(HIDDEN)), "mask-all-hidden")
    none = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    (ours,) = answers(seen("softmax", written_out(none)), "mask-all-hidden")
    equal(ours, np.full((BATCH, HEADS, LENGTH, LENGTH), 1 / LENGTH))
