"""Recurrent cells, gate by gate: PyTorch packs the gates, Flax names each, or packs them too.

PyTorch has two biases for each gate, and most ports the sum of both. The GRU's candidate is the
exception: r * (W_hn h + b_hn) is no sum with b_in. ``linen.GRUCell`` and Equinox keep b_hn apart,
``nnx.GRUCell`` has none, so there it has to be zero.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from parity.layouts import Part, Shape

CELLS = {
    **{name: name for name in ("LSTM", "GRU", "RNN")},
    **{f"{name}Cell": name for name in ("LSTM", "GRU", "RNN")},
}
GATES = {"LSTM": "ifgo", "GRU": "rzn", "RNN": "-"}
ROLES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_LOCAL = re.compile(r"(weight_ih|weight_hh|bias_ih|bias_hh)(?:_(l\d+(?:_reverse)?))?")

Roles = dict[str, tuple[Part, ...]]


@dataclass(frozen=True)
class Cell:
    """The leaves of a cell.

    Attributes:
      kind: "LSTM", "GRU" or "RNN".
      convention: "kernel" where matrices are [in, out], "weight" where they are [out, in].
      parts: by role, one for each gate. Where two biases are one, both roles have it; a part
        without a name says that there is no leaf.
    """

    kind: str
    convention: str
    parts: Roles


def torch_cells(
    kind: str, parts: Mapping[str, Part]
) -> tuple[list[tuple[str, Roles]], dict[str, Part]]:
    """Return the cells of a layer, by direction and number, and the tensors of no cell."""
    count = len(GATES[CELLS[kind]])
    cells: dict[str, Roles] = {}
    rest = {}
    for local, part in parts.items():
        if match := _LOCAL.fullmatch(local):
            gates = tuple(part.cut(0, gate, count) for gate in range(count))
            cells.setdefault(match[2] or "", {})[match[1]] = gates
        else:
            rest[local] = part
    return list(cells.items()), rest


def port_cells(shapes: Mapping[str, Shape]) -> dict[str, Cell]:
    """Return the cells among leaves, by path."""
    own: dict[str, dict[str, Part]] = {}
    below: dict[str, dict[str, Part]] = {}
    for path, shape in shapes.items():
        parent, _, last = path.rpartition("/")
        own.setdefault(parent, {})[last] = Part(path, shape)
        above, _, middle = parent.rpartition("/")
        # `if` is a word of Python, which nnx spells `if_`.
        below.setdefault(above, {})[f"{middle.rstrip('_')}/{last}"] = Part(path, shape)
    found: dict[str, Cell] = {}
    for path, parts in below.items():
        if cell := _named_gates(parts) or _packed_kernels(parts):
            found[path] = cell
    for path, parts in own.items():
        if {"weight_ih", "weight_hh"} <= set(parts) and (cell := _torch_like(parts)):
            found[path] = cell
    return found


def _named_gates(parts: Mapping[str, Part]) -> Cell | None:
    """Return a cell of linen, or ``nnx.LSTMCell``: a Dense for each gate and each input."""
    for kind, gates in GATES.items():
        sides = [[f"{side}{g}".rstrip("-") for g in gates] for side in "ih"]
        kernels = [f"{name}/kernel" for side in sides for name in side]
        if set(kernels) != {name for name in parts if name.endswith("/kernel")}:
            continue
        roles: Roles = {
            f"weight_{side}h": tuple(parts[f"{name}/kernel"] for name in names)
            for side, names in zip("ih", sides, strict=True)
        }
        roles |= _biases([[parts.get(f"{name}/bias") for name in names] for names in sides], kind)
        return Cell(kind, "kernel", roles)
    return None


def _packed_kernels(parts: Mapping[str, Part]) -> Cell | None:
    """Return a cell of nnx: one Linear for the input, one for the state."""
    kernels = {name for name in parts if name.endswith("/kernel")}
    if kernels != {"dense_i/kernel", "dense_h/kernel"}:
        return None
    shape = parts["dense_h/kernel"].shape
    kind = _kind(shape[-1], shape[-2])
    if not kind:
        return None
    roles = {f"weight_{side}h": _gates(parts[f"dense_{side}/kernel"], kind, 1) for side in "ih"}
    none: list[Part | None] = [None] * len(GATES[kind])
    biases: list[list[Part | None]] = [
        list(_gates(bias, kind, 1)) if (bias := parts.get(f"dense_{side}/bias")) else none
        for side in "ih"
    ]
    return Cell(kind, "kernel", roles | _biases(biases, kind))


def _torch_like(parts: Mapping[str, Part]) -> Cell | None:
    """Return a cell of Equinox, which packs as PyTorch does, with one bias; or with its two."""
    shape = parts["weight_hh"].shape
    kind = _kind(shape[-2], shape[-1])
    if not kind:
        return None
    roles = {role: _gates(parts[role], kind, 2) for role in ("weight_ih", "weight_hh")}
    none: list[Part | None] = [None] * len(GATES[kind])
    names = ("bias_ih" if "bias_ih" in parts else "bias", "bias_hh")
    biases: list[list[Part | None]] = [
        [*_gates(parts[name], kind, 1)] if name in parts else none for name in names
    ]
    if "bias_n" in parts:
        biases[1] = [None, None, parts["bias_n"]]
    return Cell(kind, "weight", roles | _biases(biases, kind))


def _kind(packed: int, hidden: int) -> str:
    for kind, gates in GATES.items():
        if packed == len(gates) * hidden:
            return kind
    return ""


def _gates(part: Part, kind: str, axis_from_end: int) -> tuple[Part, ...]:
    count = len(GATES[kind])
    axis = len(part.shape) - axis_from_end
    return tuple(part.cut(axis, gate, count) for gate in range(count))


def _biases(biases: list[list[Part | None]], kind: str) -> Roles:
    """Return which leaf each of PyTorch's biases goes to; where there is one, both go there."""
    if not any(part for side in biases for part in side):
        return {}
    first, second = [], []
    for gate, ours, theirs in zip(GATES[kind], *biases, strict=True):
        one, other = ours or theirs, theirs or ours
        if gate == "n" and one is other:
            other = None  # no sum, see above
        first.append(one or Part("", ()))
        second.append(other or Part("", one.shape if one else ()))
    return {"bias_ih": tuple(first), "bias_hh": tuple(second)}
