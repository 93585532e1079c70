import jax.numpy as jnp
import numpy as np
import pytest

from jax_input.diagnosis import gradient_report
from jax_input.masks import local_window_mask, padding_mask

PLAIN = {"w": jnp.ones(3)}
LENGTHS = np.array([8, 5])
MASK = np.asarray(padding_mask(np.arange(8) < LENGTHS[:, None]))


def draw_weights(deviation=0.5, *, mask=MASK, seed=0):
    """Weights of two layers, two examples, three heads, of scores of one deviation."""
    scores = deviation * np.random.default_rng(seed).standard_normal((2, 2, 3, 8, 8))
    terms = np.exp(scores - scores.max()) * np.broadcast_to(mask, scores.shape)
    return (terms / np.maximum(terms.sum(axis=-1, keepdims=True), 1e-300)).astype(np.float32)


def found(mask=MASK, **taps):
    report = gradient_report(PLAIN, PLAIN, taps=taps, mask=mask)
    return {(finding.code, finding.place): finding for finding in report.findings}


@pytest.mark.parametrize("deviation", [2e-4, 0.5, 3.0])
@pytest.mark.parametrize("mask", [MASK, MASK & np.asarray(local_window_mask(8, 1))])
def test_heads_that_weigh_tokens_are_left_alone(deviation, mask):
    assert found(mask, attention_weights=draw_weights(deviation, mask=mask)) == {}


def test_a_head_that_attends_nowhere_is_named():
    weights = draw_weights()
    weights[1, :, [0, 2]] = 0
    ((key, finding),) = found(attention_weights=weights).items()
    assert key == ("attends_nowhere", "layers[1].attention_weights")
    assert "heads 0, 2" in finding.symptom
    assert finding.value == 2
    weights[1, :, [0, 2], 0, 0] = 1
    assert found(attention_weights=weights) == {}


def test_a_head_that_attends_to_all_keys_allowed_alike_is_named():
    weights = draw_weights()
    weights[0, :, 1] = draw_weights(0)[0, :, 1]
    ((key, finding),) = found(attention_weights=weights).items()
    assert key == ("attends_everywhere", "layers[0].attention_weights")
    assert "head 1" in finding.symptom


def test_evenness_is_told_by_the_keys_allowed_alone():
    """Without the mask, weights of 0 at hidden keys are a choice of the head."""
    assert len(found(attention_weights=draw_weights(0))) == 2
    assert found(None, attention_weights=draw_weights(0)) == {}


def test_a_query_with_one_key_is_neither_even_nor_saturated():
    mask = np.eye(8, dtype=bool)[None, None]
    assert found(mask, attention_weights=draw_weights(mask=mask)) == {}


@pytest.mark.parametrize(("count", "is_found"), [(39, False), (40, True)])
def test_saturated_queries_are_named_from_their_share(count, is_found):
    """39 and 40 of the 42 queries of each head and pair of examples: 93 and 95.2 %."""
    weights = np.full((1, 1, 1, 42, 8), 1 / 8 + 0.01 * np.arange(-3.5, 4), np.float32)
    weights[..., :count, :] = np.array([0.9993, *[1e-4] * 7], np.float32)
    codes = [code for code, _ in found(None, attention_weights=weights)]
    assert codes == (["saturated"] if is_found else [])


def test_units_that_never_fire_are_named():
    hidden = np.maximum(np.random.default_rng(0).standard_normal((2, 4, 8, 20)), 0)
    hidden = hidden.astype(np.float32)
    assert found(feed_forward_hidden=hidden) == {}
    hidden[1, :, :, :18] = 0
    assert found(feed_forward_hidden=hidden) == {}  # 90 % is the bound itself
    hidden[1, :, :, :19] = 0
    ((key, finding),) = found(feed_forward_hidden=hidden).items()
    assert key == ("dead_units", "layers[1].feed_forward_hidden")
    assert (finding.value, "95% of units" in finding.symptom) == (0.95, True)
    assert found(feed_forward_hidden=hidden[:, :3]) == {}  # 24 tokens tell nothing


POST = ("attention", "attention_sum", "attention_norm", "feed_forward_hidden", "feed_forward")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", POST)
def test_the_first_tap_that_is_not_finite_is_the_place(name, bad):
    random = np.random.default_rng(0)
    taps = {tap: random.standard_normal((2, 2, 8, 16)).astype(np.float32) for tap in POST}
    taps["attention_norm"] = normalised(taps["attention_sum"])
    for tap in POST[POST.index(name) :]:
        taps[tap][1, 0, 0, 0] = bad
    assert next(iter(found(**taps))) == ("not_finite", f"layers[1].{name}")


def normalised(x):
    x = x - x.mean(axis=-1, keepdims=True)
    return x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + 1e-5)


def test_the_order_of_pre_norm_is_told_from_the_values():
    """There the norm comes first, and post-norm would name attention."""
    random = np.random.default_rng(0)
    x, part = random.standard_normal((2, 1, 2, 8, 16)).astype(np.float32)
    taps = {"attention": part, "attention_sum": x + part, "attention_norm": normalised(x)}
    for tap in taps.values():
        tap[0, 0, 0] = np.nan
    assert next(iter(found(**taps))) == ("not_finite", "layers[0].attention_norm")


def test_a_mask_of_other_sizes_is_refused():
    with pytest.raises(ValueError, match=r"here \[2, 3, 8, 8\], with 1 .*got \[2, 1, 1, 7\]"):
        found(MASK[..., :7], attention_weights=draw_weights())
