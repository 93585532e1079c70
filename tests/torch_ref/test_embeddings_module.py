import copy
import io
import math
import pickle

import pytest
import torch
from torch import nn

from torch_ref import Embeddings, TransformerInput, embed_tokens

IDS = torch.tensor([[3, 0, 7], [1, 1, 0]])


def build(**options):
    torch.manual_seed(0)
    return Embeddings(**{"vocab_size": 8, "d_model": 4, **options})


def test_start_is_standard_normal():
    weights = build(vocab_size=1_000, d_model=1_000).embedding
    # Five standard deviations of the mean and of the deviation of a million draws.
    assert abs(weights.mean().item()) < 5e-3
    assert abs(weights.std().item() - 1) < 3.6e-3


@pytest.mark.parametrize("param_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "initialiser", [nn.init.normal_, nn.init.xavier_uniform_, lambda w: w.fill_(2.0)]
)
def test_padding_row_starts_at_zero_with_any_initialiser(initialiser, param_dtype):
    module = build(padding_idx=3, embedding_init=initialiser, param_dtype=param_dtype)
    assert not module.embedding[3].any()
    assert module.embedding[[0, 1, 2, 4, 5, 6, 7]].any(1).all()
    module.reset_parameters()
    assert not module.embedding[3].any()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scale": None},
        {"scale": 0.3, "padding_idx": 0},
        {"padding_idx": 1, "zero_padding": True},
        {"dtype": torch.bfloat16},
        {"param_dtype": torch.float16, "dtype": torch.float32},
    ],
)
def test_forward_is_the_pure_function(options):
    module = build(**options)
    with torch.no_grad():
        module.embedding.add_(1)  # a padding row that is not zero
    function_options = {"scale": "sqrt", **options}
    function_options.pop("param_dtype", None)
    expected = embed_tokens(IDS, module.embedding, **function_options)
    assert module(IDS).dtype == expected.dtype
    assert torch.equal(module(IDS), expected)


@pytest.mark.parametrize(("d_model", "entry", "expected"), [(300, 5.0, 86.5), (768, 11.0, 304.0)])
def test_bfloat16_products_are_formed_in_float32(d_model, entry, expected):
    options = {"vocab_size": 1, "d_model": d_model, "param_dtype": torch.bfloat16}
    rows = build(**options, embedding_init=lambda w: w.fill_(entry))(torch.tensor([0]))
    assert rows.dtype == torch.bfloat16
    assert rows.unique().tolist() == [expected]


def test_policy_for_ids_out_of_range_is_handed_on():
    assert module_row(build(out_of_range="zero")) == [0] * 4
    assert all(math.isnan(entry) for entry in module_row(build(out_of_range="nan")))
    with pytest.raises(ValueError, match=r"`token_ids` holds -1 at \[0\]"):
        module_row(build())


def module_row(module):
    return module(torch.tensor([-1]))[0].tolist()


@pytest.mark.parametrize("param_dtype", [torch.float32, torch.bfloat16])
def test_a_row_hit_4096_times_gets_4096(param_dtype):
    module = build(scale=None, param_dtype=param_dtype, dtype=torch.bfloat16)
    module(torch.zeros(4096, dtype=torch.int64)).sum().backward()
    assert module.embedding.grad[0].tolist() == [4096] * 4


def test_ten_steps_of_adam_leave_the_padding_row_alone():
    module = build(padding_idx=0)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, weight_decay=0.5)
    before = module.embedding.detach().clone()
    for _ in range(10):
        optimizer.zero_grad()
        module(IDS).square().sum().backward()
        optimizer.step()
    assert not module.embedding[0].any()
    assert not torch.equal(module.embedding, before)


def test_state_holds_the_embedding_alone_and_makes_the_round_trip():
    module, other = build(), Embeddings(vocab_size=8, d_model=4)
    stored = io.BytesIO()
    torch.save(module.state_dict(), stored)
    stored.seek(0)
    assert str(other.load_state_dict(torch.load(stored))) == "<All keys matched successfully>"
    assert list(module.state_dict()) == ["embedding"]
    assert torch.equal(other(IDS), module(IDS))


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_equal_and_apart(twin):
    module = build(padding_idx=0)
    other = twin(module)
    assert torch.equal(other(IDS), module(IDS))
    with torch.no_grad():
        other.embedding.fill_(1)
    assert not torch.equal(other(IDS), module(IDS))


def test_casting_moves_the_result_unless_a_dtype_was_named():
    assert build().half()(IDS).dtype == torch.float16
    assert build(dtype=torch.float32).half()(IDS).dtype == torch.float32


def test_an_embedding_of_the_meta_device_is_filled_by_reset_or_load():
    with torch.device("meta"):
        module = build(padding_idx=0)
    assert module.embedding.is_meta
    module.to_empty(device="cpu").reset_parameters()
    assert not module.embedding[0].any()
    assert module.embedding[1:].any(1).all()


@pytest.mark.parametrize("param_dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    "initialiser", [lambda w: torch.zeros(8, 4), lambda w: w[:5].zero_(), lambda w: w.mul_(0)]
)
def test_an_initialiser_that_leaves_entries_unfilled_is_refused(initialiser, param_dtype):
    message = r"`embedding_init` must fill the tensor .* in place.* holds NaN at \[\d, 0\]"
    for padding_idx in (None, 0):
        options = {"embedding_init": initialiser, "param_dtype": param_dtype}
        with pytest.raises(ValueError, match=message):
            build(**options, padding_idx=padding_idx)
        with pytest.raises(ValueError, match=message):
            TransformerInput(vocab_size=8, d_model=4, max_len=6, **options)


def test_on_the_meta_device_an_initialiser_is_looked_at_when_there_is_memory():
    with torch.device("meta"):
        module = build(embedding_init=lambda w: torch.zeros(8, 4))
    with pytest.raises(ValueError, match="`embedding_init` must fill the tensor"):
        module.to_empty(device="cpu").reset_parameters()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"vocab_size": 0}, ValueError, "`vocab_size` must be at least 1"),
        ({"d_model": 0}, ValueError, "`d_model` must be at least 1"),
        ({"scale": math.inf}, ValueError, "`scale` must be finite in float32, got inf"),
        ({"padding_idx": 8}, ValueError, "`padding_idx` must be from 0 to 7, got 8"),
        ({"zero_padding": True}, ValueError, "`zero_padding` needs a `padding_idx`"),
        ({"embedding_init": None}, TypeError, "`embedding_init` must be a function that fills"),
        ({"out_of_range": "raise"}, ValueError, "`out_of_range` must be"),
        ({"param_dtype": torch.int32}, TypeError, "`param_dtype` must be torch.float32"),
        ({"dtype": torch.int32}, TypeError, "`dtype` must be torch.float32"),
    ],
)
def test_wrong_options_are_refused_when_the_module_is_built(options, error, message):
    with pytest.raises(error) as caught:
        build(**options)
    assert message in str(caught.value)
