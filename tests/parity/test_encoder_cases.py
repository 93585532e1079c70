"""The encoder's cases: the float64 companion, its errors, and ceilings that are worth it."""

import numpy as np
import pytest

from parity.cases import attention, encoder, layers, masks
from parity.cases import running_error as tape
from parity.cases.encoder_expected import DEVIATIONS, expected
from parity.cases.encoder_problem import Problem
from parity.cases.encoder_problem import masks as every_mask
from parity.cases.encoder_steps import activated, half_weights, normalised, softmax
from parity.cases.running_error import given
from parity.cases.sides import COTANGENT
from parity.runner import Setting, run

torch = pytest.importorskip("torch")

CASES = {case.id: case for module in (masks, attention, layers, encoder) for case in module.cases()}
# One compiled program each; `parity run --all` has the others.
SHOWN = (
    "attention/multi_head[hidden row, float32]",
    "layers/layer_norm[annotated, float32, jit]",
    "layers/feed_forward[gelu_tanh, float32, jit]",
    "layers/dropout[rate 1, post, relu, padding, float32, jit]",
    "encoder/encoder[post, gelu, padding, float16]",
)


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def wide(problem):
    arrays = problem.arrays()
    return {n: a if n == "mask" else a.astype(np.float64) for n, a in arrays.items()}


# The companion is the function that it stands for, and its tape the derivative.


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("mask", ["no mask", "padding", "hidden row"])
def test_the_companion_is_the_twin_in_float64(norm, activation, mask):
    problem = Problem(norm=norm, activation=activation, mask=mask)
    case = encoder._twin(problem)
    found = case.reference(wide(problem))
    exact = expected(problem, problem.arrays())
    assert found.keys() == exact.keys()
    for name, tensor in exact.items():
        # The ceiling is of float32; float64's own is 2**-29 of that, and both sides have one.
        assert found[name].dtype == np.float64
        bound = 2 * 2.0**-29 * tensor.ceiling + 2.0**-52 * np.abs(tensor.exact)
        assert np.all(np.abs(found[name] - tensor.exact) <= bound), name


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_companion_is_torchs_own_in_float64(norm):
    problem = Problem(norm=norm, activation="gelu", dtype="float64")
    given = wide(Problem(norm=norm, activation="gelu"))
    found = encoder._own(problem).reference(given)
    exact = expected(Problem(norm=norm, activation="gelu"), given)
    for name, values in found.items():
        bound = 2 * 2.0**-29 * exact[name].ceiling + 2.0**-52 * np.abs(exact[name].exact)
        assert np.all(np.abs(values - exact[name].exact) <= bound), name


# Each step's error is what its derivative makes of an error of the input, checked by moving it.

STEPS = {
    "softmax": lambda x: softmax(x, None),
    "masked softmax": lambda x: softmax(x, np.arange(6) < 4),
    "standard": lambda x: normalised(x, 1e-5, "standard"),
    "annotated": lambda x: normalised(x, 1e-5, "annotated"),
    "relu": lambda x: activated(x, "relu"),
    "gelu": lambda x: activated(x, "gelu"),
    "gelu_tanh": lambda x: activated(x, "gelu_tanh"),
    "product": lambda x: tape.product("ij,kj->ik", x, x, "float32"),
}


def slope_along(step, x, cotangent, direction):
    node = given(x)
    (slope,) = tape.gradients(step(node), given(cotangent), [node])
    return np.sum(slope.value * direction)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_has_the_derivative_of_its_values(name):
    step, x = STEPS[name], random(3, 6)
    cotangent, direction, h = (
        random(*step(given(x)).value.shape, seed=1),
        random(3, 6, seed=2),
        1e-5,
    )
    ahead, behind = (step(given(x + sign * h * direction)).value for sign in (1, -1))
    told = slope_along(step, x, cotangent, direction)
    # The third derivatives of all of these are below 100: h**2 times that, and what 2 h divides
    # the roundings of 18 numbers by.
    assert abs(np.sum((ahead - behind) * cotangent) / (2 * h) - told) < 100 * h**2 + 1e-9


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("what", ["value", "gradient"])
def test_the_variance_is_that_of_many_trials(name, what):
    """Of inputs that are off by so much that the step's own error is small beside it."""
    step, x, off = STEPS[name], random(3, 6), 1e-4
    cotangent = random(*step(given(x)).value.shape, seed=1)

    def outcome(node):
        y = step(node)
        return y if what == "value" else tape.gradients(y, given(cotangent), [node])[0]

    trials = [outcome(given(x + off * random(3, 6, seed=seed))).value for seed in range(300)]
    measured = np.std(trials, axis=0)
    told = np.sqrt(outcome(given(x, off)).variance)
    # 300 trials tell a deviation to 4 %. Errors with a source in common count as if they had none,
    # here at most twice too little.
    assert np.all(measured <= 2.2 * told + 1e-12)
    assert np.all(told <= 12 * np.max(measured))


def test_what_nothing_flows_into_has_no_error():
    weights = softmax(given(random(2, 6)), np.zeros((2, 6), bool))
    assert not weights.value.any()
    assert not weights.variance.any()
    assert not half_weights(weights, "bfloat16").value.any()


def test_a_value_near_the_kink_of_relu_may_have_either_slope():
    x = given(np.array([1e-6, 1.0]), np.array([1e-6, 1e-6]))
    (slope,) = tape.gradients(activated(x, "relu"), given(np.ones(2)), [x])
    assert slope.variance.tolist() == [1.0, 0.0]


# The cases, and what they catch.


def test_every_mask_differs_from_no_mask_and_from_the_others():
    shown = {name: mask for name, mask in every_mask().items() if mask is not None}
    wholes = [np.broadcast_to(mask, (2, 2, 7, 7)).tobytes() for mask in shown.values()]
    assert len(set(wholes)) == len(wholes)
    assert all(np.any(mask) and not np.all(mask) for mask in shown.values())


@pytest.mark.parametrize("case_id", SHOWN)
def test_a_case_passes_and_its_ceilings_are_near_what_is_seen(case_id):
    case = CASES[case_id]
    tensors = case.expected()
    for row in run([case], Setting()):
        assert row.passed, row
        seen = max(row.port_error, row.reference_error)
        ceiling = float(np.max(tensors[row.tensor].ceiling))
        # A hundred times what is seen would catch little; six deviations are some twenty.
        assert ceiling <= 100 * seen or seen == 0, (row.tensor, ceiling, seen)


def test_a_gradient_is_asked_for_wherever_no_kink_decides_it():
    without = {name for name, case in CASES.items() if COTANGENT not in case.inputs()}
    kinds = {name.partition("[")[0] for name in without}
    assert kinds == {
        *("masks/made", "masks/converted", "masks/bias", "attention/dropout", "layers/dropout"),
        *("attention/dot_product", "encoder/encoder", "encoder/torch_nn", "encoder/adamw"),
    }
    assert all("relu" in name for name in without if name.startswith("encoder/enc"))


def test_every_parameter_has_a_gradient_that_tells():
    problem = Problem(activation="gelu")
    tensors = expected(problem, problem.arrays())
    slopes = {name: one for name, one in tensors.items() if name.startswith("gradient/")}
    assert sum(one.exact.size for one in slopes.values()) == (
        problem.arrays()["parameters"].size + problem.arrays()["x"].size
    )
    for name, one in slopes.items():
        rows = one.exact[:-1] if name.endswith("/key") else one.exact
        assert np.all(np.max(np.abs(rows), axis=-1) > np.max(one.ceiling) / DEVIATIONS), name


def test_the_vector_of_parameters_is_cut_and_joined_alike():
    problem = Problem(norm="pre")
    vector = problem.arrays()["parameters"]
    assert np.array_equal(problem.vector(problem.by_layer(problem.leaves(vector))), vector)
    joined = problem.told(vector)
    assert sum(part.size for part in joined.values()) == vector.size
    assert joined["layer.1/attention/key"].shape == (17, 16)
