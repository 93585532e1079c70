"""The mistakes of BERT's port."""

from tests.parity.ports.bert import BertLinen, inputs, params, reference
from tests.parity.ports.pair import Mistake, Pair

EMBEDDINGS, FIRST = "bert.embeddings", "bert.encoder.layer.0"
ATTENTION = f"{FIRST}.attention"

MISTAKES = {
    "qkv-permuted": Mistake(
        "qkv-permuted", f"{ATTENTION}.self.query.weight", f"{ATTENTION}.self.query", in_weights=True
    ),
    "untransposed-square": Mistake(
        "untransposed-square",
        f"{ATTENTION}.output.dense.weight",
        f"{ATTENTION}.output.dense",
        in_weights=True,
    ),
    "layers-swapped": Mistake("layers-swapped", FIRST, f"{ATTENTION}.self.query", in_weights=True),
    # Everywhere, and first seen where the variance is least.
    "eps": Mistake("eps", f"{EMBEDDINGS}.LayerNorm"),
    "eps-of-torch": Mistake("eps", f"{EMBEDDINGS}.LayerNorm"),
    "shifted-by-one": Mistake(
        "shifted-by-one", f"{EMBEDDINGS}.position_embeddings", f"{EMBEDDINGS}.LayerNorm"
    ),
    "token-types-ignored": Mistake("input-ignored", f"{EMBEDDINGS}.token_type_embeddings"),
    "heads-interleaved": Mistake("heads-interleaved", f"{ATTENTION}.self"),
    "scale-missing": Mistake("scale-sqrt-d", f"{ATTENTION}.self", also=("scale-missing",)),
    "softmax-axis": Mistake("softmax-axis", f"{ATTENTION}.self"),
    "mask-polarity": Mistake("mask-polarity", "bert", f"{ATTENTION}.self"),
    "mask-added": Mistake("mask-added", "bert", f"{ATTENTION}.self"),
    "mask-after-softmax": Mistake("mask-after-softmax", f"{ATTENTION}.self"),
    "residual-missing": Mistake(
        "residual-missing", f"{ATTENTION}.output", f"{ATTENTION}.output.LayerNorm"
    ),
    "bias-missing": Mistake("bias-missing", f"{FIRST}.intermediate.dense"),
    "gelu-kind": Mistake(
        "gelu-kind", f"{FIRST}.intermediate.intermediate_act_fn", f"{FIRST}.output.dense"
    ),
    "wrong-activation": Mistake(
        "wrong-activation", f"{FIRST}.intermediate.intermediate_act_fn", f"{FIRST}.output.dense"
    ),
    "dtype-cast": Mistake("dtype-cast", f"{FIRST}.intermediate", f"{FIRST}.output.dense"),
    "mean-over-padding": Mistake("mean-over-padding", "", ""),
    "first-token": Mistake("pool-kind", "", ""),
}
PAIRS = (
    Pair(
        "bert/linen",
        reference,
        inputs,
        lambda wrong: BertLinen(wrong or ""),
        params,
        MISTAKES,
    ),
)
