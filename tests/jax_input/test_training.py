from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.training.dynamic_scale import DynamicScale
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jax_input import transformer_input
from jax_input.sinusoidal import sinusoidal_table
from jax_input.training import loss_scale, scaled_step

# A power of two: its product with a gradient is exact, so that a step of SGD is one rounding, of
# the difference, in every framework, eager and compiled. So is scaling by powers of two.
RATE = 2.0**-3
START = np.array([1.0, -0.75, 3.1], np.float32)
SGD, ADAM = optax.sgd(RATE), optax.adam(RATE)
jitted_step = jax.jit(scaled_step, static_argnums=(0, 3))


def injected(w, gradient):
    """A loss whose gradient is given."""
    return (w * gradient).sum()


def injected_float16(w, gradient):
    return (w.astype(jnp.float16) * gradient.astype(jnp.float16)).astype(jnp.float32).sum()


def draw_gradients(steps, not_finite, seed=0):
    """Gradients of size 1; some rows hold one inf, -inf, NaN, or what overflows once scaled."""
    rng = np.random.default_rng(seed)
    gradients = rng.standard_normal((steps, 3)).astype(np.float32)
    bad = np.array([np.inf, -np.inf, np.nan, 3e38], np.float32)
    for row in np.flatnonzero(rng.random(steps) < not_finite):
        gradients[row, rng.integers(3)] = bad[rng.integers(4)]
    return gradients


def same_bits(actual, expected):
    """Whether two trees of arrays are the same to the bit."""
    pairs = zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True)
    return all(np.asarray(ours).tobytes() == np.asarray(theirs).tobytes() for ours, theirs in pairs)


def run_jax(gradients, scale, loss_fn=injected, step=jitted_step):
    params, opt_state = jnp.asarray(START), SGD.init(START)
    scales, weights = [], []
    for gradient in gradients:
        params, opt_state, scale, _ = step(loss_fn, params, opt_state, SGD, scale, gradient)
        scales.append(float(scale.scale))
        weights.append(np.asarray(params))
    return scales, np.array(weights)


def run_torch(gradients, scaler, half=False):
    """The loop of PyTorch's documentation, with one step per row."""
    torch = pytest.importorskip("torch")
    params = torch.tensor(START, requires_grad=True)
    optimizer = torch.optim.SGD([params], lr=RATE)
    scales, weights = [], []
    for gradient in torch.tensor(gradients):
        loss = (params.half() * gradient.half()).float() if half else params * gradient
        optimizer.zero_grad()
        scaler.scale(loss.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        weights.append(params.detach().numpy().copy())
    return scales, np.array(weights)


def grad_scaler(**options):
    return pytest.importorskip("torch").amp.GradScaler("cpu", **options)


@pytest.mark.parametrize(
    ("growth_interval", "step"),
    [(1, jitted_step), (2, jitted_step), (5, jitted_step), (2, scaled_step)],
    ids=["1", "2", "5", "2, eager"],
)
def test_scales_skips_and_parameters_are_those_of_torch(growth_interval, step):
    gradients = draw_gradients(60, 0.25)
    options = {"growth_interval": growth_interval}
    scales, weights = run_jax(gradients, loss_scale(**options), step=step)
    torch_scales, torch_weights = run_torch(gradients, grad_scaler(**options))
    assert scales == torch_scales
    assert same_bits(weights, torch_weights)
    backed_off = np.array(scales) < np.array([2.0**16, *scales[:-1]])
    unchanged = (weights == np.array([START, *weights[:-1]])).all(1)
    np.testing.assert_array_equal(backed_off, unchanged)
    assert 8 < backed_off.sum() < 25  # about a quarter


@pytest.mark.parametrize(
    "options",
    [
        {"init_scale": 1024.0, "growth_interval": 3},
        {"growth_factor": 8.0, "growth_interval": 2},
        {"backoff_factor": 0.125, "growth_interval": 4},
    ],
)
def test_every_option_has_the_meaning_of_torch(options):
    gradients = draw_gradients(40, 0.2, seed=1)
    scales, weights = run_jax(gradients, loss_scale(**options))
    torch_scales, torch_weights = run_torch(gradients, grad_scaler(**options))
    assert scales == torch_scales
    assert same_bits(weights, torch_weights)


def test_defaults_are_those_of_torch_over_two_growths():
    gradients = np.full((4_010, 3), 2.0**-10, np.float32)
    gradients[3, 1] = np.nan
    _, scales = jax.lax.scan(one_of_sgd, (START, SGD.init(START), loss_scale()), gradients)
    expected, _ = run_torch(gradients, grad_scaler())
    np.testing.assert_array_equal(scales[0], np.float32(expected))
    assert set(expected) == {2.0**15, 2.0**16, 2.0**17}


def test_float16_overflows_and_recovers_as_in_torch():
    # 65,536 is beyond float16, so the scale swings between 2**15 and 2**16. The gradients are
    # multiplied in float16 by powers of two, which is exact.
    gradients = np.random.default_rng(2).uniform(0.5, 1, (30, 3)).astype(np.float16)
    gradients = gradients.astype(np.float32)
    scales, weights = run_jax(gradients, loss_scale(growth_interval=3), injected_float16)
    options = {"growth_interval": 3}
    torch_scales, torch_weights = run_torch(gradients, grad_scaler(**options), half=True)
    assert scales == torch_scales
    assert scales[:8] == [2.0**15] * 3 + [2.0**16] + [2.0**15] * 3 + [2.0**16]
    assert same_bits(weights, torch_weights)


def one_of_sgd(carry, gradient):
    params, opt_state, scale = carry
    params, opt_state, scale, loss = scaled_step(injected, params, opt_state, SGD, scale, gradient)
    return (params, opt_state, scale), (scale.scale, params, loss)


def test_a_scan_over_steps_gives_the_same_bits():
    gradients = draw_gradients(40, 0.2, seed=3)
    scale = loss_scale(growth_interval=3)
    scan = jax.jit(partial(jax.lax.scan, one_of_sgd))
    _, (scales, weights, _) = scan((START, SGD.init(START), scale), gradients)
    expected = run_jax(gradients, scale)
    np.testing.assert_array_equal(scales, expected[0])
    assert same_bits(weights, expected[1])


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 3e38])
@pytest.mark.parametrize("step", [scaled_step, jitted_step], ids=["eager", "jit"])
def test_one_bad_number_leaves_parameters_and_optimizer_state_as_they_were(bad, step):
    params = {"a": jnp.array([-0.0, 1e-40, np.nan]), "b": {"c": jnp.ones((2, 2))}}
    opt_state, scale = ADAM.init(params), loss_scale()

    def loss_fn(params, gradient):
        return (params["b"]["c"] * gradient).sum() + 0 * params["a"].sum()

    good = jnp.ones((2, 2))
    before, state, scale, _ = step(loss_fn, params, opt_state, ADAM, scale, good)
    assert not same_bits(state, opt_state)
    after, kept, lower, _ = step(loss_fn, before, state, ADAM, scale, good.at[1, 0].set(bad))
    assert same_bits((after, kept), (before, state))
    assert jax.tree.map(jnp.result_type, kept) == jax.tree.map(jnp.result_type, state)
    assert (lower.scale, lower.fin_steps) == (2.0**15, 0)
    moved, _, _, _ = step(loss_fn, after, kept, ADAM, lower, good)
    assert not same_bits(moved["b"], before["b"])


def test_a_gradient_too_small_for_float16_arrives_exactly():
    # 2**-26 is below half of the smallest float16, 2**-24; scaled it is 2**-10.
    def loss_fn(w):
        return (w.astype(jnp.float16).astype(jnp.float32) * 2.0**-26).sum()

    w = jnp.zeros(3)
    np.testing.assert_array_equal(jax.grad(loss_fn)(w), np.zeros(3))
    stepped, *_ = scaled_step(loss_fn, w, SGD.init(w), SGD, loss_scale())
    np.testing.assert_array_equal(stepped, np.full(3, -RATE * 2.0**-26, np.float32))


@pytest.mark.parametrize("value", [1e35, 0.1, 2.0**-120, np.inf])
def test_the_loss_is_returned_as_it_was_computed(value):
    # Scaled, 1e35 overflows; scaled by 2**-20, 2**-120 is no normal number.
    for init_scale in (2.0**16, 3.0, 2.0**-20):
        scale = loss_scale(init_scale)
        *_, loss = jitted_step(lambda w: w.sum(), jnp.float32([value]), (), SGD_PLAIN, scale)
        assert (loss.dtype, loss) == (np.float32, np.float32(value))


SGD_PLAIN = optax.GradientTransformation(lambda params: (), lambda g, state, params: (g, state))


def test_the_scale_stops_at_the_minimum_and_grows_again():
    bad, good = np.full((4, 3), np.nan, np.float32), np.ones((2, 3), np.float32)
    scale = loss_scale(4.0, growth_interval=1, minimum_scale=1.0)
    scales, weights = run_jax([*bad, *good], scale)
    assert scales == [2, 1, 1, 1, 2, 4]
    assert same_bits(weights[3], START)


def test_at_the_lower_end_torch_spoils_the_parameters_and_this_does_not():
    gradients = np.float32([[np.nan] * 3, [np.nan] * 3, [1, 1, 1]])
    scales, weights = run_torch(gradients, grad_scaler(init_scale=2.0**-148))
    assert scales == [2.0**-149, 0, 0]
    assert np.isnan(weights[2]).all()
    scales, weights = run_jax(gradients, loss_scale(2.0**-125, growth_interval=1))
    assert scales == [2.0**-126, 2.0**-126, 2.0**-125]
    np.testing.assert_array_equal(weights[2], START - np.float32(RATE))


def test_at_the_upper_end_torch_stays_and_flax_takes_the_largest_number():
    gradients = np.full((3, 3), 2.0**-10, np.float32)
    options = {"init_scale": 2.0**126, "growth_interval": 1}
    assert run_torch(gradients, grad_scaler(**options))[0] == [2.0**127] * 3
    largest = float(np.finfo(np.float32).max)
    assert run_jax(gradients, loss_scale(**options))[0] == [2.0**127, largest, largest]


def test_a_dynamic_scale_built_by_hand_grows_one_step_later():
    gradients = np.ones((6, 3), np.float32)
    assert run_jax(gradients, DynamicScale(growth_interval=2))[0] == [
        *(2.0**16, 2.0**16, 2.0**17, 2.0**17, 2.0**17, 2.0**18)
    ]
    assert run_jax(gradients, loss_scale(growth_interval=2))[0] == [
        *(2.0**16, 2.0**17, 2.0**17, 2.0**18, 2.0**18, 2.0**19)
    ]


def test_a_loop_of_steps_is_compiled_once():
    step = jax.jit(lambda *args: scaled_step(injected, args[0], args[1], ADAM, *args[2:]))
    params, opt_state, scale = jnp.asarray(START), ADAM.init(jnp.asarray(START)), loss_scale()
    for gradient in draw_gradients(4, 0.5):
        params, opt_state, scale, _ = step(params, opt_state, scale, gradient)
    assert step._cache_size() == 1


def model_loss(params, constants, token_ids):
    """The input part in float16, with the loss in float32."""
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.float16), (params, constants))
    x = transformer_input(token_ids, half[0]["embedding"], half[1])
    return (x.astype(jnp.float32) ** 2).mean()


def test_constants_are_frozen_and_the_model_learns_in_float16():
    table, token_ids = sinusoidal_table(4, 8), jnp.array([[1, 2, 3, 0]])
    params = {"embedding": jax.random.normal(jax.random.key(0), (5, 8))}
    opt_state, scale, before, losses = ADAM.init(params), loss_scale(), table + 0, []
    for _ in range(20):
        params, opt_state, scale, loss = jitted_step(
            model_loss, params, opt_state, ADAM, scale, table, token_ids
        )
        losses.append(loss)
    assert same_bits(table, before)
    assert losses[-1] < losses[0] / 4
    assert params["embedding"].dtype == losses[0].dtype == np.float32


def test_constants_among_the_parameters_are_frozen_by_freeze_and_not_by_masked():
    params = {"w": jnp.ones(3), "table": jnp.asarray(START)}
    mask = {"w": False, "table": True}
    frozen = optax.chain(optax.adamw(RATE), optax.freeze(mask))
    masked = optax.masked(optax.adamw(RATE), {"w": True, "table": False})

    def step(optimizer):
        state = optimizer.init(params)
        return jitted_step(both_summed, params, state, optimizer, loss_scale())[0]

    assert same_bits(step(frozen)["table"], START)
    assert not same_bits(step(frozen)["w"], params["w"])
    np.testing.assert_array_equal(step(masked)["table"], START + 1)


def both_summed(params):
    return params["w"].sum() + params["table"].sum()


def test_inf_on_one_device_leaves_the_step_out_on_all():
    mesh = jax.make_mesh((2,), ("batch",), axis_types=(AxisType.Auto,))
    batch = np.ones((2, 3), np.float32)
    spread = NamedSharding(mesh, PartitionSpec("batch"))
    params = jax.device_put(START, NamedSharding(mesh, PartitionSpec()))
    for value, expected in ((1.0, START - np.float32(2 * RATE)), (np.inf, START)):
        batch[1, 2] = value
        rows = jax.device_put(batch, spread)
        after, *_ = jitted_step(injected_rows, params, SGD.init(params), SGD, loss_scale(), rows)
        for shard in after.addressable_shards:
            assert same_bits(shard.data, expected)


def injected_rows(w, rows):
    return (jnp.broadcast_to(w, rows.shape) * rows).sum()


def take_step(loss_fn=injected, params=START, scale=None):
    scale = loss_scale() if scale is None else scale
    return scaled_step(loss_fn, params, SGD.init(params), SGD, scale, START)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32"])
def test_parameters_that_are_not_float32_are_refused_by_name(dtype):
    params = {"out": [jnp.ones(2), jnp.ones(2, dtype)]}
    with pytest.raises(TypeError, match=rf"`params`\['out'\]\[1\] must be float32, got {dtype}"):
        take_step(params=params)


@pytest.mark.parametrize(
    ("loss_fn", "got"),
    [
        (lambda w, g: (w * g).sum().astype(jnp.float16), r"float16\[\]\. float16 does not"),
        (lambda w, g: w * g, r"float32\[3\]"),
        (lambda w, g: 1.0, "float"),
        (lambda w, g: ((w * g).sum(), w), "tuple"),
    ],
)
def test_a_loss_that_is_not_one_float32_is_refused(loss_fn, got):
    with pytest.raises(TypeError, match=rf"`loss_fn` must return one number of float32, got {got}"):
        take_step(loss_fn)


def test_a_number_in_place_of_the_scale_is_refused():
    with pytest.raises(TypeError, match=r"`scale` must be a .*DynamicScale, got float\. Build one"):
        take_step(scale=65536.0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"init_scale": 0.0}, ValueError, "`init_scale` must be from .*, got 0.0"),
        ({"init_scale": np.inf}, ValueError, "`init_scale` must be from .*, got inf"),
        ({"init_scale": np.nan}, ValueError, "`init_scale` must be from .*, got nan"),
        ({"init_scale": 1, "minimum_scale": 2.0}, ValueError, "`init_scale` must be from 2.0 to"),
        ({"init_scale": "high"}, TypeError, "`init_scale` must be a Python number, got str"),
        ({"growth_factor": 1.0}, ValueError, "`growth_factor` must be from 1.0000000000000002 to"),
        ({"backoff_factor": 1.0}, ValueError, "`backoff_factor` must be from .*, got 1.0"),
        ({"backoff_factor": True}, TypeError, "`backoff_factor` must be a Python number, got bool"),
        ({"growth_interval": 0}, ValueError, "`growth_interval` must be at least 1"),
        ({"growth_interval": 2.5}, TypeError, "`growth_interval` must be a Python integer"),
        ({"minimum_scale": 0.0}, ValueError, "`minimum_scale` must be from .*, got 0.0"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options, error, message):
    with pytest.raises(error, match=message):
        loss_scale(**options)
