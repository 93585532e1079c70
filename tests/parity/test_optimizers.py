"""Optimizer steps: the exact rules, each wrong one provoked through its case, the split drift."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from parity.case import Tensor
from parity.cases import optimizers, stepping
from parity.cases.optimizer_rules import Adam, Sgd, follow, mistakes
from parity.causes import likely_cause
from parity.judging import compare_tensor
from parity.rows import Label
from parity.runner import Setting, run

CASES = {case.id: case for case in optimizers.cases()}
SGD = "optimizers/sgd[momentum 0.9, weight decay 0.1, float32, jit]"
ADAM = "optimizers/adam[float32, jit]"
ADAMW = "optimizers/adamw[weight decay 0.1, float32, jit]"
END_TO_END = "optimizers/sgd_end_to_end[momentum 0.9, float32, jit]"

RULES = {
    "sgd": Sgd(0.01, 0.9, weight_decay=0.1),
    "sgd nesterov": Sgd(0.01, 0.9, weight_decay=0.1, nesterov=True),
    "adam": Adam(0.01),
    "adam, other numbers": Adam(0.3, b1=0.7, b2=0.95, eps=1e-3),
    "adam, decay in the gradient": Adam(0.01, weight_decay=0.1, decay="in the gradient"),
    "adamw": Adam(0.01, weight_decay=0.1),
}


def wide_problem():
    return {name: array.astype(np.float64) for name, array in optimizers.problem().items()}


def rows_of(case):
    found = list(run([case], Setting()))
    assert not any(row.trace for row in found), found
    return {row.tensor: row for row in found}


def with_port(case, transform):
    return replace(CASES[case], port=stepping.on_optax(lambda: transform))


# The exact rules.


def torch_class(rule, parameters):
    if isinstance(rule, Sgd):
        return torch.optim.SGD(
            [parameters],
            lr=rule.rate,
            momentum=rule.momentum,
            weight_decay=rule.weight_decay,
            nesterov=rule.nesterov,
        )
    make = torch.optim.AdamW if rule.decay == "before" else torch.optim.Adam
    betas = (rule.b1, rule.b2)
    return make(
        [parameters], lr=rule.rate, betas=betas, eps=rule.eps, weight_decay=rule.weight_decay
    )


def by_torch_class(rule, arrays):
    parameters = torch.tensor(arrays["parameters"], requires_grad=True)
    optimizer, after = torch_class(rule, parameters), []
    for gradient in arrays["gradients"]:
        parameters.grad = torch.tensor(gradient)
        optimizer.step()
        after.append(parameters.detach().numpy().copy())
    held = optimizer.state[parameters]
    names = {"momentum": "momentum_buffer", "mu": "exp_avg", "nu": "exp_avg_sq", "count": "step"}
    return after, {ours: held[name].numpy() for ours, name in names.items() if name in held}


@pytest.mark.parametrize("name", RULES)
def test_the_rules_are_those_of_torch_in_float64(name):
    arrays = wide_problem()
    after, held = by_torch_class(RULES[name], arrays)
    states = follow(RULES[name], arrays["parameters"], arrays["gradients"])
    for state, parameters in zip(states, after, strict=True):
        np.testing.assert_allclose(state["parameters"], parameters, rtol=1e-14, atol=1e-15)
    assert held.keys() == states[-1].keys() - {"parameters"}
    for key, value in held.items():
        np.testing.assert_allclose(states[-1][key], value, rtol=1e-14, atol=1e-24)


@pytest.mark.parametrize("name", [name for name in RULES if "decay in" not in name])
def test_the_rules_are_those_of_optax_in_float64(name):
    arrays = wide_problem()
    states = follow(RULES[name], arrays["parameters"], arrays["gradients"])
    with jax.enable_x64(True):
        found = stepping.on_optax(lambda: stepping.in_optax(RULES[name]))(arrays)
    for step, state in enumerate(states, start=1):
        ours = found[f"parameters/{step}"]
        np.testing.assert_allclose(state["parameters"], ours, rtol=1e-14, atol=1e-14)
    for key in states[-1].keys() - {"parameters"}:
        np.testing.assert_allclose(states[-1][key], found[f"state/{key}"], rtol=1e-14, atol=1e-24)


@pytest.mark.parametrize("name", RULES)
def test_the_reference_has_the_bits_of_torchs_classes(name):
    arrays = optimizers.problem()
    after, held = by_torch_class(RULES[name], arrays)
    found = stepping.on_torch(RULES[name])(arrays)
    for step, parameters in enumerate(after, start=1):
        np.testing.assert_array_equal(found[f"parameters/{step}"], parameters)
    for key, value in held.items():
        np.testing.assert_array_equal(found[f"state/{key}"], value)


# What is wrong, provoked through the cases.


def adam_direction(direction):
    """Build an Adam of rate 0.01 whose update is ``direction(mu, nu, count)``."""

    def update(gradient, state, parameters=None):
        count, mu, nu = state.count + 1, state.mu, state.nu
        mu, nu = 0.9 * mu + 0.1 * gradient, 0.999 * nu + 0.001 * gradient**2
        return direction(mu, nu, count), optax.ScaleByAdamState(count, mu, nu)

    scale = optax.GradientTransformation(optax.scale_by_adam().init, update)
    return optax.chain(scale, optax.scale(-0.01))


def eps_unscaled(mu, nu, count):
    second = jnp.sqrt(1 - 0.999**count)
    return mu / (1 - 0.9**count) * second / (jnp.sqrt(nu) + 1e-8)


def decayed_after(updates, parameters):
    return jax.tree.map(lambda u, p: (p + u) * (1 - 0.01 * 0.1) - p, updates, parameters)


WRONG = [
    (SGD, optax.sgd(0.01, 0.9), "no weight decay"),
    (
        SGD,
        optax.chain(optax.trace(0.9), optax.add_decayed_weights(0.1), optax.scale(-0.01)),
        "weight decay outside the momentum",
    ),
    (
        SGD,
        optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.01, 0.9, nesterov=True)),
        "Nesterov's momentum",
    ),
    (
        SGD,
        optax.chain(
            optax.add_decayed_weights(0.1),
            optax.scale(1 - 0.9),
            optax.trace(0.9),
            optax.scale(-0.01),
        ),
        "momentum damped by 1 - momentum",
    ),
    (ADAM, optax.adam(0.01, eps=0.0, eps_root=1e-8), "eps inside the root"),
    (ADAM, adam_direction(eps_unscaled), "eps added before the bias correction"),
    (ADAM, adam_direction(lambda mu, nu, _: mu / (jnp.sqrt(nu) + 1e-8)), "no bias correction"),
    (ADAMW, optax.adam(0.01), "no weight decay"),
    (
        ADAMW,
        optax.chain(optax.add_decayed_weights(0.1), optax.adam(0.01)),
        "weight decay in the gradient",
    ),
    (
        ADAMW,
        optax.chain(optax.adam(0.01), optax.stateless(decayed_after)),
        "weight decay after the update",
    ),
]


@pytest.mark.parametrize(("case", "transform", "cause"), WRONG, ids=[wrong[2] for wrong in WRONG])
def test_a_wrong_rule_of_the_port_is_named(case, transform, cause):
    rows = rows_of(with_port(case, transform))
    failed = {name: row for name, row in rows.items() if not row.passed}
    # Before there is a momentum, what is outside of it makes no difference.
    first = set() if "outside the momentum" in cause else {"parameters/1"}
    assert {*first, "parameters/2", "parameters/3"} <= failed.keys()
    # The momentum alone can't tell a weight decay outside of it from none.
    told = {row.cause for name, row in failed.items() if name != "state/momentum"}
    assert told == {cause}
    assert all(row.cause for row in failed.values())
    assert {row.verdict for row in failed.values()} == {"the port is off"}


def test_every_mistake_is_provoked():
    known = {name for rule in RULES.values() for name in mistakes(rule)}
    assert {cause for _, _, cause in WRONG} | {"bias correction in float32"} == known


def test_a_wrong_rule_of_the_reference_is_named():
    wrong = Adam(0.01, weight_decay=0.1, decay="in the gradient")
    rows = rows_of(replace(CASES[ADAMW], reference=stepping.on_torch(wrong)))
    failed = {name: row for name, row in rows.items() if not row.passed}
    assert {"parameters/1", "parameters/2", "parameters/3", "state/mu"} <= failed.keys()
    assert {row.cause for row in failed.values()} == {"weight decay in the gradient"}
    assert {row.verdict for row in failed.values()} == {"torch is the side that is off"}


@pytest.mark.parametrize("case", [case for case in CASES if case not in (SGD, ADAM, ADAMW)])
def test_a_case_that_is_not_run_by_default_passes(case):
    assert all(row.passed for row in rows_of(CASES[case]).values())


@pytest.mark.parametrize("case", [SGD, ADAM, ADAMW, END_TO_END])
def test_a_ceiling_catches_twice_itself_on_both_sides(case):
    """Where both are off alike, neither is off by a multiple of the other: the ceiling decides."""
    for name, expected in CASES[case].expected().items():
        if expected.exact.dtype != np.float64:
            continue
        right = expected.exact.astype(np.float32)
        assert compare_tensor(Label(case, name), right, right, expected).passed
        shifted = (expected.exact + 2 * expected.ceiling).astype(np.float32)
        row = compare_tensor(Label(case, name), shifted, shifted, expected)
        assert not row.passed, name


@pytest.mark.parametrize("case", [SGD, ADAM, ADAMW, END_TO_END])
def test_a_mistake_that_both_sides_make_is_above_the_ceiling(case):
    expected = CASES[case].expected()["parameters/3"]
    assert expected.mistakes
    for name, values in expected.mistakes.items():
        both = values.astype(np.float32)
        row = compare_tensor(Label(case, "parameters/3"), both, both, expected)
        # The float32 correction is what optax has: the ceiling allows it.
        assert row.passed == (name == "bias correction in float32"), name


def test_optax_corrects_the_bias_in_float32():
    """Where the parameters are zero, they are the update, and its error is no longer hidden."""
    rule = Adam(0.01)
    arrays = {**optimizers.problem(), "parameters": np.zeros((7, 12), np.float32)}
    found = stepping.on_optax(lambda: stepping.in_optax(rule))(arrays)["parameters/1"]
    (exact,) = follow(rule, arrays["parameters"], arrays["gradients"][:1])
    wrong = {
        name: follow(other, arrays["parameters"], arrays["gradients"][:1])[0]["parameters"]
        for name, other in mistakes(rule).items()
    }
    assert likely_cause(found, exact["parameters"], wrong) == "bias correction in float32"
    off = np.abs(found[1:] / exact["parameters"][1:] - 1)
    assert 6e-6 < off.max() < 7e-6
    theirs = stepping.on_torch(rule)(arrays)["parameters/1"]
    assert np.abs(theirs[1:] / exact["parameters"][1:] - 1).max() < 3e-7


# The drift, split.


def end_to_end(transform, gradient):
    side = stepping.on_optax(lambda: transform, gradient)
    return replace(CASES[END_TO_END], port=optimizers.drifting(Sgd(0.01), side))


def test_end_to_end_a_wrong_gradient_is_not_the_formulas_fault():
    def off(parameters, **given):
        return optimizers.port_gradient(parameters, **given) * (1 + 1e-4)

    rows = rows_of(end_to_end(optax.sgd(0.01, 0.9), off))
    assert not rows["drift/gradient"].passed
    assert not rows["gradient/1"].passed
    assert rows["drift/formula"].passed


def test_end_to_end_a_wrong_formula_is_named():
    rows = rows_of(end_to_end(optax.sgd(0.01, 0.9, nesterov=True), optimizers.port_gradient))
    assert rows["gradient/1"].passed
    assert not rows["drift/formula"].passed
    assert rows["drift/formula"].cause == "Nesterov's momentum"
    assert rows["parameters/3"].cause == "Nesterov's momentum"


# How a mistake is chosen.


def test_of_two_mistakes_that_fit_the_nearer_is_named():
    exact = np.arange(6.0)
    ulp = 2.0**-21
    guesses = {"far": exact * 2 + 3 * ulp, "near": exact * 2, "none": exact * 3}
    assert likely_cause((exact * 2).astype(np.float32), exact, guesses) == "near"
    assert likely_cause((exact * 2).astype(np.float32), exact, {"none": exact * 3}).startswith(
        "every value is 2 times"
    )


def test_a_mistake_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"`mistakes\['x'\]` has shape \(3,\), `exact` \(2,\)"):
        Tensor(np.arange(2.0), 1.0, "made up", same_bits=False, mistakes={"x": np.zeros(3)})
