"""`parity.record`: everything a port of a PyTorch model can be held against, in one file."""

import numpy as np
import pytest
import torch
from torch import nn

import parity
from parity import recording


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(16, 4)
        self.register_buffer("table", torch.sin(torch.arange(4, dtype=torch.float32)))
        self.unused = nn.Linear(2, 2)

    def forward(self, x, scale=None):
        y = self.last(self.drop(torch.tanh(self.first(x)))) + self.table
        return {"y": y if scale is None else y * scale, "ids": y.argmax(-1)}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Model()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


class Argmax(nn.Module):
    def forward(self, x):
        return x.argmax(-1)


LINEAR = nn.Linear(8, 4)
X = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)


def test_a_module_is_recorded_with_all_that_belongs_to_it(model, path):
    digest = parity.record(model, X, path)
    found = recording.read(path)
    assert found.sha256 == digest
    np.testing.assert_array_equal(found.tensors["inputs/0"], X)
    weights = found.group("weights")
    assert weights.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(weights[name], value.numpy())
    with torch.no_grad():
        outputs = model.eval()(torch.from_numpy(X))
    np.testing.assert_array_equal(found.tensors["outputs/y"], outputs["y"].numpy())
    np.testing.assert_array_equal(found.tensors["outputs/ids"], outputs["ids"].numpy())
    assert found.group("taps").keys() == {"first", "drop", "last"}
    assert found.group("masks") == {}
    assert found.manifest["kind"] == "model"
    assert found.manifest["made_by"] == {"torch": torch.__version__}
    assert found.manifest["environment"]["numpy"] == np.__version__
    assert found.manifest["shapes"] == {}


def test_gradients_are_those_of_the_outputs_times_their_cotangents(model, path):
    parity.record(model, X, path)
    found = recording.read(path)
    x = torch.from_numpy(X).requires_grad_()
    model.zero_grad()
    y = model.eval()(x)["y"]
    (y * torch.tensor(found.tensors["cotangents/y"])).sum().backward()
    np.testing.assert_array_equal(found.tensors["gradients/inputs/0"], x.grad.numpy())
    gradients = found.group("gradients")
    assert gradients.keys() == {
        *("first.weight", "first.bias", "last.weight", "last.bias", "inputs/0")
    }
    np.testing.assert_array_equal(gradients["first.weight"], model.first.weight.grad.numpy())


def test_the_companion_in_float64_is_finer_and_a_float32_buffer_is_flagged(model, path):
    parity.record(model, X, path)
    found = recording.read(path)
    for name in ("outputs/y", "taps/first", "gradients/first.weight"):
        wide, narrow = found.tensors[f"float64/{name}"], found.tensors[name]
        assert wide.dtype == np.float64
        assert 0 < np.abs(wide - narrow).max() < 1e-5
    assert found.manifest["computed in float32"] == []
    parity.record(Table(), np.zeros(1, np.float32), path)
    assert recording.read(path).manifest["computed in float32"] == ["float64/outputs/output"]


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.sin(torch.arange(4, dtype=torch.float32)))

    def forward(self, x):
        return self.table + 0 * x


def test_in_training_the_masks_are_recorded_and_the_companion_drops_the_same(model, path):
    parity.record(model, X, path, training=True, seed=3)
    found = recording.read(path)
    mask = found.tensors["masks/drop"]
    assert 0.5 < mask.mean() < 0.9
    expected = np.where(mask, np.tanh(found.tensors["float64/taps/first"]) / 0.7, 0)
    np.testing.assert_allclose(found.tensors["float64/taps/drop"], expected, atol=1e-14)
    np.testing.assert_allclose(found.tensors["taps/drop"], expected, atol=1e-6)
    assert found.manifest["training"] is True


DROPOUTS = {
    "in place": nn.Dropout(0.3, inplace=True),
    "by channels": nn.Dropout1d(0.5),
    "everything": nn.Dropout(1.0),
    "after zeros": nn.Sequential(nn.ReLU(), nn.Dropout(0.4)),
    "twice": nn.Sequential(nn.Dropout(0.3), nn.Dropout(0.3)),
}


@pytest.mark.parametrize("dropout", DROPOUTS)
def test_the_companion_drops_what_was_dropped(path, dropout):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), DROPOUTS[dropout], nn.Linear(16, 4))
    parity.record(model, X, path, training=True)
    found = recording.read(path)
    assert found.manifest["float64"] is True
    for name in found.tensors:
        if name.startswith("float64/"):
            narrow = found.tensors[name.removeprefix("float64/")]
            np.testing.assert_allclose(narrow, found.tensors[name], atol=1e-5, err_msg=name)


class Drawing(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5)


class Alpha(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.AlphaDropout(0.5)

    def forward(self, x):
        return self.drop(x)


@pytest.mark.parametrize("model", [Drawing(), Alpha()])
def test_where_something_else_draws_there_is_no_companion_and_that_is_said(path, model):
    parity.record(model, X, path, training=True, max_bytes=10_000)
    found = recording.read(path)
    assert found.manifest["float64"] is False
    assert found.group("float64") == {}
    assert found.group("outputs")


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x * self.calls


def test_the_companion_begins_with_the_buffers_that_the_model_had(path):
    model = Counting()
    parity.record(model, X, path)
    found = recording.read(path)
    np.testing.assert_allclose(found.tensors["float64/outputs/output"], X)
    np.testing.assert_array_equal(found.tensors["outputs/output"], X)
    assert model.calls == 0


def test_every_step_drops_elements_of_its_own(path):
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5))
    parity.record(
        model, X, path, training=True, optimizer=lambda p: torch.optim.SGD(p, 0.0), steps=2
    )
    found = recording.read(path)
    first, second = (found.tensors[f"steps/{n}/gradients/0.weight"] for n in (1, 2))
    assert (first != second).any()


def test_steps_of_an_optimizer_are_those_of_torch(model, path):
    parity.record(
        model, X, path, optimizer=lambda parameters: torch.optim.Adam(parameters, 0.1), steps=2
    )
    found = recording.read(path)
    cotangent = torch.tensor(found.tensors["cotangents/y"])
    copy = Model()
    copy.load_state_dict(model.state_dict())
    copy.eval()
    adam = torch.optim.Adam(copy.parameters(), 0.1)
    for step in (1, 2):
        adam.zero_grad()
        (copy(torch.from_numpy(X))["y"] * cotangent).sum().backward()
        adam.step()
        told = found.group(f"steps/{step}")
        np.testing.assert_array_equal(
            told["parameters/first.weight"], copy.first.weight.detach().numpy()
        )
        np.testing.assert_array_equal(
            told["gradients/first.weight"], copy.first.weight.grad.numpy()
        )
        state = adam.state[copy.first.weight]["exp_avg_sq"]
        np.testing.assert_array_equal(told["state/first.weight/exp_avg_sq"], state.numpy())


def test_the_model_stays_as_it_is(model, path):
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.zero_grad()
    parity.record(
        model, X, path, optimizer=lambda parameters: torch.optim.SGD(parameters, 1.0), steps=1
    )
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_the_generator_of_the_caller_stays_where_it_was(model, path):
    torch.manual_seed(5)
    first = torch.rand(3)
    torch.manual_seed(5)
    parity.record(model, X, path, training=True)
    assert torch.equal(first, torch.rand(3))


def test_a_function_with_arguments_by_keyword_is_recorded(path):
    inputs = {"x": X, "w": torch.ones(8, 2, dtype=torch.bfloat16).float()}
    parity.record(lambda x, w: (x @ w, x.sum()), inputs, path)
    found = recording.read(path)
    assert found.group("outputs").keys() == {"[0]", "[1]"}
    assert found.group("gradients").keys() == {"inputs/x", "inputs/w"}
    assert found.group("weights") == {}


def test_a_module_that_is_called_twice_has_two_taps(path):
    shared = nn.Linear(8, 8)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared = shared

        def forward(self, x):
            return self.shared(self.shared(x))

    parity.record(Twice(), X, path)
    assert recording.read(path).group("taps").keys() == {"shared", "shared#2"}


def test_above_max_bytes_taps_are_sampled_and_their_places_kept(model, path):
    x = np.random.default_rng(1).normal(size=(400, 8)).astype(np.float32)
    parity.record(model, x, path)
    whole = recording.read(path)
    everything = sum(array.nbytes for array in whole.tensors.values())
    parity.record(model, x, path, max_bytes=everything)
    assert recording.read(path).manifest["shapes"] == {}
    parity.record(model, x, path, max_bytes=100_000)
    found = recording.read(path)
    assert sum(array.nbytes for array in found.tensors.values()) <= 100_000
    assert found.manifest["shapes"]["taps/first"] == [400, 16]
    for name in (path.removeprefix("taps/") for path in found.manifest["shapes"]):
        places = found.tensors[f"indices/{name}"]
        assert 100 < places.size < 400 * 16
        for kind in ("taps", "float64/taps"):
            expected = whole.tensors[f"{kind}/{name}"].reshape(-1)[places]
            np.testing.assert_array_equal(found.tensors[f"{kind}/{name}"], expected)
    for kind in ("inputs", "outputs", "gradients", "weights"):
        assert found.group(kind).keys() == whole.group(kind).keys()


@pytest.mark.parametrize(
    ("arguments", "options", "error", "said"),
    [
        ((nn.Linear(8, 4), X), {"max_bytes": 10}, ValueError, "`max_bytes` is 10, and what is"),
        ((nn.Linear(8, 4), "a"), {}, TypeError, "`inputs` 0 is"),
        (
            (lambda x: x.detach().numpy(), X),
            {},
            TypeError,
            "`reference` must return tensors of PyTorch.* got",
        ),
        ((3, X), {}, TypeError, "`reference` must be a module or a function, got int"),
        ((nn.Linear(8, 4).forward, X), {}, TypeError, "must be the Linear itself, got its method"),
        ((nn.Linear(8, 4), [X, X]), {}, TypeError, "`inputs` must be .* got a list"),
        ((nn.Linear(8, 4), {0: X, "0": X}), {}, ValueError, "`inputs` has two of one name"),
        ((lambda x: (x, object()), X), {}, TypeError, r"got object as '\[1\]'"),
        ((lambda x: {1: x, "1": x}, X), {}, ValueError, "returns two outputs as '1'"),
        ((lambda x: LINEAR(x), X), {}, ValueError, "raises in float64: .* a module is passed as"),
        ((nn.Linear(8, 4), X), {"seed": -1}, ValueError, "`seed` must be an integer of at least 0"),
        ((nn.Linear(8, 4), X), {"max_bytes": True}, ValueError, "`max_bytes` must be an integer"),
        ((nn.Linear(8, 4), X), {"optimizer": 3}, TypeError, "`optimizer` must make one from"),
        ((nn.Linear(8, 4), X), {"optimizer": list}, TypeError, "of torch.optim .* got list"),
        (
            (LINEAR, X),
            {"optimizer": lambda _: torch.optim.SGD(LINEAR.parameters(), 0.1)},
            ValueError,
            "must be made from the parameters that it is given",
        ),
        (
            (nn.Sequential(nn.Linear(8, 4), Argmax()), X),
            {"optimizer": lambda p: torch.optim.SGD(p, 0.1)},
            ValueError,
            "would take no step: no output has a gradient",
        ),
        (
            (nn.Linear(8, 4), X),
            {"steps": 0},
            ValueError,
            "`steps` must be an integer of at least 1, got 0",
        ),
        (
            (lambda x: x, X),
            {"optimizer": torch.optim.SGD},
            TypeError,
            "`optimizer` needs a module: a function has no parameters",
        ),
    ],
)
def test_what_can_not_be_recorded_is_named_and_nothing_is_written(
    path, arguments, options, error, said
):
    with pytest.raises(error, match=said):
        parity.record(*arguments, path, **options)
    assert not path.exists()


@pytest.mark.parametrize(
    ("place", "said"), [(".", "must be a file or new"), ("no/where", "in a folder that exists")]
)
def test_a_path_that_can_be_none_is_refused_before_anything_runs(tmp_path, place, said):
    def reference(x):
        raise AssertionError("it ran")

    with pytest.raises(ValueError, match=said):
        parity.record(reference, X, tmp_path / place)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_callers_mode_takes_no_gradients_away(path, mode):
    with mode():
        parity.record(LINEAR, X, path)
    assert recording.read(path).group("gradients").keys() == {"weight", "bias", "inputs/0"}


def test_what_changes_its_input_in_place_is_recorded(path):
    parity.record(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(8, 4)), X, path)
    found = recording.read(path)
    np.testing.assert_array_equal(found.tensors["inputs/0"], X)
    np.testing.assert_array_equal(found.tensors["taps/0"], np.maximum(X, 0))


def test_complex_taps_are_recorded_as_pairs(path):
    class Spectrum(nn.Module):
        def __init__(self):
            super().__init__()
            self.transform = Transform()

        def forward(self, x):
            return self.transform(x).abs()

    class Transform(nn.Module):
        def forward(self, x):
            return torch.fft.rfft(x)

    parity.record(Spectrum(), X, path)
    tap = recording.read(path).tensors["taps/transform"]
    np.testing.assert_allclose(tap[..., 0] + 1j * tap[..., 1], np.fft.rfft(X), atol=1e-5)


def test_dropout_alone_has_a_mask(path):
    parity.record(nn.Dropout(0.5), X, path, training=True)
    found = recording.read(path)
    np.testing.assert_array_equal(
        found.tensors["masks/module"], found.tensors["outputs/output"] != 0
    )
    np.testing.assert_allclose(
        found.tensors["float64/outputs/output"], found.tensors["outputs/output"]
    )


def test_an_output_called_taps_is_no_tap(path):
    parity.record(lambda x: {"taps": {"h": x, "g": 2 * x}}, X, path, max_bytes=2_000)
    assert recording.read(path).manifest["shapes"] == {}


def test_without_torch_it_says_how_to_get_it(path, monkeypatch):
    monkeypatch.setattr("parity.model_recording.missing", lambda name: "no torch")
    with pytest.raises(ImportError, match="needs PyTorch: no torch"):
        parity.record(nn.Linear(8, 4), X, path)


def test_what_was_recorded_can_be_compared(model, path):
    parity.record(model, X, path)
    found = recording.read(path)
    outputs = found.group("outputs")
    exact = found.group("float64/outputs")
    assert exact.keys() == outputs.keys()
    assert parity.compare(outputs, outputs, exact=exact).passed
    wrong = {**outputs, "y": outputs["y"] * 2}
    with pytest.raises(parity.ParityError, match="y: actual is off"):
        parity.compare(wrong, outputs, exact=exact)
