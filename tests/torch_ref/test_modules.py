import copy
import io
import math
import pickle

import pytest
import torch

from torch_ref import (
    TENSOR2TENSOR,
    PositionalEncoding,
    TransformerInput,
    add_positions,
    dropout,
    positions_from_mask,
    sinusoidal_table,
    transformer_input,
)

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
IDS = torch.tensor([[3, 0, 7], [1, 1, 0]])


def encoding(**options):
    return PositionalEncoding(**{"d_model": 16, "max_len": 60, **options})


def input_part(**options):
    torch.manual_seed(0)
    return TransformerInput(**{"vocab_size": 8, "d_model": 16, "max_len": 60, **options})


def same_bits(a, b):
    return a.dtype == b.dtype and torch.equal(a, b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"sinusoid": TENSOR2TENSOR}, {"max_len": 1}])
def test_the_buffer_is_the_exact_table_and_is_not_saved(dtype, options):
    module = encoding(dtype=dtype, **options)
    expected = sinusoidal_table(module.max_len, 16, sinusoid=module.sinusoid, dtype=dtype)
    assert same_bits(module.position_table, expected)
    assert dict(module.named_buffers()).keys() == {"position_table"}
    assert not module.state_dict()
    assert not list(module.parameters())


def test_default_sizes():
    module = PositionalEncoding(d_model=4)
    assert module.position_table.shape == (5_000, 4)
    assert module.dropout_rate == 0.1


@pytest.mark.parametrize("positions", [None, torch.tensor([5, 0, 59])])
def test_forward_is_the_pure_functions(positions):
    module, x, mask = encoding(dropout_rate=0.5), torch.randn(2, 3, 16), torch.rand(2, 3, 16) > 0.5
    added = add_positions(x, module.position_table, positions=positions)
    assert torch.equal(module(x, positions, mask), dropout(added, 0.5, mask=mask))
    assert torch.equal(module.eval()(x, positions, mask), added)
    assert not torch.equal(module.train()(x), module(x))


def test_rate_0_draws_nothing():
    state = torch.get_rng_state()
    encoding(dropout_rate=0)(torch.zeros(1, 2, 16))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_sequence_longer_than_max_len_is_refused():
    with pytest.raises(ValueError, match="seq_len 61, but the position table has max_len 60"):
        encoding()(torch.zeros(1, 61, 16))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("through", DTYPES)
def test_casting_builds_the_table_anew(dtype, through):
    module = encoding().to(through).to(dtype)
    assert same_bits(module.position_table, sinusoidal_table(60, 16, dtype=dtype))


@pytest.mark.parametrize(
    ("cast", "dtype"), [("half", torch.float16), ("bfloat16", torch.bfloat16), ("double", None)]
)
def test_the_short_casts_do_too(cast, dtype):
    expected = sinusoidal_table(60, 16, dtype=dtype or torch.float64)
    assert same_bits(getattr(encoding(), cast)().position_table, expected)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 2**-9), (torch.float16, 2**-12)])
def test_a_cast_module_keeps_its_positions_apart(dtype, bound):
    module = encoding(d_model=512, max_len=2_048)
    wide = module.position_table.double()
    table = module.to(dtype).position_table
    assert (table.double() - wide).abs().max() <= bound
    assert (table[1:] != table[:-1]).any(1).all()
    if dtype == torch.bfloat16:
        assert table[257, 0].item() == -0.57421875


@pytest.mark.parametrize(("max_len", "d_model"), [(4, 5), (3, 7), (2, 1)])
def test_odd_widths_are_built_and_added(max_len, d_model):
    module = encoding(max_len=max_len, d_model=d_model).eval()
    rows = module(torch.zeros(max_len, d_model))
    assert same_bits(rows, sinusoidal_table(max_len, d_model))


def test_casting_to_what_no_table_has_is_refused():
    with pytest.raises(TypeError, match=r"`dtype` must be torch\.float32.*float8_e4m3fn"):
        encoding().to(torch.float8_e4m3fn)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_module_of_the_meta_device_gets_the_true_table_with_its_memory(dtype):
    with torch.device("meta"):
        module = input_part(dtype=dtype)
    assert module.positional_encoding.position_table.is_meta
    module.to_empty(device="cpu")
    module.load_state_dict(input_part().state_dict())
    expected = sinusoidal_table(60, 16, dtype=dtype)
    assert same_bits(module.positional_encoding.position_table, expected)
    assert same_bits(module.eval()(IDS), input_part(dtype=dtype).eval()(IDS))


def test_a_module_of_the_meta_device_can_be_loaded_by_assignment():
    with torch.device("meta"):
        module = input_part()
    module.load_state_dict(input_part().state_dict(), assign=True)
    assert torch.equal(module.eval()(IDS), input_part().eval()(IDS))


def test_loading_onto_the_meta_device_waits_for_memory():
    module = encoding().to("meta")
    module.load_state_dict({})
    assert module.position_table.is_meta
    assert same_bits(module.to_empty(device="cpu").position_table, sinusoidal_table(60, 16))


def test_emptying_a_real_module_leaves_the_table():
    module = encoding().to_empty(device="cpu")
    assert same_bits(module.position_table, sinusoidal_table(60, 16))


def test_default_dtype_and_device_do_not_touch_the_table():
    torch.set_default_dtype(torch.float64)
    try:
        module = input_part()
    finally:
        torch.set_default_dtype(torch.float32)
    assert same_bits(module.positional_encoding.position_table, sinusoidal_table(60, 16))
    assert module.embeddings.embedding.dtype == torch.float32


def test_autocast_does_not_change_a_bit():
    module = input_part().eval()
    plain = module(IDS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert same_bits(module(IDS), plain)
        built_inside = input_part().eval()
    assert same_bits(built_inside(IDS), plain)


@pytest.mark.parametrize(
    "twin",
    [
        copy.deepcopy,
        lambda module: pickle.loads(pickle.dumps(module)),
        lambda module: saved_and_loaded(module),
    ],
)
def test_copies_hold_the_table_and_are_apart(twin):
    module = encoding()
    other = twin(module)
    assert same_bits(other.position_table, module.position_table)
    other.position_table.zero_()
    assert module.position_table.any()
    assert same_bits(other.half().position_table, sinusoidal_table(60, 16, dtype=torch.float16))


def saved_and_loaded(module):
    stored = io.BytesIO()
    torch.save(module, stored)
    stored.seek(0)
    return torch.load(stored, weights_only=False)


def test_shared_memory_keeps_the_table():
    assert same_bits(encoding().share_memory().position_table, sinusoidal_table(60, 16))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_input_part_is_the_pure_function(dtype):
    module, mask = input_part(dtype=dtype, padding_idx=0, scale=3.0), torch.rand(2, 3, 16) > 0.5
    got = module(IDS, torch.tensor([4, 5, 6]), mask)
    expected = transformer_input(
        IDS,
        module.embeddings.embedding,
        sinusoidal_table(60, 16, dtype=dtype),
        positions=torch.tensor([4, 5, 6]),
        scale=3.0,
        padding_idx=0,
        dropout_rate=0.1,
        dropout_mask=mask,
    )
    assert same_bits(got, expected)
    assert torch.equal(module.eval()(IDS, None, mask), module(IDS))
    assert list(module.state_dict()) == ["embeddings.embedding"]
    assert sum(p.numel() for p in module.parameters()) == 8 * 16


@pytest.mark.parametrize("dtype", DTYPES)
def test_casting_the_input_part_casts_its_result(dtype):
    module = input_part().to(dtype).eval()
    embedding = module.embeddings.embedding
    assert embedding.dtype == dtype
    expected = transformer_input(IDS, embedding, sinusoidal_table(60, 16, dtype=dtype))
    assert same_bits(module(IDS), expected)


def test_training_dropout_follows_train_and_eval():
    module = input_part(dropout_rate=0.5)
    assert not torch.equal(module(IDS), module(IDS))
    assert torch.equal(module.eval()(IDS), module(IDS))
    assert not torch.equal(module.train()(IDS), module(IDS))


def test_rows_of_three_axes_and_one_take_their_last_axis_as_the_sequence():
    module = input_part().eval()
    assert torch.equal(module(IDS[None])[0], module(IDS))
    assert torch.equal(module(IDS[1]), module(IDS)[1])


def test_left_and_right_padding_give_the_tokens_the_same_result():
    module = input_part(padding_idx=0).eval()
    left, right = torch.tensor([0, 0, 3, 4, 5]), torch.tensor([3, 4, 5, 0, 0])
    alone = module(torch.tensor([3, 4, 5]))
    assert torch.equal(module(left, positions_from_mask(left != 0))[2:], alone)
    assert torch.equal(module(right, positions_from_mask(right != 0))[:3], alone)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"d_model": 0}, ValueError, "`d_model` must be at least 1"),
        ({"max_len": 0}, ValueError, "`max_len` must be at least 1"),
        ({"dropout_rate": 1.5}, ValueError, "`dropout_rate` must be in [0, 1], got 1.5"),
        ({"dropout_rate": math.nan}, ValueError, "`dropout_rate` must be in [0, 1], got nan"),
        ({"dtype": torch.int32}, TypeError, "`dtype` must be torch.float32"),
        ({"sinusoid": None}, TypeError, "`sinusoid` must be a Sinusoid, got NoneType None"),
        ({"published_table": "swap"}, ValueError, "`published_table` must be 'keep' or 'exact'"),
    ],
)
def test_wrong_options_are_refused_when_the_module_is_built(options, error, message):
    for build in (encoding, input_part):
        with pytest.raises(error) as caught:
            build(**options)
        assert message in str(caught.value)
