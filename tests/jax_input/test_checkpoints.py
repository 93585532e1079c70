import io

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jax_input.checkpoints import restore, restore_table
from jax_input.linen import TransformerInput
from jax_input.nnx import Constant
from jax_input.nnx import TransformerInput as NnxInput
from jax_input.sinusoidal import MARIAN, TENSOR2TENSOR, Sinusoid, sinusoidal_table

IDS = jnp.asarray([[5, 0, 3, 0, 1, 7], [2, 2, 9, 4, 0, 0]])
D_MODEL = 16


def published(max_len, d_model=D_MODEL):
    """The formula of the articles, in float32."""
    step = np.arange(0, d_model, 2, dtype=np.float32)
    frequency = np.exp(step * np.float32(-np.log(10_000.0) / d_model))
    angle = np.arange(max_len, dtype=np.float32)[:, None] * frequency
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(max_len, d_model)


def exact(max_len, **options):
    return np.asarray(sinusoidal_table(max_len, D_MODEL, **options))


# One table.


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("rows", [40, 60, 100])
def test_an_exact_table_is_told_in_every_dtype(dtype, rows):
    found = restore_table(exact(rows, dtype=dtype), 60, D_MODEL)
    assert (found.origin, found.difference) == ("exact", 0.0)
    assert found.table.dtype == dtype
    np.testing.assert_array_equal(found.table, exact(60, dtype=dtype))


@pytest.mark.parametrize("sinusoid", [MARIAN, TENSOR2TENSOR, Sinusoid(100.0)])
def test_a_table_is_held_against_the_convention_of_the_model(sinusoid):
    stored = exact(60, sinusoid=sinusoid)
    found = restore_table(stored, 60, D_MODEL, sinusoid=sinusoid)
    assert found.origin == "exact"
    with pytest.raises(ValueError, match="`table` is neither the exact table of Sinusoid"):
        restore_table(stored, 60, D_MODEL)


def test_a_float64_table_is_exact_or_kept_as_close_where_x64_is_on():
    angle = np.arange(60)[:, None] * 10_000.0 ** (-np.arange(0, D_MODEL, 2) / D_MODEL)
    stored = np.stack([np.sin(angle), np.cos(angle)], -1).reshape(60, D_MODEL)
    with jax.enable_x64(True):
        found = restore_table(stored, 60, D_MODEL)
        assert found.difference < 1e-13
        np.testing.assert_array_equal(found.table, stored)
        wide = exact(60, dtype=jnp.float64)
        assert restore_table(wide, 60, D_MODEL).origin == "exact"
    # The same table for a float32 model: its rows are rounded once.
    found = restore_table(stored, 60, D_MODEL, dtype=jnp.float32)
    np.testing.assert_array_equal(found.table, stored.astype(np.float32))
    with pytest.raises(ValueError, match="`dtype` is float64, which JAX has only where x64 is on"):
        restore_table(stored, 60, D_MODEL)


@pytest.mark.parametrize(("rows", "difference"), [(60, 3.1e-6), (5_000, 3.9e-4)])
def test_a_published_table_is_kept_bit_for_bit_and_its_distance_said(rows, difference):
    torch_side = pytest.importorskip("torch_ref.published")
    stored = torch_side.published_table(rows, 512).numpy()
    found = restore_table(stored, rows, 512)
    assert found.origin == "published"
    assert found.difference == pytest.approx(difference, rel=0.05)
    assert np.asarray(found.table).tobytes() == stored.tobytes()


def test_one_option_puts_the_exact_table_in_its_place():
    found = restore_table(published(60), 60, D_MODEL, exact=True)
    assert found.origin == "published"
    assert 1e-7 < found.difference < 4e-6
    np.testing.assert_array_equal(found.table, exact(60))


def test_a_published_table_is_cut_or_continued_with_exact_rows():
    stored = published(60)
    np.testing.assert_array_equal(restore_table(stored, 40, D_MODEL).table, stored[:40])
    longer = restore_table(stored, 5_000, D_MODEL).table
    np.testing.assert_array_equal(longer[:60], stored)
    np.testing.assert_array_equal(longer[60:], exact(5_000)[60:])


def test_a_continued_table_is_told_again():
    longer = restore_table(published(60), 100, D_MODEL)
    again = restore_table(longer.table, 100, D_MODEL)
    assert (again.origin, again.difference) == (longer.origin, longer.difference)
    np.testing.assert_array_equal(again.table, longer.table)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_a_kept_table_of_a_16_bit_model_is_rounded_once_and_told_again(dtype):
    found = restore_table(published(5_000), 5_000, D_MODEL, dtype=dtype)
    np.testing.assert_array_equal(found.table, published(5_000).astype(dtype))
    again = restore_table(found.table, 5_000, D_MODEL)
    assert again.origin == "published"
    np.testing.assert_array_equal(again.table, found.table)


def test_a_published_table_in_16_bits_is_too_coarse_for_more():
    stored = published(5_000).astype(jnp.bfloat16)
    message = "`table` holds the published formula in bfloat16, which is too coarse for float32"
    with pytest.raises(ValueError, match=message):
        restore_table(stored, 60, D_MODEL, dtype=jnp.float32)
    found = restore_table(stored, 60, D_MODEL, dtype=jnp.float32, exact=True)
    np.testing.assert_array_equal(found.table, exact(60))


@pytest.mark.parametrize("axes", [(None, ...), (slice(None), None)])
def test_the_axis_of_1_of_the_articles_is_left_out(axes):
    stored = published(60)
    np.testing.assert_array_equal(restore_table(stored[axes], 60, D_MODEL).table, stored)


FOREIGN = {
    "base 9,990": (exact(60, sinusoid=Sinusoid(9_990.0)), "row 1, column 2"),
    "base 10,010": (exact(5_000, sinusoid=Sinusoid(10_010.0)), "row 1, column 2"),
    "bfloat16": (exact(60, dtype=jnp.bfloat16).astype(np.float32), "row 1, column 0"),
    "published in bfloat16": (
        *(published(60).astype(jnp.bfloat16).astype(np.float32), "row 1, column 0"),
    ),
    "shifted by one": (exact(61)[1:], "row 0, column 0"),
    "halves": (exact(60, sinusoid=MARIAN), "row 0, column 1"),
    "sine and cosine exchanged": (exact(60, sinusoid=Sinusoid(cos_first=True)), "row 0, column 0"),
    "negated": (-exact(60), "row 0, column 1"),
    "scaled": (exact(60) * np.float32(1.0001), "row 0, column 1"),
    "decayed": (published(60) * np.float32(0.99), "row 0, column 1"),
    "not a number": (np.where(np.arange(60)[:, None] == 7, np.nan, exact(60)), "row 7, column 0"),
    "far row": (
        np.where(np.arange(9_000)[:, None] == 8_500, 2, exact(9_000)),
        "row 8500, column 0",
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("swap", [False, True])
def test_any_other_table_is_refused_with_its_first_row_and_column(name, swap):
    stored, place = FOREIGN[name]
    with pytest.raises(ValueError, match=rf"`pe` is neither .*: {place} holds"):
        restore_table(stored.astype(np.float32), 60, D_MODEL, exact=swap, name="pe")


def test_a_table_in_memory_that_changes_later_stays_as_it_was():
    stored = published(4_096, 512)
    expected = stored.copy()
    found = [restore_table(stored, 4_096, 512).table for _ in range(3)]
    stored[:] = -1
    for table in found:
        np.testing.assert_array_equal(table, expected)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (np.zeros((60, 8), np.float32), "`table` has 8 columns, but `d_model` is 16"),
        (np.zeros((2, 60, 16), np.float32), r"`table` must have shape .*, got \[2, 60, 16\]"),
        (np.zeros((60,), np.float32), r"`table` must have shape .*, got \[60\]"),
        (np.zeros((0, 16), np.float32), r"`table` must have shape .*, got \[0, 16\]"),
    ],
)
def test_a_table_of_another_shape_raises(stored, message):
    with pytest.raises(ValueError, match=message):
        restore_table(stored, 60, D_MODEL)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (np.zeros((60, 16), np.int32), "`table` must hold floats, got int32"),
        (np.full((60, 16), None), "`table` must be an array of numbers, got dtype object"),
        ([[0.0, 1.0]], "`table` must be an array of numbers, got list"),
        ("table.pkl", "`table` must be an array of numbers, got str"),
    ],
)
def test_what_is_no_array_of_floats_raises(stored, message):
    with pytest.raises(TypeError, match=message):
        restore_table(stored, 60, D_MODEL)


@pytest.mark.parametrize(("max_len", "d_model"), [(0, 16), (60, 0)])
def test_sizes_are_checked(max_len, d_model):
    with pytest.raises(ValueError, match="must be at least 1"):
        restore_table(exact(60), max_len, d_model)


# A whole state.


def linen(max_len=60, **options):
    model = TransformerInput(
        vocab_size=10, d_model=D_MODEL, max_len=max_len, deterministic=True, **options
    )
    return model, jax.eval_shape(model.init, jax.random.key(0), IDS)


def state(table=None, name="position_table"):
    embedding = np.random.default_rng(0).standard_normal((10, D_MODEL)).astype(np.float32)
    return {"embedding": embedding} | ({} if table is None else {name: table})


def variables(table=None):
    flat = state(table)
    constants = {} if table is None else {"constants": {"position_table": table}}
    return {"params": {"embedding": flat["embedding"]}, **constants}


@pytest.mark.parametrize("max_len", [40, 60, 5_000])
@pytest.mark.parametrize("stored_rows", [None, 60, 5_000])
def test_a_state_of_any_max_len_or_without_a_table_loads(max_len, stored_rows):
    """Built from shapes alone, the model ends with its true table."""
    model, target = linen(max_len)
    stored = variables(None if stored_rows is None else exact(stored_rows))
    restored, notes = restore(stored, target)
    assert notes == ()
    assert jax.tree.structure(restored) == jax.tree.structure(target)
    np.testing.assert_array_equal(restored["constants"]["position_table"], exact(max_len))
    np.testing.assert_array_equal(restored["params"]["embedding"], stored["params"]["embedding"])
    x = model.apply({"params": restored["params"]}, IDS)
    np.testing.assert_array_equal(model.apply(restored, IDS), x)


def test_a_state_with_a_table_loads_into_a_model_without():
    restored, notes = restore(variables(exact(60)), {"params": linen()[1]["params"]})
    assert list(restored) == ["params"]
    assert notes == ()


def test_a_published_table_is_kept_and_a_line_says_so():
    model, target = linen(60)
    restored, notes = restore(variables(published(60)), target)
    np.testing.assert_array_equal(restored["constants"]["position_table"], published(60))
    (note,) = notes
    difference = np.abs(published(60) - exact(60)).max()
    assert note == (
        f"`position_table`: the published float32 formula, up to {difference:.1e} from the exact "
        "table; kept."
    )
    model.apply(restored, IDS)
    restored, (note,) = restore(variables(published(60)), target, exact=True)
    np.testing.assert_array_equal(restored["constants"]["position_table"], exact(60))
    assert note.endswith("replaced by the exact table.")
    _, (note,) = restore(variables(published(60)), {"params": target["params"]})
    assert note.endswith("left out, since the model has no place for it.")


@pytest.mark.parametrize("with_place", [False, True])
def test_a_foreign_table_is_refused_even_where_it_has_no_place(with_place):
    target = linen()[1] if with_place else {"params": linen()[1]["params"]}
    with pytest.raises(ValueError, match=r"`position_table` is neither .*: row 0, column 1"):
        restore(variables(exact(60, sinusoid=MARIAN)), target)


@pytest.mark.parametrize("name", ["pe", "position_table"])
@pytest.mark.parametrize(("rows", "max_len"), [(60, 5_000), (60, 40)])
def test_arrays_of_a_pytorch_state_load_and_go_back(name, rows, max_len):
    torch = pytest.importorskip("torch")
    table = torch.from_numpy(published(rows))[None]
    weight = torch.from_numpy(state()["embedding"])
    stored = {"embedding": weight.numpy(), name: table.numpy()}
    _, target = linen(max_len)
    restored, _ = restore(stored, target)
    found = restored["constants"]["position_table"]
    np.testing.assert_array_equal(found[:rows], published(rows)[:max_len])
    np.testing.assert_array_equal(found[rows:], exact(max_len)[rows:])

    back, _ = restore(restored, stored)
    assert {key: value.shape for key, value in back.items()} == {
        "embedding": (10, D_MODEL),
        name: (1, rows, D_MODEL),
    }
    kept = min(rows, max_len)
    np.testing.assert_array_equal(back[name][0, :kept], published(rows)[:kept])
    assert torch.equal(torch.from_numpy(np.array(back["embedding"])), weight)


@pytest.mark.parametrize("table", [exact, published])
@pytest.mark.parametrize("max_len", [40, 5_000])
def test_a_state_of_ours_loads_into_the_module_of_pytorch(max_len, table):
    torch = pytest.importorskip("torch")
    reference = pytest.importorskip("torch_ref")
    model, _ = linen(60)
    stored = variables(table(60))
    module = reference.TransformerInput(vocab_size=10, d_model=D_MODEL, max_len=max_len).eval()
    named = {
        "embeddings.embedding": stored["params"]["embedding"],
        "positional_encoding.position_table": stored["constants"]["position_table"],
    }
    module.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in named.items()})
    x = module(torch.from_numpy(np.array(IDS))).detach()
    np.testing.assert_array_equal(x, model.apply(stored, IDS))


def test_steps_of_a_path_may_be_dots():
    stored = {"encoder.input.embedding": state()["embedding"], "encoder.input.pe": exact(60)}
    target = {
        "params": {"encoder": {"input": linen()[1]["params"]}},
        "constants": {"encoder": {"input": linen()[1]["constants"]}},
    }
    restored, _ = restore(stored, target)
    assert jax.tree.map(jnp.shape, restored) == jax.tree.map(lambda leaf: leaf.shape, target)


def test_linen_and_nnx_read_the_states_of_each_other():
    model, target = linen(60)
    other = NnxInput(vocab_size=10, d_model=D_MODEL, max_len=70, rngs=nnx.Rngs(0))
    other.eval()
    place = nnx.state(other, (nnx.Param, Constant))
    nnx.update(other, restore(variables(exact(60)), place)[0])
    restored, _ = restore(nnx.to_pure_dict(nnx.state(other, (nnx.Param, Constant))), target)
    np.testing.assert_array_equal(model.apply(restored, IDS), other(IDS))
    np.testing.assert_array_equal(other.embedding[...], state()["embedding"])


@pytest.mark.parametrize("serialised", ["msgpack", "npz"])
def test_a_saved_state_loads_without_pickle(serialised):
    model, target = linen(60)
    before = model.init(jax.random.key(0), IDS)
    if serialised == "msgpack":
        stored = flax.serialization.msgpack_restore(flax.serialization.to_bytes(before))
    else:
        file = io.BytesIO()
        flat = flax.traverse_util.flatten_dict(before, sep=".")
        np.savez(file, **flat)
        file.seek(0)
        stored = dict(np.load(file, allow_pickle=False))
    restored, notes = restore(stored, target)
    assert notes == ()
    jax.tree.map(np.testing.assert_array_equal, restored, before)


def test_weights_come_in_the_dtype_of_the_model():
    _, target = linen(param_dtype=jnp.bfloat16)
    restored, _ = restore(variables(), target)
    embedding = restored["params"]["embedding"]
    assert embedding.dtype == jnp.bfloat16
    np.testing.assert_array_equal(embedding, state()["embedding"].astype(jnp.bfloat16))


def test_weights_in_memory_that_changes_later_stay_as_they_were():
    for _ in range(50):  # an aliased or unfinished copy shows in some of them
        weights = np.ones((4_096, 512), np.float32)
        restored, _ = restore({"embedding": weights}, {"embedding": weights})
        weights[:] = -1
        assert (restored["embedding"] == 1).all()


@pytest.mark.parametrize("padding_idx", [None, 0, 3])
def test_a_padding_row_that_is_not_zero_is_said(padding_idx):
    stored = variables()
    stored["params"]["embedding"][0] = 0
    stored["params"]["embedding"][3] = 0.5
    _, notes = restore(stored, linen()[1], padding_idx=padding_idx)
    # sqrt(16 * 0.25) = 2.
    said = "`embedding`: padding row 3 is not zero (norm 2) and is read as it is; "
    way_out = "embed_tokens(..., zero_padding=True) reads zeros."
    assert notes == ((said + way_out,) if padding_idx == 3 else ())


def test_a_padding_row_of_published_weights_is_loaded_as_it_is_and_said():
    weights = {"embedding": np.array([[1, 2, 3], *[[4, 5, 6]] * 4], np.float32)}
    restored, (note,) = restore(weights, weights, padding_idx=0)
    assert restored["embedding"][0].tolist() == [1, 2, 3]
    assert "padding row 0 is not zero (norm 3.74)" in note


@pytest.mark.parametrize("padding_idx", [-1, 10])
def test_a_padding_row_that_is_not_there_raises(padding_idx):
    message = f"`padding_idx` must be from 0 to 9, the rows of `embedding`, got {padding_idx}"
    with pytest.raises(ValueError, match=message):
        restore(variables(), linen()[1], padding_idx=padding_idx)


def test_a_weight_of_another_shape_raises():
    stored = {"params": {"embedding": np.zeros((11, D_MODEL), np.float32)}}
    message = r"`embedding` has shape \[11, 16\] in the state, but the model has \[10, 16\]"
    with pytest.raises(ValueError, match=message):
        restore(stored, linen()[1])


def test_a_weight_of_another_kind_raises():
    stored = {"params": {"embedding": np.zeros((10, D_MODEL), np.int32)}}
    with pytest.raises(TypeError, match=r"`embedding` holds int32 .*, but the model float32"):
        restore(stored, linen()[1])


def test_a_float64_table_without_a_place_is_told_apart():
    target = {"params": linen()[1]["params"]}
    assert restore(variables(exact(60).astype(np.float64)), target)[1] != ()
    with pytest.raises(ValueError, match="`position_table` is neither"):
        restore(variables(np.zeros((60, D_MODEL))), target)


def test_names_that_only_one_side_has_raise():
    stored = {
        "params": {"embedding": state()["embedding"], "scale": np.ones(3), "bias": np.ones(3)}
    }
    target = {"params": {**linen()[1]["params"], "kernel": np.ones(3)}}
    message = "do not name the same weights; missing: kernel; left over: bias, scale. Rename"
    with pytest.raises(ValueError, match=message):
        restore(stored, target)


def test_a_name_that_comes_twice_raises():
    stored = {**variables(exact(60)), "pe": exact(60)}
    with pytest.raises(ValueError, match=r"`stored` holds `position_table` twice.*at \['pe'\]"):
        restore(stored, linen()[1])


def test_a_leaf_that_is_no_array_raises():
    with pytest.raises(TypeError, match="`embedding` must be an array of numbers, got list"):
        restore({"params": {"embedding": [1.0]}}, linen()[1])
