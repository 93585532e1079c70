import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_input.config import EncoderConfig
from jax_input.diagnosis import gradient_report
from jax_input.initial import encoder_params

CONFIG = EncoderConfig(num_layers=4, d_model=8, num_heads=2, d_ff=8)
PARAMS = encoder_params(jax.random.key(0), CONFIG)
ONES = jax.tree.map(jnp.ones_like, PARAMS)
PLAIN = {"w": jnp.ones(3), "v": jnp.ones(2)}


def grown(rate):
    """Gradients that are multiplied by a rate from each layer to the one after it."""
    factors = rate ** np.arange(4.0)

    def by_layer(leaf):
        spread = factors.reshape(4, *[1] * (leaf.ndim - 1)).astype(np.float32)
        return leaf * jnp.broadcast_to(spread, leaf.shape)

    return jax.tree.map(by_layer, ONES)


def found(*args, **options):
    report = gradient_report(*args, **options)
    return {(finding.code, finding.place): finding for finding in report.findings}


@pytest.mark.parametrize(
    ("rate", "code", "value"), [(20.0, "vanishing", 20.0**-3), (1 / 20, "exploding", 20.0**3)]
)
def test_gradients_that_change_twentyfold_in_each_layer_are_named(rate, code, value):
    ((key, finding),) = found(PARAMS, grown(rate)).items()
    assert key == (code, "layers[0]")
    np.testing.assert_allclose(finding.value, value, rtol=1e-5)  # float32 factors, four roundings


@pytest.mark.parametrize("rate", [4.0, 2.0, 1.0, 0.25])
def test_gradients_within_what_sound_layers_do_are_left_alone(rate):
    assert found(PARAMS, grown(rate)) == {}


def test_what_is_frozen_counts_for_no_ratio_of_gradients():
    def frozen(path):
        return path.startswith("layers[0]")

    still = jax.tree.map(lambda leaf: 1e-3 * leaf.at[0].set(0), ONES)
    gradients = jax.tree.map(lambda leaf: leaf.at[0].set(0), ONES)
    assert found(PARAMS, gradients, still, frozen=frozen) == {}
    assert ("vanishing", "layers[0]") in found(PARAMS, gradients)


@pytest.mark.parametrize("as_tree", [True, False])
def test_a_frozen_parameter_that_moves_is_named(as_tree):
    updates = {"w": jnp.array([0, 0, 2e-3]), "v": 1e-3 * jnp.ones(2)}
    frozen = {"w": True, "v": False} if as_tree else (lambda path: path == "w")
    ((key, finding),) = found(PLAIN, PLAIN, updates, frozen=frozen).items()
    assert key == ("frozen_moves", "w")
    np.testing.assert_allclose(finding.value, 2e-3, rtol=1e-6)  # one rounding to float32
    updates["w"] = jnp.zeros(3)
    assert found(PLAIN, PLAIN, updates, frozen=frozen) == {}


def test_one_layer_of_a_stack_can_be_frozen_by_its_path():
    updates = jax.tree.map(lambda leaf: 1e-3 * leaf, ONES)
    path = "layers[2].attention.query.kernel"
    assert set(found(PARAMS, ONES, updates, frozen=lambda place: place == path)) == {
        ("frozen_moves", path)
    }


def test_gradients_of_exactly_zero_are_named_and_a_whole_layer_once():
    layers = jax.tree.map(lambda leaf: leaf.at[1].set(0), ONES["layers"])
    kernel = layers["feed_forward"]["in"]["kernel"].at[2].set(0)
    layers["feed_forward"]["in"]["kernel"] = kernel
    assert set(found(PARAMS, {"layers": layers})) == {
        ("zero_gradient", "layers[1]"),
        ("zero_gradient", "layers[2].feed_forward.in.kernel"),
    }


def test_the_bias_of_the_keys_has_no_gradient_by_nature():
    gradients = jax.tree.map(lambda leaf: leaf, ONES)
    bias = gradients["layers"]["attention"]["key"]["bias"]
    gradients["layers"]["attention"]["key"]["bias"] = jnp.zeros_like(bias)
    assert found(PARAMS, gradients, jax.tree.map(lambda leaf: 1e-3 * leaf, gradients)) == {}


def test_an_encoder_is_found_within_a_model_and_other_parameters_by_their_paths():
    params = {"model": {"encoder": PARAMS}, "head": jnp.ones(3)}
    gradients = {"model": {"encoder": grown(20.0)}, "head": jnp.zeros(3)}
    report = gradient_report(params, gradients)
    assert {(finding.code, finding.place) for finding in report.findings} == {
        ("vanishing", "model.encoder.layers[0]"),
        ("zero_gradient", "head"),
    }
    places = [norms.place for norms in report.norms]
    assert places == [*(f"model.encoder.layers[{layer}]" for layer in range(4)), "head"]


def test_norms_are_those_of_all_leaves_of_a_layer():
    report = gradient_report(PARAMS, ONES, ONES)
    size = sum(leaf.size // 4 for leaf in jax.tree.leaves(PARAMS))
    expected = np.sqrt(
        sum(np.sum(np.float64(leaf[1]) ** 2) for leaf in jax.tree.leaves(PARAMS["layers"]))
    )
    # Sums of 500 squares in float64, in another order.
    np.testing.assert_allclose(report.norms[1].parameter, expected, rtol=500 * 2**-53)
    np.testing.assert_allclose(report.norms[1].gradient, np.sqrt(size), rtol=500 * 2**-53)


def test_norms_in_half_formats_do_not_overflow():
    params = {"w": jnp.full(100, 6e4, jnp.float16)}
    assert gradient_report(params, params).norms[0].gradient == 6e5


def test_a_report_prints_its_findings_and_the_norms():
    gradients = grown(20.0)
    text = str(gradient_report(PARAMS, gradients, jax.tree.map(lambda x: 1e-3 * x, ONES)))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0] == "1 finding"
    assert lines[2].split() == ["[vanishing]", "layers[0]"]
    named = [line.split()[0] for line in lines[3:] if line and not line.startswith(" ")]
    assert named[:3] == ["symptom", "cause", "remedy"]
    (head,) = [place for place, line in enumerate(lines) if line.startswith("layer ")]
    assert lines[head].split() == ["layer", "|parameter|", "|gradient|", "|update|", "ratio"]
    assert [line.split()[0] for line in lines[head + 1 :]] == [f"layers[{x}]" for x in range(4)]
    assert str(gradient_report(PLAIN, PLAIN)).startswith("nothing found\n")


@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_is_traced_is_refused_with_the_way_out(at):
    def call(tree):
        trees = [PLAIN, PLAIN, PLAIN]
        trees[at] = tree
        gradient_report(*trees)

    name = ("params", "gradients", "updates")[at]
    with pytest.raises(TypeError, match=f"`{name}: v` is traced, .* Return it from jit"):
        jax.jit(call)(PLAIN)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"gradients": {"w": jnp.ones(3)}}, ValueError, "`gradients` lack 'v'"),
        ({"gradients": {**PLAIN, "u": jnp.ones(1)}}, ValueError, "`params` lack 'u'"),
        ({"updates": {**PLAIN, "w": jnp.ones(2)}}, ValueError, r"\[3\] at 'w', got \[2\]"),
        ({"gradients": {**PLAIN, "w": jnp.ones(3, int)}}, TypeError, "`gradients: w` .*got int32"),
        ({"frozen": {"w": True, "v": False}}, ValueError, "`updates`, which are absent"),
        ({"updates": PLAIN, "frozen": {"w": True}}, TypeError, "got dict with 1 leaves"),
        ({"updates": PLAIN, "frozen": lambda _: 1}, TypeError, "got int for 'v'"),
        ({"loss": jnp.ones(2)}, ValueError, r"`loss` must be one number, got shape \[2\]"),
        ({"taps": (1, {})}, TypeError, "`taps` must be the dict .* got tuple"),
        ({"taps": {"attention": jnp.ones((2, 3))}}, ValueError, r"seq_len, size\], got \[2, 3\]"),
        ({"mask": jnp.ones((1, 1, 1, 1))}, TypeError, "boolean with True = may attend"),
    ],
)
def test_what_does_not_fit_is_named(options, error, message):
    with pytest.raises(error, match=message):
        gradient_report(**{"params": PLAIN, "gradients": PLAIN, **options})


def test_taps_of_another_number_of_layers_are_refused():
    with pytest.raises(ValueError, match="each of the 4 layers of `params`, got 3"):
        gradient_report(PARAMS, ONES, taps={"attention": jnp.ones((3, 1, 2, 8))})
