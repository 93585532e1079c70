"""PyTorch's side of a placement: tensors by layer, and what kind of layer each is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from parity.layouts import Part, Shape
from parity.placement_cells import CELLS, torch_cells
from parity.placement_names import words_of
from parity.placement_units import PACKED, QKV, Layer, Unit, one_each, thirds

KINDS = {
    **{name: name for name in ("Linear", "Conv1D", "Embedding", "MultiheadAttention", *CELLS)},
    "EmbeddingBag": "Embedding",
    **{f"Conv{n}d": "Conv" for n in (1, 2, 3)},
    **{f"ConvTranspose{n}d": "ConvTranspose" for n in (1, 2, 3)},
    **{f"BatchNorm{n}d": "norm" for n in (1, 2, 3)},
    **{f"InstanceNorm{n}d": "norm" for n in (1, 2, 3)},
    **dict.fromkeys(("LayerNorm", "RMSNorm", "GroupNorm", "SyncBatchNorm"), "norm"),
}
ROLES = {
    **dict.fromkeys(("weight", "gamma", "scale", "g", "a_2"), "weight"),
    **dict.fromkeys(("bias", "beta", "b_2"), "bias"),
    "running_mean": "mean",
    "running_var": "var",
}


def torch_units(shapes: Mapping[str, Shape], layers: Mapping[str, Layer]) -> list[Unit]:
    """Return the layers whose tensors these are, in their order."""
    modules: dict[str, dict[str, Part]] = {}
    for name, shape in shapes.items():
        path, _, local = name.rpartition(".")
        modules.setdefault(path, {})[local] = Part(name, shape)
    return [
        unit
        for path, parts in modules.items()
        for unit in _units(path, _kind(path, parts, layers.get(path, Layer("")).type), parts)
    ]


def _kind(path: str, parts: Mapping[str, Part], name: str) -> str:
    """Return the kind of a module; where its type is no known one, names have to tell."""
    if name in KINDS:
        return KINDS[name]
    if not set(parts) <= set(ROLES):
        return "array" if name else _kind_by_tensors(parts)
    told = set(words_of(name or path.rpartition(".")[2]))
    rank = len(parts["weight"].shape) if "weight" in parts else 1
    if rank == 1:
        is_norm = "norm" in told or not name or {"running_mean", "a_2"} & set(parts)
        return "norm" if is_norm else "array"
    if rank == 2 and told & {"embed", "embedding", "embeddings", "wte", "wpe"}:
        return "Embedding"
    if name:
        return {2: "Linear"}.get(rank, "Conv") if told & {"linear", "conv"} else "array"
    if rank == 2:
        return "Linear" if "bias" in parts else "matrix"
    # A state_dict alone doesn't tell a transposed convolution, unless its name does.
    is_transpose = told & {"transpose", "deconv"}
    return ("ConvTranspose" if is_transpose else "Conv") if rank > 2 else "array"


def _kind_by_tensors(parts: Mapping[str, Part]) -> str:
    if "in_proj_weight" in parts or "q_proj_weight" in parts:
        return "MultiheadAttention"
    inner = next((part.shape for name, part in parts.items() if name.startswith("weight_hh")), None)
    if inner is None or len(inner) != 2 or not inner[1]:
        return "array"
    return {1: "RNN", 3: "GRU", 4: "LSTM"}.get(inner[0] // inner[1], "array")


def _units(path: str, kind: str, parts: Mapping[str, Part]) -> list[Unit]:
    if kind == "MultiheadAttention":
        return _attention(path, parts)
    if kind in CELLS:
        cells, others = torch_cells(kind, parts)
        found = [
            Unit(".".join(filter(None, (path, name))), f"cell {CELLS[kind]}", roles)
            for name, roles in cells
        ]
        return [*found, *_arrays(others.values())]
    if kind == "array":
        return _arrays(parts.values())
    unit = one_each(path, kind, {ROLES[n]: part for n, part in parts.items() if n in ROLES})
    rest = _arrays(part for name, part in parts.items() if name not in ROLES)
    if kind not in ("Linear", "Conv1D", "matrix") or not PACKED.search(path):
        return [unit, *rest]
    # The rows are the outputs, but for the Conv1D of transformers.
    axes = {"weight": 1 if kind == "Conv1D" else 0, "bias": 0}
    return [*thirds(unit, axes, "."), *rest]


def _arrays(parts: Iterable[Part]) -> list[Unit]:
    return [one_each(part.name, "array", {"weight": part}) for part in parts]


def _attention(path: str, parts: Mapping[str, Part]) -> list[Unit]:
    """Return query, key and value of a MultiheadAttention; its out_proj is a Linear of its own."""
    rest = {name: part for name, part in parts.items() if not name.startswith("in_proj_")}
    units = []
    for number, name in enumerate(QKV):
        own: dict[str, Part] = {}
        if "in_proj_weight" in parts:
            own["weight"] = parts["in_proj_weight"].cut(0, number, 3)
        elif f"{name[0]}_proj_weight" in parts:
            own["weight"] = rest.pop(f"{name[0]}_proj_weight")
        if "in_proj_bias" in parts:
            own["bias"] = parts["in_proj_bias"].cut(0, number, 3)
        units.append(one_each(".".join(filter(None, (path, name))), "Linear", own))
    return [*units, *_arrays(rest.values())]
