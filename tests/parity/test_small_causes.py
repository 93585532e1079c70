"""Causes of gradients and of running statistics."""

import numpy as np
import pytest

from parity.cause import in_any_layer
from parity.gradient_causes import gradient_causes
from parity.update_causes import biased_variance, update_cause

RANDOM = np.random.default_rng(0)
G, SPOILED = RANDOM.normal(size=(2, 5, 4))
BEFORE, BATCH = RANDOM.uniform(1, 2, 6), RANDOM.uniform(1, 2, 6)


def code(ours, theirs=G):
    causes = gradient_causes({"w": ours}, {"w": theirs}, {"w": 1e-6})
    return causes[0].code if causes else ""


def with_row(values, row):
    changed = G.copy()
    changed[row] = values
    return changed


@pytest.mark.parametrize(
    ("ours", "theirs", "named"),
    [
        (np.zeros_like(G), G, "stop-gradient"),
        (G, with_row(0.0, 2), "padding-row"),
        (with_row(0.0, 2), G, "padding-row"),
        (G / 8, G, "gradient-scale"),
        (with_row(1.0, 2), G, ""),
        (np.where(with_row(0.0, 2) == 0, 1e-9, G + SPOILED), with_row(0.0, 2), ""),
        (G + RANDOM.normal(size=G.shape), G, ""),
    ],
)
def test_a_gradient_that_is_off(ours, theirs, named):
    assert code(ours, theirs) == named


def moved(momentum, batch=BATCH):
    return (1 - momentum) * BEFORE + momentum * batch


@pytest.mark.parametrize(
    ("ours", "named"),
    [
        (moved(0.9), "momentum"),
        (BEFORE, "statistics-fixed"),
        (moved(0.1, BATCH[::-1]), ""),
        (moved(0.1) * (1 + 1e-7), ""),
    ],
)
def test_a_statistic_that_is_off(ours, named):
    cause = update_cause("running_mean", BEFORE, ours, moved(0.1), 0.1)
    assert (cause.code if cause else "") == named


def test_momentum_is_named_as_flax_has_it():
    cause = update_cause("running_mean", BEFORE, moved(0.01), moved(0.1), 0.1)
    assert cause.fix == "nn.BatchNorm(momentum=0.9)"
    assert "keeps 0.99 of it, torch 0.9" in cause.cause


def after(runs, batch):
    kept = 0.9**runs
    return kept * BEFORE + (1 - kept) * batch


def test_a_variance_of_n_is_told_after_several_runs_too():
    ours, theirs = after(3, BATCH * 31 / 32), after(3, BATCH)
    assert biased_variance(BEFORE, ours, theirs, runs=3)
    assert not biased_variance(BEFORE, after(2, BATCH), theirs, runs=3)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("layers.10.norm1", "layers.*.norm1"),
        ("0:linear#12", "*:linear#12"),
        ("0.1.weight", "*.*.weight"),
        ("conv1.weight", "conv1.weight"),
        ("", ""),
    ],
)
def test_a_path_without_the_numbers_of_layers(path, told):
    assert in_any_layer(path) == told


def test_a_variance_of_n_is_told_from_one_that_is_wrong():
    assert biased_variance(BEFORE, moved(0.1, BATCH * 31 / 32), moved(0.1))
    assert not biased_variance(BEFORE, moved(0.1, BATCH[::-1]), moved(0.1))
    assert not biased_variance(BEFORE, moved(0.9), moved(0.1))
