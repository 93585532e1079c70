"""``parity.check`` in other modes and formats, of steps, and of what gradients alone show."""

import flax.linen as flax_nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn

from parity import MappingError, check
from parity.frameworks import torch_causes, torch_evidence

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(8, 16)).astype(np.float32)

pytestmark = pytest.mark.usefixtures("ports_may_broadcast")


def codes(report):
    return [cause.code for cause in report.causes]


class Dropped(flax_nn.Module):
    @flax_nn.compact
    def __call__(self, x):
        return flax_nn.Dense(4)(flax_nn.Dropout(0.5, deterministic=False)(x))


def test_dropout_that_is_left_on_is_named_though_no_key_was_given():
    reference = nn.Sequential(nn.Dropout(0.5), nn.Linear(16, 4)).eval()
    report = check(Dropped(), reference, X, raises=False)
    assert (report.causes[0].code, report.causes[0].tensor) == ("train-mode", "0")


class Drawing(flax_nn.Module):
    """Has gelu of the other form; draws dropout, noise, or what it does not use."""

    kind: str

    @flax_nn.compact
    def __call__(self, x):
        x = flax_nn.gelu(flax_nn.Dense(16)(x))
        drawn = jax.random.normal(jax.random.key(0), x.shape)
        if self.kind == "dropout":
            return flax_nn.Dropout(0.5, deterministic=False)(x)
        return x + drawn if self.kind == "noise" else x


@pytest.mark.parametrize(
    ("kind", "named"), [("dropout", {"train-mode"}), ("noise", set()), ("nothing", {"gelu-kind"})]
)
def test_a_draw_is_dropout_only_where_it_is_nearly_as_far_off_without_it(kind, named):
    torch.manual_seed(0)
    reference = nn.Sequential(nn.Linear(16, 16), nn.GELU())
    report = check(Drawing(kind), reference, X[:3], raises=False, grad=False)
    assert {code for code in codes(report) if code in ("train-mode", "gelu-kind")} == named


def test_a_fix_is_spelled_as_the_framework_of_the_port_spells_it():
    class Normed(nnx.Module):
        def __init__(self):
            self.norm = nnx.LayerNorm(16, epsilon=1e-3, rngs=nnx.Rngs(0))

        def __call__(self, x):
            return self.norm(x)

    report = check(Normed(), nn.LayerNorm(16), X, raises=False)
    assert [cause.fix for cause in report.causes] == ["nnx.LayerNorm(epsilon=1e-05)"]


def test_a_step_that_every_layer_leaves_out_is_named_once():
    class Torch(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x.cumsum(-1))
            return x

    class Port(flax_nn.Module):
        @flax_nn.compact
        def __call__(self, x):
            x = flax_nn.Dense(16)(x)
            return flax_nn.Dense(16)(x)

    torch.manual_seed(0)
    (cause,) = check(Port(), Torch(), X, raises=False).causes
    assert (cause.code, cause.everywhere) == ("step-missing", True)


class Scanned(flax_nn.Module):
    """Its own parameters are float32, with which the carry of its scan changes its format."""

    @flax_nn.compact
    def __call__(self, x):
        layers = flax_nn.scan(
            lambda dense, x, _: (dense(x), None),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=2,
        )
        return layers(flax_nn.Dense(16, name="layers"), x, None)[0]


def test_a_port_that_cannot_make_its_parameters_in_a_format_is_given_them():
    torch.manual_seed(0)
    reference = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16)).bfloat16()
    wide = [{k: v.detach().float().numpy() for k, v in m.named_parameters()} for m in reference]
    stacked = {
        "kernel": jnp.stack([w["weight"].T for w in wide]).astype(jnp.bfloat16),
        "bias": jnp.stack([w["bias"] for w in wide]).astype(jnp.bfloat16),
    }
    x = jnp.asarray(X, jnp.bfloat16)
    assert check(Scanned(), reference, x, params={"params": {"layers": stacked}}).passed


def test_steps_of_a_bias_that_is_the_sum_of_two():
    class Recurrent(flax_nn.Module):
        @flax_nn.compact
        def __call__(self, x):
            return flax_nn.RNN(flax_nn.OptimizedLSTMCell(5))(x)

    class Torch(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(4, 5, batch_first=True)

        def forward(self, x):
            return self.lstm(x)[0]

    torch.manual_seed(0)
    report = check(Recurrent(), Torch(), X.reshape(8, 4, 4), steps=3)
    assert {row.name for row in report.updated} == set(Torch().state_dict())
    assert "a bias that is the sum of two moves twice as far: torch moves both" in report.told


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_padding_row_with_a_gradient_is_found_in_every_format(dtype):
    torch.manual_seed(0)
    embedding = nn.Embedding(9, 4, padding_idx=0).to(dtype)
    ids = np.array([[1, 2, 0, 0], [3, 1, 4, 0]])
    table = {"embedding": jnp.asarray(embedding.weight.detach().float().numpy())}
    params = jax.tree.map(lambda x: x.astype(str(dtype).removeprefix("torch.")), table)

    def port(params, ids):
        return params["embedding"][ids]

    report = check(port, embedding, ids, params=params, raises=False)
    assert codes(report) == ["padding-row"]


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(16, eps=1e-12), nn.Linear(16, 16)

    def forward(self, x):
        return self.fc(self.norm(x))


@pytest.mark.parametrize("seed", [0, 3])
def test_an_eps_that_gradients_alone_show_is_named(seed):
    class Port(flax_nn.Module):
        @flax_nn.compact
        def __call__(self, x):
            norm = flax_nn.LayerNorm(epsilon=1e-6, use_fast_variance=False, name="norm")
            return flax_nn.Dense(16, name="fc")(norm(x))

    torch.manual_seed(seed)
    report = check(Port(), Normed(), X, raises=False)
    assert all(row.passed for row in report.outputs)
    assert codes(report) == ["eps"]


def test_a_fix_of_a_gradient_is_spelled_as_the_framework_of_the_port_spells_it():
    class Port(nnx.Module):
        def __init__(self):
            rngs = nnx.Rngs(0)
            self.norm = nnx.LayerNorm(16, epsilon=1e-6, use_fast_variance=False, rngs=rngs)
            self.fc = nnx.Linear(16, 16, rngs=rngs)

        def __call__(self, x):
            return self.fc(self.norm(x))

    torch.manual_seed(0)
    report = check(Port(), Normed(), X, raises=False)
    assert all(row.passed for row in report.outputs)
    assert [cause.fix for cause in report.causes] == ["nnx.LayerNorm(epsilon=1e-12)"]


def test_all_gradients_and_outputs_have_to_be_explained(monkeypatch):
    class Port(flax_nn.Module):
        @flax_nn.compact
        def __call__(self, x):
            x = flax_nn.Dense(4)(x)
            return x + jnp.sin(x) - jax.lax.stop_gradient(jnp.sin(x))

    seen = []

    def explain(search, exact, key):
        seen.extend(search.given)
        return [], ()

    monkeypatch.setattr(torch_evidence, "causes_of_gradients", explain)
    report = check(Port(), nn.Linear(16, 4), X, raises=False)
    assert {row.name for row in report.gradients if row.passed} == set()
    assert set(seen) == {"outputs/output", *(f"gradients/{row.name}" for row in report.gradients)}


def test_a_reference_without_a_gradient_says_what_to_do():
    def ranked(x):
        return x.argsort(-1).to(torch.float32)

    with pytest.raises(ValueError, match=r"`reference` has no gradient.*grad=False"):
        check(lambda x: jnp.argsort(x, -1).astype(jnp.float32), ranked, X)
    assert check(lambda x: jnp.argsort(x, -1).astype(jnp.float32), ranked, X, grad=False).passed


def test_a_reference_without_steps_has_no_cause():
    def port(x):
        return x + (jnp.sin(x) - jax.lax.stop_gradient(jnp.sin(x)))

    report = check(port, lambda x: x, X, raises=False)
    assert report.outputs[0].passed
    assert not report.gradients[0].passed
    assert codes(report) == []


def test_a_variance_that_is_fixed_is_named_though_the_mean_has_another_momentum():
    class Port(flax_nn.Module):
        @flax_nn.compact
        def __call__(self, x):
            mean = self.variable("batch_stats", "mean", jnp.zeros, 16)
            self.variable("batch_stats", "var", jnp.ones, 16)
            scale = self.param("scale", flax_nn.initializers.ones, 16)
            bias = self.param("bias", flax_nn.initializers.zeros, 16)
            now = x.mean(0)
            if not self.is_initializing():
                mean.value = 0.1 * mean.value + 0.9 * now
            return (x - now) / jnp.sqrt(((x - now) ** 2).mean(0) + 1e-5) * scale + bias

    report = check(Port(), nn.BatchNorm1d(16), X, training=True, raises=False)
    found = [(cause.code, cause.tensor) for cause in report.causes]
    assert found == [("momentum", "running_mean"), ("statistics-fixed", "running_var")]


def test_what_is_fitted_is_looked_for_in_the_time_that_there_is(monkeypatch):
    def port(x):
        return jnp.tanh(x) * 1.2345

    assert codes(check(port, torch.tanh, X, raises=False)) == ["factor"]
    monkeypatch.setattr(torch_causes, "_SECONDS", 0.0)
    assert codes(check(port, torch.tanh, X, raises=False)) == []


def test_channels_that_were_not_moved_are_told():
    image = RANDOM.normal(size=(2, 3, 8, 8)).astype(np.float32)
    with pytest.raises(MappingError, match=r"parity\.Pair\(np\.moveaxis\(x, 1, -1\), x\)"):
        check(flax_nn.Conv(4, (3, 3)), nn.Conv2d(3, 4, 3, padding=1), image)
    with pytest.raises(MappingError) as error:
        check(
            flax_nn.Conv(4, (3, 3)), nn.Conv2d(3, 4, 3), image, mapping={"other.weight": "kernel"}
        )
    assert "parity.Pair" not in str(error.value)


def test_what_has_no_place_is_told_with_the_reason():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.norm = nn.Embedding(9, 4), nn.BatchNorm1d(4)
            self.head = nn.Linear(4, 9, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(self.norm(self.embed(ids)))

    class Port(flax_nn.Module):
        @flax_nn.compact
        def __call__(self, ids, train=False):
            embed = flax_nn.Embed(9, 4)
            return embed.attend(flax_nn.BatchNorm(not train, epsilon=1e-5)(embed(ids)))

    report = check(Port(), Tied(), np.arange(9), raises=False)
    said = "2 not (num_batches_tracked: holds integers, weight: tied to embed.weight)"
    assert said in " ".join(str(report).split())


def test_what_is_no_number_hides_no_cause_and_is_none():
    """Where a port hides with -inf, softmax over the wrong axis is NaN in hidden columns."""

    class Weights(nn.Module):
        def forward(self, scores, keep):
            hidden = scores.masked_fill(~keep, -torch.inf)
            return torch.softmax(hidden, -1)

    def port(scores, keep):
        return jax.nn.softmax(jnp.where(keep, scores, -jnp.inf), axis=-2)

    scores = RANDOM.normal(size=(3, 4, 4)).astype(np.float32)
    keep = np.broadcast_to(np.arange(4) < np.array([4, 4, 2])[:, None, None], (3, 4, 4))
    report = check(port, Weights(), {"scores": scores, "keep": keep}, raises=False)
    assert "NaN" in report.outputs[0].words
    assert codes(report) == ["softmax-axis"]
