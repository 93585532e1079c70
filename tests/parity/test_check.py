"""``parity.check``: what it takes, what it says, and when it passes."""

import json

import flax.linen as flax_nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn

import parity
from parity import Pair, ParityError, check

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(4, 6)).astype(np.float32)

pytestmark = pytest.mark.usefixtures("ports_may_broadcast")


class Torch(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


class Linen(flax_nn.Module):
    shift: float = 0.0

    @flax_nn.compact
    def __call__(self, x):
        x = jnp.tanh(flax_nn.Dense(6)(x))
        return flax_nn.Dense(3)(x) + self.shift


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Torch()


def weights(model):
    return {name: value.detach().numpy() for name, value in model.state_dict().items()}


def by_hand(params, x):
    h = jnp.tanh(x @ params["fc1"]["kernel"] + params["fc1"]["bias"])
    return h @ params["fc2"]["kernel"] + params["fc2"]["bias"]


def hand_params(model):
    w = weights(model)
    return {
        name: {"kernel": jnp.asarray(w[f"{name}.weight"].T), "bias": jnp.asarray(w[f"{name}.bias"])}
        for name in ("fc1", "fc2")
    }


def test_a_right_linen_port_passes(model):
    report = check(Linen(), model, X)
    assert report.passed
    assert [row.name for row in report.outputs] == ["output"]
    assert {row.name for row in report.gradients} == {
        *("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "inputs/0")
    }
    assert str(report).startswith("PASS  output within ")
    assert len(report.plan.placements) == 4


def test_a_right_nnx_port_passes_and_is_left_as_it_is(model):
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.fc1, self.fc2 = nnx.Linear(6, 6, rngs=rngs), nnx.Linear(6, 3, rngs=rngs)

        def __call__(self, x):
            return self.fc2(jnp.tanh(self.fc1(x)))

    net = Net(nnx.Rngs(0))
    before = jax.tree.map(np.array, nnx.to_pure_dict(nnx.state(net)))
    assert check(net, model, X).passed
    after = jax.tree.map(np.array, nnx.to_pure_dict(nnx.state(net)))
    jax.tree.map(np.testing.assert_array_equal, before, after)


def test_a_function_with_its_own_parameters(model):
    assert check(by_hand, model, X, params=hand_params(model)).passed


def test_a_function_against_a_function():
    assert check(jnp.sin, torch.sin, X).passed
    report = check(jnp.cos, torch.sin, X, raises=False)
    assert [cause.code for cause in report.causes] == ["sine-cosine-swapped"]


def test_a_difference_raises_with_the_report(model):
    with pytest.raises(ParityError, match=r"^FAIL  output off by 1\.0e-01") as caught:
        check(Linen(shift=0.1), model, X)
    report = caught.value.report
    assert not report.passed
    assert not report.outputs[0].passed
    assert report.outputs[0].error == pytest.approx(0.1, rel=1e-5)


def test_a_report_is_no_truth_value(model):
    with pytest.raises(TypeError, match=r"`report\.passed`"):
        bool(check(Linen(), model, X))


def test_json_is_a_verdict_with_the_hash_of_the_reference(model):
    found = json.loads(check(Linen(shift=0.1), model, X, raises=False).json())
    assert found["verdict"] == "fail"
    assert found["outputs"][0]["passed"] is False
    assert found["overrides"] == {}
    again = json.loads(check(Linen(), model, X).json())
    assert again["verdict"] == "pass"
    assert again["reference"] == found["reference"]
    other = json.loads(check(Linen(), model, X + 1).json())
    assert other["reference"] != found["reference"]


def test_json_holds_what_is_no_number():
    report = check(lambda x: jnp.where(x > 0, x, jnp.nan), torch.relu, X, raises=False)
    assert json.loads(report.json())["verdict"] == "fail"


def test_a_notebook_shows_it(model):
    shown = check(Linen(shift=0.1), model, X, raises=False)._repr_html_()
    assert shown.startswith("<pre")
    assert "&lt;- HERE" in shown


def test_a_wrong_weight_is_named_and_the_rest_is_checked_with_the_right_one(model):
    params = hand_params(model)
    params["fc1"]["kernel"] = params["fc1"]["kernel"].T
    report = check(by_hand, model, X, params=params, raises=False)
    assert [(c.code, c.tensor) for c in report.causes] == [("untransposed-square", "fc1.weight")]
    assert report.agrees
    assert not report.passed
    assert "weights of the port that are not the reference's: 1" in str(report)


def test_a_bias_without_a_place_is_named(model):
    class NoBias(flax_nn.Module):
        @flax_nn.compact
        def __call__(self, x):
            x = jnp.tanh(flax_nn.Dense(6, use_bias=False)(x))
            return flax_nn.Dense(3)(x)

    report = check(NoBias(), model, X, raises=False)
    assert [(c.code, c.tensor) for c in report.causes] == [("bias-missing", "fc1.bias")]


def test_a_bias_too_many_is_named():
    torch.manual_seed(0)
    report = check(flax_nn.Dense(3), nn.Linear(6, 3, bias=False), X, raises=False)
    assert [(c.code, c.tensor) for c in report.causes] == [("bias-extra", "bias")]
    assert not report.passed


def test_a_mapping_settles_what_names_do_not(model):
    def port(params, x):
        return jnp.tanh(x @ params["p"] + params["q"]) @ params["r"] + params["s"]

    w = weights(model)
    places = {"fc1.weight": "p", "fc1.bias": "q", "fc2.weight": "r", "fc2.bias": "s"}
    params = {leaf: jnp.asarray(w[name].T) for name, leaf in places.items()}
    mapping = places | {"fc1.weight": {"leaf": "p", "transposed": True}}
    report = check(port, model, X, params=params, mapping=mapping)
    assert report.passed
    assert len(report.plan.placements) == 4


def test_a_pair_of_inputs_and_outputs_in_another_layout():
    torch.manual_seed(0)
    image = RANDOM.normal(size=(2, 3, 5, 4)).astype(np.float32)
    conv = nn.Conv2d(3, 2, 3)
    port = flax_nn.Conv(2, (3, 3), padding="VALID")
    both = Pair(image.transpose(0, 2, 3, 1), image)
    report = check(port, conv, both)
    assert report.passed
    assert {row.name for row in report.gradients} == {"weight", "bias", "inputs/0"}


def test_an_output_in_another_order_of_axes_is_told():
    report = check(lambda x: x.T, lambda x: x * 1, X, raises=False)
    assert report.outputs[0].words == "shape [6, 4], torch has [4, 6]"
    assert [(c.code, c.fix) for c in report.causes] == [("layout", "jnp.transpose(y, (1, 0))")]


def test_another_dtype_is_told():
    report = check(lambda x: x.astype(jnp.bfloat16), lambda x: x * 1, X, raises=False)
    assert report.outputs[0].words == "dtype bfloat16, torch has float32"
    assert report.causes[0].code == "output-dtype"


def test_weights_that_the_inputs_do_not_reach_fail_the_check():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.scale = nn.Embedding(5, 3), nn.Parameter(torch.ones(3))

        def forward(self, ids):
            return self.words(ids) * 2 + ids[..., None] * self.scale

    class Port(flax_nn.Module):
        @flax_nn.compact
        def __call__(self, ids):
            scale = self.param("scale", flax_nn.initializers.ones, (3,))
            return flax_nn.Embed(5, 3, name="words")(ids) * 2 + ids[..., None] * scale

    torch.manual_seed(0)
    zeros = np.zeros((2, 3), np.int32)
    report = check(Port(), Table(), zeros, raises=False)
    assert report.agrees
    assert not report.passed
    assert report.blind == ("scale",)
    assert "scale: no gradient on these inputs" in str(report)
    allowed = check(Port(), Table(), zeros, allow_blind=["scale"])
    assert allowed.passed
    assert json.loads(allowed.json())["overrides"] == {"allow_blind": ["scale"]}
    assert check(Port(), Table(), zeros + 1).passed


def test_what_no_input_reaches_is_told():
    class Unused(Torch):
        def __init__(self):
            super().__init__()
            self.rest = nn.Linear(6, 2)

    class Port(Linen):
        @flax_nn.compact
        def __call__(self, x):
            flax_nn.Dense(2, name="rest")(x)
            x = jnp.tanh(flax_nn.Dense(6, name="fc1")(x))
            return flax_nn.Dense(3, name="fc2")(x)

    report = check(Port(), Unused(), X)
    assert report.passed
    assert report.unused == ("rest.weight", "rest.bias")


def test_a_tolerance_of_the_caller_is_printed(model):
    report = check(Linen(shift=1e-4), model, X, atol=1e-3)
    assert report.passed
    assert "override  atol=0.001, rtol=0.0" in str(report)
    assert not check(Linen(shift=1e-4), model, X, raises=False).passed
    assert not check(Linen(shift=1e-4), model, X, rtol=1e-7, raises=False).passed


def test_a_gradient_alone_is_off(model):
    class Stopped(flax_nn.Module):
        @flax_nn.compact
        def __call__(self, x):
            x = jnp.tanh(flax_nn.Dense(6)(x))
            return flax_nn.Dense(3)(jax.lax.stop_gradient(x))

    report = check(Stopped(), model, X, raises=False)
    assert report.outputs[0].passed
    assert ("stop-gradient", "fc1.weight") in [(c.code, c.tensor) for c in report.causes]
    assert report.backward.startswith("tanh <- HERE")
    assert check(Stopped(), model, X, grad=False).passed


def test_a_tied_weight_that_is_two_parameters():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(self.embed(ids))

    class Copied(flax_nn.Module):
        @flax_nn.compact
        def __call__(self, ids):
            x = flax_nn.Embed(7, 4, name="embed")(ids)
            return flax_nn.Dense(7, use_bias=False, name="head")(x)

    class Shared(flax_nn.Module):
        @flax_nn.compact
        def __call__(self, ids):
            embed = flax_nn.Embed(7, 4, name="embed")
            return embed.attend(embed(ids))

    torch.manual_seed(0)
    ids = np.array([[1, 2, 6], [0, 3, 1]])
    assert check(Shared(), Tied(), ids).passed
    report = check(Copied(), Tied(), ids, raises=False)
    assert [c.code for c in report.causes] == ["tied-copied"]


def test_steps_of_sgd(model):
    report = check(Linen(), model, X, steps=2)
    assert report.passed
    assert {row.name for row in report.updated} == set(model.state_dict())


def test_statistics_in_training_mode():
    class Normed(flax_nn.Module):
        momentum: float = 0.9

        @flax_nn.compact
        def __call__(self, x, train):
            statistics = {"momentum": self.momentum, "use_fast_variance": False}
            return flax_nn.BatchNorm(not train, epsilon=1e-5, **statistics)(x)

    torch.manual_seed(0)
    norm = nn.BatchNorm1d(6)
    assert check(Normed(), norm, X).passed
    report = check(Normed(), norm, X, training=True)
    assert [row.name for row in report.updated] == ["running_mean"]
    assert any("running_var: the port's is of n" in line for line in report.told)
    wrong = check(Normed(momentum=0.1), norm, X, training=True, raises=False)
    assert {(c.code, c.tensor) for c in wrong.causes} >= {("momentum", "running_mean")}


def test_the_one_switch_that_explains_a_difference(model):
    class Eager(flax_nn.Module):
        @flax_nn.compact
        def __call__(self, x):
            wrong = 0.0 if jax.config.jax_enable_x64 else 0.3
            x = jnp.tanh(flax_nn.Dense(6)(x))
            return flax_nn.Dense(3)(x) + wrong * jnp.sin(x[:, :3])

    report = check(Eager(), model, X, raises=False)
    assert report.causes == ()
    assert [name for name, error in report.knobs.items() if error <= 1] == ["x64"]
    assert "x64: that alone explains it" in str(report)


def test_a_recording_stands_in_for_the_reference(model, tmp_path):
    path = tmp_path / "model.safetensors"
    parity.record(model, X, path)
    report = check(Linen(), path)
    assert report.passed
    assert "recording of torch" in str(report)
    wrong = check(Linen(shift=0.1), str(path), raises=False)
    assert not wrong.passed
    with pytest.raises(ValueError, match="not what the recording was made with"):
        check(Linen(), path, X + 1)


def test_two_mistakes_are_both_named():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 6), nn.LayerNorm(6, eps=1e-3))

    class Port(flax_nn.Module):
        @flax_nn.compact
        def __call__(self, x):
            x = flax_nn.gelu(flax_nn.Dense(6)(x))
            return flax_nn.LayerNorm(epsilon=1e-5)(flax_nn.Dense(6)(x))

    report = check(Port(), model, X, raises=False)
    assert [c.code for c in report.causes] == ["gelu-kind", "eps"]
    assert report.forced.endswith("put in there, 3 differs as well; all else agrees")
    assert all(c.error < 1e-5 for c in report.causes)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((Linen, None, X), TypeError, "`reference` must be a module or function of PyTorch"),
        ((Linen(), nn.Linear(6, 3), None), TypeError, "`inputs` must be given"),
        ((Linen(), nn.Linear(6, 3), [X]), TypeError, "got a list"),
        ((nn.Linear(6, 3), Linen(), X), TypeError, "`port` is Linear, a module of PyTorch"),
        ((Linen, nn.Linear(6, 3), X), TypeError, "`port` is the class Linen"),
    ],
)
def test_arguments_are_refused_by_name(arguments, error, text):
    with pytest.raises(error, match=text):
        check(*arguments)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"training": 1}, TypeError, "`training` must be True or False"),
        ({"steps": -1}, ValueError, "`steps` must be an integer of at least 0"),
        ({"steps": 1, "grad": False}, ValueError, "`steps` needs gradients"),
        ({"atol": "1"}, TypeError, "`atol` must be a number"),
        ({"seed": 1.5}, ValueError, "`seed` must be an integer"),
        ({"allow_blind": ["fc9"]}, ValueError, "`allow_blind` has 'fc9'"),
    ],
)
def test_options_are_refused_by_name(model, options, error, text):
    with pytest.raises(error, match=text):
        check(Linen(), model, X, **options)


class Dropped(flax_nn.Module):
    shared: tuple = ()
    rate: float = 0.3

    @flax_nn.compact
    def __call__(self, x, train):
        x = flax_nn.Dense(6)(x)
        x = flax_nn.Dropout(self.rate, self.shared)(x, deterministic=not train)
        return flax_nn.Dense(3)(x)


def test_dropout_in_training_mode_keeps_everything_on_both_sides():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3), nn.Linear(6, 3))
    report = check(Dropped(), model, X, training=True)
    assert report.passed
    assert "dropout keeps everything on both sides" in " ".join(report.told)
    shared = check(Dropped(shared=(0,)), model, X, training=True, raises=False)
    assert [(c.code, c.tensor) for c in shared.causes] == [("dropout-broadcast", "1")]
    missing = check(Dropped(rate=0.0), model, X, training=True, raises=False)
    assert "dropout-missing" in [c.code for c in missing.causes]
    assert not check(Dropped(rate=0.2), model, X, training=True, raises=False).passed


def test_another_draw_is_refused():
    class Noisy(nn.Module):
        def forward(self, x):
            return x + torch.randn_like(x)

    with pytest.raises(ValueError, match="`reference` draws at random in randn_like"):
        check(lambda x: x, Noisy(), X, training=True)
