"""Plans, without any framework: what pairs with what, which layout, what is refused and how."""

import numpy as np
import pytest

from parity.placement import Layer, MappingError, plan

LINEAR, EMBEDDING, NORM = Layer("Linear"), Layer("Embedding"), Layer("LayerNorm")


def drawn(shapes, seed=0, dtype=np.float32):
    random = np.random.default_rng(seed)
    return {name: random.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def targets(found):
    return {placement.torch: placement.leaf for placement in found.placements}


def linear(*paths, shape=(4, 4)):
    return {f"{path}.weight": shape for path in paths}, dict.fromkeys(paths, LINEAR)


def test_a_plan_reads_as_a_map():
    found = plan({"fc2.weight": (16, 32)}, {"fc2": LINEAR}, {"Dense_1/kernel": (32, 16)})
    line = "fc2.weight [16,32] -> Dense_1/kernel [32,16] transposed (Linear)"
    assert str(found) == line


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (["fc1", "fc2"], ["Dense_0", "Dense_1"]),
        (["net.0", "net.2", "net.10"], ["Dense_0", "Dense_1", "Dense_2"]),
        (["fc1", "fc2"], ["Dense_1", "Dense_0"]),
        ([f"l{n}" for n in range(12)], [f"Dense_{n}" for n in sorted(range(12), key=str)]),
        (["up", "down"], ["down_proj", "up_proj"]),
        (["q", "k", "v", "out_proj"], ["key", "out", "query", "value"]),
        (["enc.layers.0.fc", "enc.layers.1.fc"], ["encoder/layers_0/fc", "encoder/layers_1/fc"]),
        (["encoder.fc", "decoder.fc"], ["decoder/Dense_0", "encoder/Dense_0"]),
    ],
)
def test_square_layers_pair_by_name_and_number(ours, theirs):
    tensors, layers = linear(*ours)
    found = plan(tensors, layers, {f"{path}/kernel": (4, 4) for path in theirs})
    natural = sorted(theirs, key=lambda path: [int(n) for n in path.split("_") if n.isdigit()])
    by_word = {"up": "up_proj", "down": "down_proj", "q": "query", "k": "key", "v": "value"} | {
        "out_proj": "out",
        "encoder.fc": "encoder/Dense_0",
        "decoder.fc": "decoder/Dense_0",
    }
    for number, path in enumerate(ours):
        expected = by_word.get(path, natural[number])
        assert targets(found)[f"{path}.weight"] == f"{expected}/kernel"


def test_numbered_layers_that_names_leave_open_go_by_order():
    tensors, layers = linear("fc1", "fc2")
    found = targets(
        plan(tensors, layers, {"inner/Dense_0/kernel": (4, 4), "Dense_1/kernel": (4, 4)})
    )
    assert found == {"fc1.weight": "inner/Dense_0/kernel", "fc2.weight": "Dense_1/kernel"}


def test_neither_names_nor_numbers_is_refused():
    tensors, layers = linear("left", "right")
    leaves = {"hidden/kernel": (4, 4), "second/kernel": (4, 4)}
    with pytest.raises(MappingError, match=r"`left\.weight` and `right\.weight` fit.*either way"):
        plan(tensors, layers, leaves)
    found = plan(tensors, layers, leaves, {"left": "second"})
    assert targets(found)["right.weight"] == "hidden/kernel"


def test_names_that_tell_half_do_not_overrule_the_order():
    """The first of PyTorch is as far from either, the second is nearer to the first here."""
    tensors = {"first.weight": (4,), "after_attention.weight": (4,)}
    layers = {"first": NORM, "after_attention": NORM}
    leaves = {"attention/scale": (4,), "mlp/scale": (4,)}
    with pytest.raises(MappingError, match="either way"):
        plan(tensors, layers, leaves)


@pytest.mark.parametrize("first", ["input_layernorm", "before"])
def test_the_norm_after_attention_is_that_of_the_mlp(first):
    names = (first, "post_attention_layernorm")
    tensors = {f"{name}.weight": (4,) for name in names}
    leaves = {"mlp_norm/scale": (4,), "attn_norm/scale": (4,)}
    found = plan(tensors, dict.fromkeys(names, NORM), leaves)
    assert targets(found)[f"{first}.weight"] == "attn_norm/scale"


def test_layers_in_lists_pair_number_by_number():
    """In each of them the order is another: JAX sorts names by their letters."""
    ours = [f"layers.{n}.{name}" for n in range(12) for name in ("q", "k", "v", "out")]
    names = ("key", "out", "query", "value")
    theirs = [f"layers_{n}/{name}" for n in sorted(range(12), key=str) for name in names]
    tensors, layers = linear(*ours)
    found = targets(plan(tensors, layers, {f"{path}/kernel": (4, 4) for path in theirs}))
    for number in range(12):
        assert found[f"layers.{number}.q.weight"] == f"layers_{number}/query/kernel"
        assert found[f"layers.{number}.out.weight"] == f"layers_{number}/out/kernel"


def test_both_directions_of_every_layer_of_an_lstm():
    ways = {"": "forward", "_reverse": "backward"}
    tensors = {f"lstm.weight_ih_l{n}{way}": (16, 8 if n else 4) for n in (0, 1) for way in ways}
    tensors |= {f"lstm.weight_hh_l{n}{way}": (16, 4) for n in (0, 1) for way in ways}
    leaves = {}
    for number in (0, 1):
        for way in sorted(ways.values()):
            cell = f"rnn_{number}/{way}/cell"
            leaves |= {f"{cell}/i{gate}/kernel": (8 if number else 4, 4) for gate in "ifgo"}
            leaves |= {f"{cell}/h{gate}/kernel": (4, 4) for gate in "ifgo"}
    found = targets(plan(tensors, {"lstm": Layer("LSTM")}, leaves))
    for number in (0, 1):
        for way, name in ways.items():
            gate = f"lstm.weight_hh_l{number}{way}[4:8]"
            assert found[gate] == f"rnn_{number}/{name}/cell/hf/kernel"


def test_what_is_left_over_is_listed_on_both_sides_with_the_nearest():
    tensors = {"fc.weight": (4, 3), "fc.bias": (4,), "extra.weight": (5, 2)}
    leaves = {"Dense_0/kernel": (3, 4), "Dense_0/bias": (4,), "other/kernel": (7, 2)}
    with pytest.raises(MappingError) as error:
        plan(tensors, {"fc": LINEAR, "extra": LINEAR}, leaves)
    text = str(error.value)
    assert "extra.weight [5,2]   nearest: other/kernel [7,2]" in text
    assert "other/kernel [7,2]   nearest: extra.weight [5,2]" in text
    assert 'mapping={"extra.weight": "other/kernel"}' in text
    assert "fc" not in text


def test_a_bias_that_only_one_side_has_is_left_over_alone():
    tensors = {"fc.weight": (4, 4), "fc.bias": (4,)}
    with pytest.raises(MappingError) as error:
        plan(tensors, {"fc": LINEAR}, {"Dense_0/kernel": (4, 4)})
    assert "fc.bias [4]" in str(error.value)
    assert "fc.weight" not in str(error.value)


def test_a_type_never_goes_into_the_leaf_of_another():
    """The shapes would fit."""
    for layer, leaf in ((EMBEDDING, "x/kernel"), (LINEAR, "x/embedding"), (LINEAR, "x/scale")):
        with pytest.raises(MappingError, match="not filled"):
            plan({"x.weight": (4, 4)}, {"x": layer}, {leaf: (4, 4)})


@pytest.mark.parametrize("transposed", [True, False])
def test_a_square_leaf_of_no_telling_name_lies_as_the_others_do(transposed):
    tensors = {"fc1.weight": (4, 4), "fc2.weight": (3, 4)}
    layers = {"fc1": LINEAR, "fc2": LINEAR}
    leaves = {"w1": (4, 4), "w2": (4, 3) if transposed else (3, 4)}
    weights = drawn(tensors)
    placed = plan(tensors, layers, leaves).place(weights)
    expected = weights["fc1.weight"].T if transposed else weights["fc1.weight"]
    np.testing.assert_array_equal(placed["w1"], expected)


def test_a_square_leaf_without_evidence_is_refused_and_settled():
    tensors, layers = linear("fc")
    with pytest.raises(MappingError, match=r'"fc\.weight": \{"leaf": "w1", "transposed": True'):
        plan(tensors, layers, {"w1": (4, 4)})
    weights = drawn(tensors)
    for transposed in (True, False):
        mapping = {"fc.weight": {"leaf": "w1", "transposed": transposed}}
        placed = plan(tensors, layers, {"w1": (4, 4)}, mapping).place(weights)["w1"]
        np.testing.assert_array_equal(placed.T if transposed else placed, weights["fc.weight"])
    found = plan(tensors, layers, {"w1": (4, 4)}, convention="torch")
    np.testing.assert_array_equal(found.place(weights)["w1"], weights["fc.weight"])


@pytest.mark.parametrize("shape", [(4, 12), (4, 3, 2, 2), (3, 4, 4)])
def test_query_key_and_value_go_into_one_leaf(shape):
    tensors, layers = linear("a.query", "a.key", "a.value")
    weights = drawn(tensors)
    found = plan(tensors, layers, {"a/qkv/kernel": shape})
    kernel = found.place(weights)["a/qkv/kernel"]
    ordered = [weights[f"a.{name}.weight"].T for name in ("query", "key", "value")]
    expected = np.stack(ordered) if shape[0] == 3 else np.concatenate(ordered, 1).reshape(shape)
    np.testing.assert_array_equal(kernel, expected)
    for name, array in found.back({"a/qkv/kernel": kernel}).items():
        np.testing.assert_array_equal(array, weights[name])


def test_a_packed_layer_goes_into_three():
    weights = drawn({"a.in_proj_weight": (12, 4), "a.in_proj_bias": (12,)})
    leaves = {f"a/{n}/kernel": (4, 2, 2) for n in ("key", "query", "value")}
    leaves |= {f"a/{n}/bias": (2, 2) for n in ("key", "query", "value")}
    placed = plan(weights, {"a": Layer("MultiheadAttention")}, leaves).place(weights)
    for number, name in enumerate(("query", "key", "value")):
        rows = weights["a.in_proj_weight"][4 * number : 4 * number + 4]
        np.testing.assert_array_equal(placed[f"a/{name}/kernel"].reshape(4, 4), rows.T)


def test_conv1d_of_transformers_is_in_out_already():
    tensors = {"c_fc.weight": (4, 4)}
    weights = drawn(tensors)
    placed = plan(tensors, {"c_fc": Layer("Conv1D")}, {"c_fc/kernel": (4, 4)}).place(weights)
    np.testing.assert_array_equal(placed["c_fc/kernel"], weights["c_fc.weight"])


def test_conv1d_of_transformers_packs_columns():
    weights = drawn({"c_attn.weight": (6, 18), "c_attn.bias": (18,)})
    leaves = {f"{name}/kernel": (6, 6) for name in ("query", "key", "value")}
    leaves |= {f"{name}/bias": (6,) for name in ("query", "key", "value")}
    placed = plan(weights, {"c_attn": Layer("Conv1D")}, leaves).place(weights)
    np.testing.assert_array_equal(placed["key/kernel"], weights["c_attn.weight"][:, 6:12])
    np.testing.assert_array_equal(placed["key/bias"], weights["c_attn.bias"][6:12])


def test_collections_are_no_part_of_a_module():
    tensors = {f"bn.{n}": (3,) for n in ("weight", "bias", "running_mean", "running_var")}
    leaves = {"params/BatchNorm_0/scale": (3,), "params/BatchNorm_0/bias": (3,)}
    leaves |= {"batch_stats/BatchNorm_0/mean": (3,), "batch_stats/BatchNorm_0/var": (3,)}
    found = plan(tensors, {"bn": Layer("BatchNorm1d")}, leaves)
    assert targets(found)["bn.running_var"] == "batch_stats/BatchNorm_0/var"
    assert targets(found)["bn.weight"] == "params/BatchNorm_0/scale"


@pytest.mark.parametrize("known", [True, False])
def test_equinox_keeps_the_layout_of_torch(known):
    tensors = {"cell.weight_ih": (12, 3), "cell.weight_hh": (12, 4)}
    tensors |= {"cell.bias_ih": (12,), "cell.bias_hh": (12,), "conv.weight": (2, 3, 5)}
    tensors |= {"conv.bias": (2,)}
    layers = {"cell": Layer("GRUCell"), "conv": Layer("Conv1d")} if known else {}
    leaves = {"cell/weight_ih": (12, 3), "cell/weight_hh": (12, 4), "cell/bias": (12,)}
    leaves |= {"cell/bias_n": (4,), "conv/weight": (2, 3, 5), "conv/bias": (2, 1)}
    weights = drawn(tensors)
    placed = plan(tensors, layers, leaves).place(weights)
    np.testing.assert_array_equal(placed["cell/weight_ih"], weights["cell.weight_ih"])
    both = weights["cell.bias_ih"] + weights["cell.bias_hh"]
    np.testing.assert_array_equal(placed["cell/bias"][:8], both[:8])
    np.testing.assert_array_equal(placed["cell/bias"][8:], weights["cell.bias_ih"][8:])
    np.testing.assert_array_equal(placed["cell/bias_n"], weights["cell.bias_hh"][8:])
    np.testing.assert_array_equal(placed["conv/weight"], weights["conv.weight"])


def test_two_biases_come_back_as_the_second():
    weights = drawn({"weight_ih_l0": (4, 4), "weight_hh_l0": (4, 4)})
    weights |= drawn({"bias_ih_l0": (4,), "bias_hh_l0": (4,)}, seed=1)
    leaves = {"i/kernel": (4, 4), "i/bias": (4,), "h/kernel": (4, 4)}
    found = plan(weights, {"": Layer("RNN")}, leaves)
    placed = found.place(weights)
    back = found.back(placed)
    assert not back["bias_ih_l0"].any()
    np.testing.assert_array_equal(back["bias_hh_l0"], placed["i/bias"])
    pulled = found.pull_back(placed)
    np.testing.assert_array_equal(pulled["bias_ih_l0"], placed["i/bias"])
    np.testing.assert_array_equal(pulled["bias_hh_l0"], placed["i/bias"])


def test_adding_nothing_keeps_the_sign_of_zero():
    weights = drawn({"weight_ih_l0": (1, 1), "weight_hh_l0": (1, 1)})
    weights |= {"bias_ih_l0": np.zeros(1, np.float32), "bias_hh_l0": -np.zeros(1, np.float32)}
    leaves = {"i/kernel": (1, 1), "i/bias": (1,), "h/kernel": (1, 1)}
    assert np.signbit(plan(weights, {"": Layer("RNN")}, leaves).place(weights)["i/bias"])


def test_gradients_of_tied_leaves_are_added():
    tensors = {"embed.weight": (6, 4), "head.weight": (6, 4)}
    layers = {"embed": EMBEDDING, "head": LINEAR}
    leaves = {"embed/embedding": (6, 4), "head/kernel": (4, 6)}
    found = plan(tensors, layers, leaves, tied={"head.weight": "embed.weight"})
    gradients = drawn(leaves)
    expected = gradients["embed/embedding"] + gradients["head/kernel"].T
    for array in found.pull_back(gradients).values():
        np.testing.assert_array_equal(array, expected)
    alone = {"embed/embedding": gradients["embed/embedding"]}
    np.testing.assert_array_equal(
        found.pull_back(alone)["embed.weight"], gradients["embed/embedding"]
    )


def test_pulling_back_is_the_adjoint_of_placing():
    weights = drawn({"fc.weight": (5, 6), "fc.bias": (5,)}, dtype=np.float64)
    found = plan(weights, {"fc": LINEAR}, {"fc/kernel": (6, 5), "fc/bias": (5,)})
    placed, gradients = found.place(weights), drawn({"fc/kernel": (6, 5), "fc/bias": (5,)})
    pulled = found.pull_back(gradients)
    theirs = sum((placed[path] * gradients[path]).sum() for path in placed)
    ours = sum((weights[name] * pulled[name]).sum() for name in weights)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_only_some_lists_are_stacked():
    tensors, layers = linear(*(f"{part}.layers.{n}.fc" for part in ("enc", "dec") for n in (0, 1)))
    leaves = {"encoder/layers/Dense_0/kernel": (2, 4, 4)}
    leaves |= {f"decoder/layers_{n}/Dense_0/kernel": (4, 4) for n in (0, 1)}
    found = plan(tensors, layers, leaves)
    assert targets(found)["enc.layers.1.fc.weight"] == "encoder/layers/Dense_0/kernel[1]"
    assert targets(found)["dec.layers.1.fc.weight"] == "decoder/layers_1/Dense_0/kernel"


def test_a_missing_tensor_is_named():
    tensors, layers = linear("fc")
    with pytest.raises(MappingError, match=r"`weights` has no `fc\.weight`"):
        plan(tensors, layers, {"fc/kernel": (4, 4)}).place({})


def test_a_bare_parameter_goes_as_it_is():
    tensors = {"cls_token": (1, 1, 4), "pos_embed": (1, 5, 4)}
    found = plan(tensors, {"": Layer("ViT")}, {"cls": (1, 1, 4), "pos_embedding": (1, 5, 4)})
    assert targets(found) == {"cls_token": "cls", "pos_embed": "pos_embedding"}
