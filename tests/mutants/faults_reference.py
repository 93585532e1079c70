"""Faults of the reference: a recording holds what the right one computed."""

from tests.mutants.fault import REFERENCE_OFF, Fault


def _fault(name: str, file: str, right: str, wrong: str, cases: str, tensors: str) -> Fault:
    return Fault(
        name, f"torch_ref/{file}", right, wrong, cases, tensors, REFERENCE_OFF, "reference"
    )


FAULTS = (
    _fault(
        "the reference leaves the scale out",
        "embedding.py",
        "        return math.sqrt(d_model)\n",
        "        return 1.0\n",
        "inputs/transformer_input[padding right, float32, jit]",
        "scale sum gradient/embedding",
    ),
    _fault(
        "the reference trains the padding row",
        "embedding.py",
        "functional.embedding(nearest, widen(embedding), padding_idx)",
        "functional.embedding(nearest, widen(embedding))",
        "embedding/padding[float32, scale 1.7, padding_idx 5, jit]",
        "gradient/embedding",
    ),
    _fault(
        "the reference starts a segment only where the id grows",
        "positions.py",
        "segment_ids[..., 1:] != segment_ids[..., :-1]",
        "segment_ids[..., 1:] > segment_ids[..., :-1]",
        "positions/segments[jit]",
        "segments",
    ),
    _fault(
        "the reference does not read cos_first",
        "sinusoidal.py",
        "(cosine, sine) if sinusoid.cos_first else",
        "(sine, cosine) if sinusoid.cos_first else",
        "sinusoidal/positions[d_model 7, cosine first, float32, jit]",
        "table",
    ),
    _fault(
        "the reference does not scale up what dropout keeps",
        "inputs.py",
        "(1.0 / (1.0 - rate))",
        "1.0",
        "inputs/dropout[rate 0.1, float32, jit]",
        "dropout gradient/x",
    ),
)
