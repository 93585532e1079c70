"""Each type of layer goes over with its type's layout: both sides compute the same, and back."""

import flax.linen as ln
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn

from parity.frameworks import torch_layers
from parity.weights import convert, weights_plan

RNGS = nnx.Rngs(0)


def drawn(module):
    """Give every floating tensor random values: biases and statistics start as zeros and ones."""
    torch.manual_seed(1)
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(
                torch.rand(tensor.shape) + 0.1 if "var" in name else torch.randn(tensor.shape)
            )
    return module.eval()


def last(x):
    """Channels first to channels last."""
    return np.moveaxis(x, 1, -1)


def first(y):
    return np.moveaxis(np.asarray(y), -1, 1)


def same(x):
    return x


# name: module of PyTorch, shape of its input, linen, nnx, before and after them
VALID = {"padding": "VALID"}
LAYERS = {
    "linear": (
        lambda: nn.Linear(4, 4),
        (3, 4),
        lambda: ln.Dense(4),
        lambda: nnx.Linear(4, 4, rngs=RNGS),
        same,
        same,
    ),
    "no bias": (
        lambda: nn.Linear(4, 4, bias=False),
        (3, 4),
        lambda: ln.Dense(4, use_bias=False),
        lambda: nnx.Linear(4, 4, use_bias=False, rngs=RNGS),
        same,
        same,
    ),
    "conv1d": (
        lambda: nn.Conv1d(4, 4, 4),
        (2, 4, 6),
        lambda: ln.Conv(4, (4,), **VALID),
        lambda: nnx.Conv(4, 4, (4,), **VALID, rngs=RNGS),
        last,
        first,
    ),
    "conv2d": (
        lambda: nn.Conv2d(3, 3, 3),
        (2, 3, 5, 6),
        lambda: ln.Conv(3, (3, 3), **VALID),
        lambda: nnx.Conv(3, 3, (3, 3), **VALID, rngs=RNGS),
        last,
        first,
    ),
    "grouped conv2d": (
        lambda: nn.Conv2d(4, 6, 3, groups=2),
        (2, 4, 5, 6),
        lambda: ln.Conv(6, (3, 3), feature_group_count=2, **VALID),
        lambda: nnx.Conv(4, 6, (3, 3), feature_group_count=2, **VALID, rngs=RNGS),
        last,
        first,
    ),
    "conv3d": (
        lambda: nn.Conv3d(2, 2, 2),
        (1, 2, 3, 4, 5),
        lambda: ln.Conv(2, (2, 2, 2), **VALID),
        lambda: nnx.Conv(2, 2, (2, 2, 2), **VALID, rngs=RNGS),
        last,
        first,
    ),
    "conv transpose": (
        lambda: nn.ConvTranspose2d(3, 3, 3),
        (2, 3, 4, 5),
        lambda: ln.ConvTranspose(3, (3, 3), **VALID),
        lambda: nnx.ConvTranspose(3, 3, (3, 3), **VALID, rngs=RNGS),
        last,
        first,
    ),
    "conv transpose, kernel transposed": (
        lambda: nn.ConvTranspose2d(2, 3, 3),
        (2, 2, 4, 5),
        lambda: ln.ConvTranspose(3, (3, 3), transpose_kernel=True, **VALID),
        lambda: nnx.ConvTranspose(2, 3, (3, 3), transpose_kernel=True, **VALID, rngs=RNGS),
        last,
        first,
    ),
    "layer norm": (
        lambda: nn.LayerNorm(5),
        (3, 5),
        lambda: ln.LayerNorm(epsilon=1e-5),
        lambda: nnx.LayerNorm(5, epsilon=1e-5, rngs=RNGS),
        same,
        same,
    ),
    "rms norm": (
        lambda: nn.RMSNorm(5, eps=1e-6),
        (3, 5),
        lambda: ln.RMSNorm(),
        lambda: nnx.RMSNorm(5, rngs=RNGS),
        same,
        same,
    ),
    "group norm": (
        lambda: nn.GroupNorm(2, 4),
        (2, 4, 5),
        lambda: ln.GroupNorm(2, epsilon=1e-5),
        lambda: nnx.GroupNorm(4, 2, epsilon=1e-5, rngs=RNGS),
        last,
        first,
    ),
    "batch norm": (
        lambda: nn.BatchNorm1d(4),
        (5, 4),
        lambda: ln.BatchNorm(True),
        lambda: nnx.BatchNorm(4, use_running_average=True, rngs=RNGS),
        same,
        same,
    ),
    "lstm": (
        lambda: nn.LSTM(4, 4, batch_first=True),
        (2, 3, 4),
        lambda: ln.RNN(ln.OptimizedLSTMCell(4)),
        lambda: nnx.RNN(nnx.OptimizedLSTMCell(4, 4, rngs=RNGS)),
        same,
        same,
    ),
    "plain lstm": (
        lambda: nn.LSTM(4, 4, batch_first=True),
        (2, 3, 4),
        lambda: ln.RNN(ln.LSTMCell(4)),
        lambda: nnx.RNN(nnx.LSTMCell(4, 4, rngs=RNGS)),
        same,
        same,
    ),
    "gru": (
        lambda: nn.GRU(4, 4, batch_first=True),
        (2, 3, 4),
        lambda: ln.RNN(ln.GRUCell(4)),
        None,
        same,
        same,
    ),
    "rnn": (
        lambda: nn.RNN(4, 4, batch_first=True),
        (2, 3, 4),
        lambda: ln.RNN(ln.SimpleCell(4)),
        lambda: nnx.RNN(nnx.SimpleCell(4, 4, rngs=RNGS)),
        same,
        same,
    ),
}
CASES = [
    pytest.param(*case, port, id=f"{name}, {port}")
    for name, case in LAYERS.items()
    for port in ("linen", "nnx")
    if case[2 if port == "linen" else 3]
]


def of_torch(module, x):
    result = module(torch.from_numpy(x))
    return (result[0] if isinstance(result, tuple) else result).detach().numpy()


@pytest.mark.parametrize(("reference", "shape", "linen", "nnx_", "before", "after", "port"), CASES)
def test_a_layer_computes_the_same_and_comes_back(
    reference, shape, linen, nnx_, before, after, port
):
    model = drawn(reference())
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    if port == "linen":
        like = linen().init(jax.random.key(0), before(x))
        ours = convert(model, like)
        y = linen().apply(ours, before(x))
    else:
        ours = convert(model, nnx_())
        y = ours(before(x))
    np.testing.assert_allclose(after(y), of_torch(model, x), atol=1e-5, rtol=1e-5)
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(convert(ours, like=model))
    assert bits_of(convert(model, like=ours)) == bits_of(ours)
    if not isinstance(model, nn.RNNBase):  # two biases are one there
        assert bits_of(model.state_dict()) == bits_of(kept)


def bits_of(tree):
    if isinstance(tree, nnx.Module):
        tree = nnx.to_pure_dict(nnx.state(tree, nnx.Any(nnx.Param, nnx.BatchStat)))
    if all(isinstance(value, torch.Tensor) for value in tree.values()):
        return {name: value.numpy().tobytes() for name, value in tree.items()}
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf).tobytes() for path, leaf in leaves}


def test_an_embedding_is_looked_up_alike():
    model = drawn(nn.Embedding(5, 5))
    ids = np.array([[0, 4, 2]])
    like = ln.Embed(5, 5).init(jax.random.key(0), ids)
    for y in (
        ln.Embed(5, 5).apply(convert(model, like), ids),
        convert(model, nnx.Embed(5, 5, rngs=RNGS))(ids),
    ):
        np.testing.assert_array_equal(y, model(torch.from_numpy(ids)).detach().numpy())


@pytest.mark.parametrize("kind", ["module", "state_dict"])
@pytest.mark.parametrize("port", ["linen", "nnx"])
def test_attention_is_unpacked_into_heads(port, kind):
    model = drawn(nn.MultiheadAttention(8, 2, batch_first=True))
    source = model if kind == "module" else model.state_dict()
    x = np.random.default_rng(0).normal(size=(2, 3, 8)).astype(np.float32)
    if port == "linen":
        linen = ln.MultiHeadDotProductAttention(2)
        y = linen.apply(convert(source, linen.init(jax.random.key(0), x, x)), x, x)
    else:
        y = convert(source, nnx.MultiHeadAttention(2, 8, decode=False, rngs=RNGS))(x)
    x = torch.from_numpy(x)
    np.testing.assert_allclose(y, model(x, x, x)[0].detach().numpy(), atol=1e-5)


def test_a_gru_of_nnx_has_no_place_for_one_bias():
    model, like = drawn(nn.GRU(4, 4, batch_first=True)), nnx.RNN(nnx.GRUCell(4, 4, rngs=RNGS))
    with pytest.raises(ValueError, match=r"`bias_hh_l0\[8:12\]` is not zero.*linen\.GRUCell"):
        convert(model, like)
    model.state_dict()["bias_hh_l0"][8:] = 0
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(convert(model, like)(x), of_torch(model, x), atol=1e-5)


class Deep(nn.Module):
    """Layers in a list, BERT's names for attention."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.norm(x)


class Scanned(ln.Module):
    @ln.compact
    def __call__(self, x):
        class Layer(ln.Module):
            @ln.compact
            def __call__(self, x, _):
                return jnp.tanh(ln.Dense(4)(x)), None

        scan = ln.scan(Layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        return ln.LayerNorm(epsilon=1e-5)(scan()(x, None)[0])


def test_layers_are_stacked_for_a_scan():
    model = drawn(Deep())
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    like = Scanned().init(jax.random.key(0), x)
    ours = convert(model, like)
    np.testing.assert_allclose(Scanned().apply(ours, x), of_torch(model, x), atol=1e-5)
    assert bits_of(convert(ours, like=model)) == bits_of(model.state_dict())


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embed.weight


def test_a_tied_tensor_fills_one_leaf_or_both():
    model = drawn(Tied())
    one = convert(model, {"embed": {"embedding": np.zeros((6, 4), np.float32)}})
    assert weights_plan(model, one).left_out == {"head.weight": "tied to embed.weight"}
    both = convert(model, one | {"head": {"kernel": np.zeros((4, 6), np.float32)}})
    np.testing.assert_array_equal(both["head"]["kernel"], both["embed"]["embedding"].T)
    for port in (one, both):
        assert bits_of(convert(port, like=model)) == bits_of(model.state_dict())
    both["head"]["kernel"][0, 0] += 1
    with pytest.raises(ValueError, match="`embed/embedding` and `head/kernel` differ"):
        convert(both, like=model)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_every_bit_comes_back(dtype):
    whole = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
    patterns = torch.randint(-(2**15), 2**15, (64, 32), dtype=whole)
    if dtype.itemsize == 4:
        patterns = patterns * 65_537
    model = nn.Linear(32, 64, bias=False, dtype=dtype)
    model.weight.data = patterns.view(dtype)
    like = {"kernel": jnp.zeros((32, 64), str(dtype).removeprefix("torch."))}
    back = convert(convert(model, like), like=model)
    assert torch.equal(back["weight"].view(whole), patterns)


def test_another_dtype_is_rounded_once_and_said():
    model = nn.Linear(2, 1, bias=False, dtype=torch.float64)
    # Through float32, this would be rounded to the even neighbour below.
    model.weight.data = torch.tensor([[1 + 2**-8 + 2**-40, 1.0]], dtype=torch.float64)
    like = {"kernel": jnp.zeros((2, 1), jnp.bfloat16)}
    ours = convert(model, like)
    assert ours["kernel"].dtype == jnp.bfloat16
    assert float(ours["kernel"][0, 0]) == 1 + 2**-7
    assert "cast from float64 to bfloat16" in str(weights_plan(model, like))


def test_no_memory_is_shared():
    model = drawn(nn.Linear(4, 4))
    for like in ({"kernel": np.zeros((4, 4), np.float32), "bias": np.zeros(4, np.float32)},
                 {"kernel": jnp.zeros((4, 4)), "bias": jnp.zeros(4)}):  # fmt: skip
        ours = convert(model, like)
        kept = np.array(ours["kernel"])
        back = convert(ours, like=model)
        model.weight.data += 1
        np.testing.assert_array_equal(ours["kernel"], kept)
        np.testing.assert_array_equal(back["weight"], kept.T)
        if isinstance(ours["kernel"], np.ndarray):
            ours["kernel"] += 1
            np.testing.assert_array_equal(back["weight"], kept.T)


def test_integers_stay_as_they_are_and_are_listed():
    model = drawn(nn.BatchNorm1d(3))
    model.num_batches_tracked += 7
    like = ln.BatchNorm(True).init(jax.random.key(0), np.zeros((2, 3)))
    assert weights_plan(model, like).left_out == {"num_batches_tracked": "holds integers"}
    back = convert(convert(model, like), like=model)
    assert back["num_batches_tracked"] == 7
    model.load_state_dict(back)


class Classifier(nn.Linear):
    """A layer by another name, with a table's shape."""


def test_a_subclass_is_what_it_derives_from():
    model = drawn(Classifier(4, 4, bias=False))
    assert torch_layers.layers(model)[""].type == "Linear"
    assert torch_layers.layers(model)[""].facts == {"in_features": 4, "out_features": 4}
    ours = convert(model, {"kernel": np.zeros((4, 4), np.float32)})
    np.testing.assert_array_equal(ours["kernel"], model.weight.detach().T)


def test_tied_names_are_recognised_in_a_state_dict_too():
    assert torch_layers.tied(Tied().state_dict()) == {"head.weight": "embed.weight"}


def test_both_of_one_side_are_refused():
    with pytest.raises(TypeError, match="both are of PyTorch"):
        convert(nn.Linear(2, 2), nn.Linear(2, 2))
    with pytest.raises(TypeError, match="neither is of PyTorch"):
        convert({"w": np.zeros(2)}, {"w": np.zeros(2)})
