import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jax_input import memory
from jax_input.memory import pin_memory

DEVICE = jax.memory.Space.Device
DTYPES = ["float32", "bfloat16", "float16", "int32", "int8", "uint16", "bool", "complex64"]


@pytest.fixture(autouse=True)
def _pinned_here():
    if "pinned_host" not in [kind.kind for kind in jax.devices()[0].addressable_memories()]:
        pytest.skip("this backend has no pinned host memory")


def draw(shape=(4, 6), dtype="float32"):
    return np.asarray(8 * np.random.default_rng(0).standard_normal(shape), jnp.dtype(dtype))


def kind_of(array):
    return array.sharding.memory_kind


def same_bits(actual, expected):
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    return actual.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("source", [np.asarray, jnp.asarray])
def test_a_pinned_array_has_the_memory_kind_and_the_same_bits(dtype, source):
    x = draw(dtype=dtype)
    pinned = pin_memory(source(x))
    assert kind_of(pinned) == "pinned_host"
    assert same_bits(pinned, x)


def test_nan_negative_zero_and_denormals_keep_their_bits():
    x = np.array([0x7FC00123, 0xFFC00001, 0x80000000, 0x00000001], np.uint32).view(np.float32)
    assert same_bits(pin_memory(x), x)
    assert same_bits(pin_memory(jnp.asarray(x)), x)


@pytest.mark.parametrize("shape", [(), (0, 3), (1, 1, 1)])
def test_scalars_and_empty_arrays_are_pinned(shape):
    assert kind_of(pin_memory(draw(shape))) == "pinned_host"


def test_every_array_of_a_tree_is_pinned_and_the_tree_keeps_its_form():
    cache = {"key": [jnp.ones((2, 3))], "value": (draw(), None), "rng": jax.random.key(0)}
    pinned = pin_memory(cache)
    assert jax.tree.structure(pinned) == jax.tree.structure(cache)
    assert {kind_of(leaf) for leaf in jax.tree.leaves(pinned)} == {"pinned_host"}
    assert pinned["rng"] == cache["rng"]


def test_an_array_that_is_pinned_keeps_its_buffer():
    once = pin_memory(jnp.ones(5))
    assert pin_memory(once).unsafe_buffer_pointer() == once.unsafe_buffer_pointer()


def test_writing_to_the_numpy_array_later_changes_nothing():
    # JAX shares the memory of NumPy arrays that start at a multiple of 64 bytes.
    room = np.zeros(64 * 64 + 64, np.uint8)
    start = -room.ctypes.data % 64
    x = room[start : start + 64 * 64].view(np.float32)
    pinned = pin_memory(x)
    x[:] = 5
    np.testing.assert_array_equal(pinned, np.zeros(1024, np.float32))


@pytest.mark.parametrize("spec", [PartitionSpec("x"), PartitionSpec(None, "x"), PartitionSpec()])
def test_a_sharded_array_keeps_its_sharding(spec):
    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))
    x = jax.device_put(draw(), NamedSharding(mesh, spec))
    pinned = pin_memory(x)
    assert pinned.sharding == NamedSharding(mesh, spec, memory_kind="pinned_host")
    assert same_bits(pinned, x)
    for ours, theirs in zip(pinned.addressable_shards, x.addressable_shards, strict=True):
        assert (ours.device, ours.index) == (theirs.device, theirs.index)
        assert same_bits(ours.data, theirs.data)


def test_an_array_stays_on_its_device_and_numpy_goes_to_the_default_one():
    second = jax.devices()[1]
    assert pin_memory(jax.device_put(draw(), second)).devices() == {second}
    assert pin_memory(draw()).devices() == {jax.devices()[0]}
    with jax.default_device(second):
        assert pin_memory(draw()).devices() == {second}
    with jax.default_device("cpu"):
        assert pin_memory(draw()).devices() == {jax.devices("cpu")[0]}


def test_a_pinned_array_is_used_in_a_jitted_computation_once_it_is_brought_back():
    x, w = draw(), draw((6, 3))

    @jax.jit
    def outside(x, w):
        return x @ w

    @jax.jit
    def inside(x, w):
        return jax.device_put(x, DEVICE) @ w

    expected = outside(x, w)
    for actual in (inside(pin_memory(x), w), outside(jax.device_put(pin_memory(x), DEVICE), w)):
        assert kind_of(actual) == kind_of(expected) == jax.devices()[0].default_memory().kind
        assert same_bits(actual, expected)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_a_pinned_array_has_a_gradient_where_it_is_brought_back(transform):
    gradient = transform(jax.grad(lambda x: (jax.device_put(x, DEVICE) ** 2).sum()))
    assert same_bits(gradient(pin_memory(draw())), 2 * draw())
    assert kind_of(transform(pin_memory)(pin_memory(draw()))) == "pinned_host"


def test_the_two_kinds_do_not_mix_in_one_operation():
    with pytest.raises(ValueError, match="memory_space of all inputs"):
        jax.jit(jnp.add)(pin_memory(draw()), jnp.asarray(draw()))


def test_rows_of_a_pinned_array_are_brought_back_in_a_scan():
    x = draw()

    def sums(carry, row):
        return carry, jax.device_put(row, DEVICE).sum()

    scanned = jax.jit(lambda rows: jax.lax.scan(sums, None, rows)[1])
    assert same_bits(scanned(pin_memory(x)), scanned(x))


def test_traced_arrays_are_pinned_inside_the_program():
    x = draw()
    pinned = jax.jit(lambda x: pin_memory({"twice": 2 * x, "constant": draw((3,))}))(x)
    assert {kind_of(leaf) for leaf in jax.tree.leaves(pinned)} == {"pinned_host"}
    assert same_bits(pinned["twice"], 2 * x)
    assert same_bits(pinned["constant"], draw((3,)))
    mapped = jax.vmap(pin_memory)(x)
    assert kind_of(mapped) == "pinned_host"
    assert same_bits(mapped, x)


def test_a_traced_array_that_is_sharded_keeps_its_sharding():
    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec("x"))
    pinned = jax.jit(pin_memory)(jax.device_put(draw(), sharding))
    assert pinned.sharding == sharding.with_memory_kind("pinned_host")


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_the_gradient_goes_through(transform):
    gradient = transform(jax.grad(lambda x: (jax.device_put(pin_memory(x), DEVICE) ** 2).sum()))
    assert same_bits(gradient(jnp.asarray(draw())), 2 * draw())


class FakeDevice:
    platform = "abacus"

    def addressable_memories(self):
        return [SimpleNamespace(kind="device"), SimpleNamespace(kind="unpinned_host")]


@pytest.fixture
def without_pinned(monkeypatch):
    monkeypatch.setattr(memory, "_device_of", lambda leaf: FakeDevice())


@pytest.mark.usefixtures("without_pinned")
def test_a_backend_without_pinned_memory_leaves_the_tree_and_says_so_once():
    tree = {"key": jnp.ones(3), "value": draw()}
    with pytest.warns(UserWarning, match="Nothing was pinned") as caught:
        same = pin_memory(tree)
    assert [str(warning.message) for warning in caught] == [
        "Nothing was pinned: the backend abacus has no pinned host memory; its memories: device, "
        "unpinned_host. The arrays stay where they were, which is as right, only slower to "
        "transfer."
    ]
    assert caught[0].filename == __file__
    assert same.keys() == tree.keys()
    assert all(same[name] is tree[name] for name in tree)


def test_the_memories_asked_are_those_of_the_default_device(monkeypatch):
    _, second = jax.devices()
    kinds = memory._memory_kinds
    monkeypatch.setattr(memory, "_memory_kinds", lambda device: kinds(device) * (device != second))
    x, y = draw(), jnp.ones(3)
    with jax.default_device(second):
        with pytest.warns(UserWarning, match="Nothing was pinned"):
            assert pin_memory(x) is x
        assert kind_of(pin_memory(y)) == "pinned_host"
    assert kind_of(pin_memory(x)) == "pinned_host"


@pytest.mark.usefixtures("without_pinned")
def test_an_empty_tree_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pin_memory({"cache": None}) == {"cache": None}


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (3.0, r"`tree`\['x'\] must be a JAX or NumPy array, got float\."),
        ("word", r"`tree`\['x'\] must be a JAX or NumPy array, got str\."),
        (np.array(["word"]), r"`tree`\['x'\] must hold numbers .*, got <U4\."),
        (np.array([None]), r"`tree`\['x'\] must hold numbers .*, got \|O\."),
        (np.ones(2, ">f4"), r"`tree`\['x'\] must hold numbers .*, got >f4\."),
        (np.ones(2), r"`tree`\['x'\] is float64, which JAX cuts to float32 .* Cast it to float32,"),
        (np.ones(2, int), r"`tree`\['x'\] is int64, which JAX cuts to int32 where x64 is off"),
    ],
)
def test_what_cannot_be_pinned_as_it_is_is_refused_by_its_place(leaf, message):
    with pytest.raises(TypeError, match=message):
        pin_memory({"x": leaf})


def test_wide_numbers_are_pinned_where_x64_is_on():
    x = np.array([2**53 + 1, -1])
    with jax.enable_x64(True):
        assert same_bits(pin_memory(x), x)
