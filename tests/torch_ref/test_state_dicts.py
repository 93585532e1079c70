import copy
import io

import pytest
import torch

from torch_ref import PositionalEncoding, Sinusoid, TransformerInput, sinusoidal_table
from torch_ref.published import LongPositionalEncoding

D_MODEL = 16
LENGTHS = [40, 60, 5_000]


def encoding(max_len=60, **options):
    return PositionalEncoding(d_model=D_MODEL, max_len=max_len, **options)


def published(max_len):
    return LongPositionalEncoding(D_MODEL, 0.1, max_len=max_len).state_dict()


def exact(max_len, dtype=torch.float32):
    return sinusoidal_table(max_len, D_MODEL, dtype=dtype)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("ours", LENGTHS)
@pytest.mark.parametrize("theirs", LENGTHS)
@pytest.mark.parametrize("name", ["pe", "position_table"])
def test_an_exact_table_of_any_length_loads_and_is_rebuilt(name, theirs, ours, strict):
    module = encoding(ours)
    stored = exact(theirs)[None] if name == "pe" else exact(theirs)
    result = module.load_state_dict({name: stored}, strict=strict)
    assert not result.missing_keys
    assert not result.unexpected_keys
    assert torch.equal(module.position_table, exact(ours))
    assert (module.table_origin, module.table_difference) == ("exact", 0.0)
    assert not module.state_dict()


@pytest.mark.parametrize("ours", LENGTHS)
@pytest.mark.parametrize("theirs", LENGTHS)
def test_a_published_table_of_any_length_is_kept_bit_for_bit(theirs, ours):
    module, state = encoding(ours), published(theirs)
    module.load_state_dict(state)
    kept = min(ours, theirs)
    assert torch.equal(module.position_table[:kept], state["pe"][0, :kept])
    assert torch.equal(module.position_table[kept:], exact(ours)[kept:])
    assert module.table_origin == "published"
    distance = (state["pe"][0].double() - exact(theirs).double()).abs().max().item()
    assert module.table_difference == distance > 0


def test_one_option_swaps_the_exact_table_in_and_says_by_how_much_they_differ():
    module, kept = encoding(published_table="exact"), encoding()
    module.load_state_dict(published(60))
    kept.load_state_dict(published(60))
    assert torch.equal(module.position_table, exact(60))
    assert module.table_origin == "exact"
    assert module.table_difference == kept.table_difference > 1e-7
    assert not module.state_dict()


def test_a_state_without_a_table_loads_strictly():
    module = encoding()
    assert str(module.load_state_dict({})) == "<All keys matched successfully>"
    assert torch.equal(module.position_table, exact(60))


def test_a_kept_table_is_saved_and_comes_back():
    module, other = encoding(), encoding(5_000)
    module.load_state_dict(published(60))
    stored = io.BytesIO()
    torch.save(module.state_dict(), stored)
    stored.seek(0)
    other.load_state_dict(torch.load(stored))
    assert torch.equal(other.position_table[:60], published(60)["pe"][0])
    assert other.table_origin == "published"


def test_a_kept_table_survives_casts_meta_and_copies():
    module, table = encoding(), published(60)["pe"][0]
    module.load_state_dict(published(60))
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.float32):
        module.to(dtype)
        assert torch.equal(module.position_table, table.to(dtype))
    assert torch.equal(copy.deepcopy(module).position_table, table)
    assert torch.equal(module.to("meta").to_empty(device="cpu").position_table, table)
    assert torch.equal(module.half().state_dict()["position_table"], table)


@pytest.mark.parametrize("axis", [0, 1])
def test_the_axis_of_1_may_be_on_either_side_of_the_rows(axis):
    module, rows = encoding(), published(60)["pe"][0]
    module.load_state_dict({"pe": rows.unsqueeze(axis)})
    assert module.table_origin == "published"
    assert torch.equal(module.position_table, rows)


@pytest.mark.parametrize("strict", [True, False])
def test_two_tables_in_one_state_are_refused_and_change_nothing(strict):
    module = TransformerInput(vocab_size=8, d_model=D_MODEL, max_len=60)
    state = {
        "embeddings.embedding": torch.ones(8, D_MODEL),
        "positional_encoding.pe": published(60)["pe"],
        "positional_encoding.position_table": exact(60),
    }
    message = r"both `positional_encoding\.position_table` and `positional_encoding\.pe`"
    with pytest.raises(ValueError, match=message):
        module.load_state_dict(state, strict=strict)
    assert module.positional_encoding.table_origin == "exact"
    assert torch.equal(module.positional_encoding.position_table, exact(60))


@pytest.mark.parametrize("strict", [True, False])
def test_a_state_without_a_table_leaves_a_kept_one_in_place(strict):
    module = encoding()
    module.load_state_dict(published(60))
    module.load_state_dict({}, strict=strict)
    assert module.table_origin == "published"
    assert torch.equal(module.position_table, published(60)["pe"][0])


def test_an_exact_table_takes_the_place_of_a_kept_one():
    module = encoding()
    module.load_state_dict(published(60))
    module.load_state_dict({"position_table": exact(60)})
    assert (module.table_origin, module.table_difference) == ("exact", 0.0)
    assert torch.equal(module.position_table, exact(60))
    assert not module.state_dict()


def test_a_published_table_loads_into_a_module_of_another_dtype_with_one_rounding():
    module = encoding(dtype=torch.bfloat16)
    module.load_state_dict(published(60))
    assert torch.equal(module.position_table, published(60)["pe"][0].bfloat16())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_published_table_of_16_bits_is_kept_by_a_module_of_16_bits_alone(dtype):
    state = {"pe": published(5_000)["pe"].to(dtype)}
    module = encoding(dtype=dtype)
    module.load_state_dict(state)
    assert torch.equal(module.position_table, state["pe"][0, :60])
    with pytest.raises(ValueError, match=r"`pe` holds .* too coarse for a module of torch.float32"):
        encoding().load_state_dict(state)
    swapped = encoding(published_table="exact")
    swapped.load_state_dict(state)
    assert torch.equal(swapped.position_table, exact(60))


def test_loading_a_published_table_onto_the_meta_device_waits_for_memory():
    module = encoding().to("meta")
    module.load_state_dict(published(60))
    assert module.position_table.is_meta
    module.to_empty(device="cpu")
    assert torch.equal(module.position_table, published(60)["pe"][0])


@pytest.mark.parametrize("name", ["pe", "position_table"])
def test_a_foreign_table_is_refused_by_name_and_place_and_changes_nothing(name):
    module = encoding()
    module.load_state_dict(published(60))
    before = module.position_table.clone()
    foreign = sinusoidal_table(60, D_MODEL, sinusoid=Sinusoid(9_990))
    with pytest.raises(ValueError, match=rf"`{name}` is neither .* row 1, column 2 holds"):
        module.load_state_dict({name: foreign})
    assert torch.equal(module.position_table, before)
    assert torch.equal(module.half().float().position_table, before)


def test_another_width_is_refused():
    with pytest.raises(ValueError, match=r"`pe` must have shape \[rows, 16\]"):
        encoding().load_state_dict({"pe": torch.zeros(1, 60, 8)})


def test_other_unexpected_keys_are_still_reported():
    with pytest.raises(RuntimeError, match=r'Unexpected key.* "weight"'):
        encoding().load_state_dict({"pe": exact(60), "weight": torch.zeros(1)})


def test_the_state_that_was_loaded_is_not_changed():
    state = published(60)
    encoding().load_state_dict(state)
    assert list(state) == ["pe"]


def test_the_whole_input_part_loads_a_state_with_a_table_below_it():
    module = TransformerInput(vocab_size=8, d_model=D_MODEL, max_len=60)
    state = {
        "embeddings.embedding": torch.ones(8, D_MODEL),
        "positional_encoding.pe": published(5_000)["pe"],
    }
    module.load_state_dict(state)
    rows = module.eval()(torch.tensor([1, 2]))
    assert torch.equal(rows, 4 + published(5_000)["pe"][0, :2])
    assert list(module.state_dict()) == [
        "embeddings.embedding",
        "positional_encoding.position_table",
    ]
