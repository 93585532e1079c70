"""The mistakes of the encoder's ports."""

from tests.parity.ports.encoder import (
    EncoderLinen,
    inputs,
    linen_params,
    nnx_params,
    nnx_port,
    post_norm,
    pre_norm,
)
from tests.parity.ports.pair import TRAINING, Mistake, Pair

FIRST = "layers.0"


def in_attention(prefix: str) -> dict[str, Mistake]:
    """Return the mistakes in the weights of an attention."""
    seen = f"{prefix}self_attn"
    places = {
        "qkv-permuted": "in_proj_weight",
        "heads-interleaved": "in_proj_weight",
        "untransposed-square": "out_proj.weight",
    }
    return {
        code: Mistake(code, f"{seen}.{place}", seen, in_weights=True)
        for code, place in places.items()
    }


LINEN = in_attention(f"{FIRST}.") | {
    "untransposed": Mistake(
        "untransposed", f"{FIRST}.linear1.weight", f"{FIRST}.linear1", in_weights=True
    ),
    "layers-swapped": Mistake("layers-swapped", FIRST, f"{FIRST}.self_attn", in_weights=True),
    "norms-swapped": Mistake("layers-swapped", f"{FIRST}.norm1", in_weights=True),
    "eps": Mistake("eps", f"{FIRST}.norm1"),
    "variance-form": Mistake("variance-form", f"{FIRST}.norm1"),
    "gelu-kind": Mistake("gelu-kind", FIRST, f"{FIRST}.dropout"),
    "wrong-activation": Mistake("wrong-activation", FIRST, f"{FIRST}.dropout"),
    "bias-missing": Mistake("bias-missing", f"{FIRST}.linear1"),
    "norm-order": Mistake("norm-order", FIRST, f"{FIRST}.self_attn"),
    "residual-missing": Mistake("residual-missing", FIRST, f"{FIRST}.norm1"),
    "missing-norm": Mistake("missing-norm", f"{FIRST}.norm2", FIRST, also=("norm-missing",)),
    "scale-missing": Mistake("scale-sqrt-d", f"{FIRST}.self_attn", also=("scale-missing",)),
    "softmax-axis": Mistake("softmax-axis", f"{FIRST}.self_attn"),
    "dtype-cast": Mistake("dtype-cast", FIRST, f"{FIRST}.norm1"),
    "mask-polarity": Mistake(
        "mask-polarity", "", f"{FIRST}.self_attn", also=("additive-mask-as-bool",)
    ),
    "additive-mask-as-bool": Mistake(
        "additive-mask-as-bool", "", f"{FIRST}.self_attn", also=("mask-polarity",)
    ),
    "train-mode": Mistake("train-mode", f"{FIRST}.dropout1", f"{FIRST}.norm1"),
    "dropout-scale": Mistake("dropout-scale", f"{FIRST}.dropout1", f"{FIRST}.norm1"),
    "dropout-broadcast": Mistake("dropout-broadcast", f"{FIRST}.self_attn", shows_in=TRAINING),
}
NNX = in_attention("") | {
    "untransposed": Mistake("untransposed", "linear2.weight", "linear2", in_weights=True),
    "norms-swapped": Mistake("layers-swapped", "norm1", in_weights=True),
    "eps": Mistake("eps", "norm1"),
    "wrong-activation": Mistake("wrong-activation", "", "dropout"),
    "double-activation": Mistake("double-activation", "", "dropout2", also=("activation-extra",)),
    "bias-missing": Mistake("bias-missing", "self_attn"),
    "norm-order": Mistake("norm-order", "", "norm1"),
    "residual-missing": Mistake("residual-missing", "", ""),
    "residual-after-norm": Mistake("residual-after-norm", "", "norm2"),
    "missing-norm": Mistake("missing-norm", "norm2", "linear1", also=("norm-missing",)),
    "mask-polarity": Mistake("mask-polarity", "", "self_attn", also=("additive-mask-as-bool",)),
}
PAIRS = (
    Pair(
        "encoder/linen",
        post_norm,
        inputs,
        lambda wrong: EncoderLinen(wrong or ""),
        linen_params,
        LINEN,
    ),
    Pair("encoder/nnx", pre_norm, inputs, nnx_port, nnx_params, NNX),
)
