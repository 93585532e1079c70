"""Which leaves hold which layer: by kind and shape what may be, by name and order what is.

What fits in one way only is settled by that. Else the nearest names are taken, all pairs
together, and among equally near ones the order, which is that of creation on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parity.layouts import ANY, Layout, options, vector
from parity.placement_names import distance, without_numbers
from parity.placement_units import Unit, depth, row

Roles = dict[str, dict[str, Layout]]


@dataclass(frozen=True)
class Match:
    """A layer and the leaves that hold it.

    Attributes:
      torch: the layer.
      port: its leaves.
      roles: how, by role and convention; more than one where a shape allows it.
    """

    torch: Unit
    port: Unit
    roles: Roles


@dataclass(frozen=True)
class Pairing:
    """Matches, what has none, and two that could as well be the other way round."""

    matches: tuple[Match, ...]
    torch_rest: tuple[Unit, ...]
    port_rest: tuple[Unit, ...]
    doubtful: tuple[Match, Match] | None


def fit(torch: Unit, port: Unit) -> Roles:
    """Return the layouts in which leaves hold a layer, by role and convention; {} if in none."""
    if torch.members:
        is_deep = depth(port) == len(torch.members)
        return fit(torch.members[0], row(port, 0)) if is_deep else {}
    if torch.kind.startswith("cell"):
        return _fit_cell(torch, port)
    common = [role for role in torch.parts if role in port.parts]
    has_main = ("weight" in torch.parts) == ("weight" in port.parts)
    if not has_main or ("weight" not in common and (torch.kind, port.kind) != ("norm", "norm")):
        return {}
    found: Roles = {}
    for role in common:
        (ours,), (theirs,) = torch.parts[role], port.parts[role]
        if role == "weight":
            found[role] = options(torch.kind, ours.shape, port.kind, theirs.shape)
        else:
            layout = vector(ours.shape, theirs.shape)
            found[role] = {ANY: layout} if layout else {}
    return found if all(found.values()) else {}


def _fit_cell(torch: Unit, port: Unit) -> Roles:
    kind, _, convention = port.kind.rpartition(" ")
    if kind != torch.kind:
        return {}
    layout = Layout("transposed", (1, 0)) if convention == "kernel" else Layout()
    for role in ("weight_ih", "weight_hh"):
        shape = torch.parts[role][0].shape
        if port.parts[role][0].shape != (shape[::-1] if convention == "kernel" else shape):
            return {}
    return {
        role: {ANY: layout if role.startswith("weight") else Layout()}
        for role in torch.parts
        if role in port.parts
    }


def paired(ours: Sequence[Unit], theirs: Sequence[Unit]) -> Pairing:
    """Pair the layers of PyTorch with the leaves of a port."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    known: dict[object, Roles] = {}
    fits = np.zeros((len(ours), len(theirs)), bool)
    for i, one in enumerate(ours):
        for j, other in enumerate(theirs):
            key = one.signature, other.signature
            if key not in known:
                known[key] = fit(one, other)
            fits[i, j] = bool(known[key])
    rows, columns = np.nonzero(fits)
    size = len(ours) + len(theirs)
    graph = coo_array((np.ones(len(rows)), (rows, columns + len(ours))), shape=(size, size))
    _, labels = connected_components(graph, directed=False)
    matches: list[Match] = []
    doubtful = None
    for label in np.unique(labels[rows]):
        mine, yours = (np.flatnonzero(p == label) for p in np.split(labels, [len(ours)]))
        inner = fits[np.ix_(mine, yours)]
        found = _assigned(
            [ours[n] for n in mine.tolist()], [theirs[n] for n in yours.tolist()], inner
        )
        group = [Match(o, t, known[o.signature, t.signature]) for o, t in found[0]]
        matches += group
        if doubtful is None and found[1]:
            doubtful = group[found[1][0]], group[found[1][1]]
    taken = {id(unit) for match in matches for unit in (match.torch, match.port)}
    rest = [tuple(u for u in side if id(u) not in taken) for side in (ours, theirs)]
    places = {id(unit): place for place, unit in enumerate(ours)}
    matches.sort(key=lambda match: places[id(match.torch)])
    return Pairing(tuple(matches), rest[0], rest[1], doubtful)


def _assigned(
    ours: list[Unit], theirs: list[Unit], fits: np.ndarray
) -> tuple[list[tuple[Unit, Unit]], tuple[int, int] | None]:
    """Return the cheapest pairs, and the numbers of two that cost the same crosswise."""
    from scipy.optimize import linear_sum_assignment

    # A leaf or tensor that is left over weighs more than any name.
    words = np.array([
        [_distance(o, t) + 10 * len(set(o.parts) ^ set(t.parts)) for t in theirs] for o in ours
    ])
    size = max(len(ours), len(theirs))
    places = [np.arange(len(side)) / len(side) for side in (ours, theirs)]
    # Squares: crossing is dearer than any shift.
    order = np.subtract.outer(*places) ** 2
    rows, columns = linear_sum_assignment(np.where(fits, 10 * size * words + order, 1e9))
    kept = fits[rows, columns]
    rows, columns = rows[kept], columns[kept]
    chosen = [ours[i] for i in rows], [theirs[j] for j in columns]
    cut = np.ix_(rows, columns)
    doubt = _doubt(*chosen, words[cut], fits[cut], columns)
    return list(zip(*chosen, strict=True)), doubt


def _doubt(
    ours: list[Unit], theirs: list[Unit], words: np.ndarray, fits: np.ndarray, order: np.ndarray
) -> tuple[int, int] | None:
    """Return the numbers of two pairs that could as well be crossed; None if there are none.

    That is so where names tell nothing, and none but numbered siblings have an order to go by;
    and where the names of one pair overrule the order, not being the same, while those of the
    other tell nothing.
    """
    own = np.diag(words)[:, None]
    tells_nothing = words <= own + 1e-9
    same = np.isclose(words + words.T, own + own.T)
    places = np.arange(len(order))
    is_crossed = (places[:, None] < places) != (order[:, None] < order)
    same |= is_crossed & tells_nothing & (own.T > 0)
    same |= same.T
    same &= fits & fits.T
    for side in (ours, theirs):
        stems = np.array([without_numbers(unit.path) for unit in side])
        same &= stems[:, None] != stems
    found = np.argwhere(np.triu(same, 1))
    return (int(found[0][0]), int(found[0][1])) if len(found) else None


def _distance(torch: Unit, port: Unit) -> float:
    return distance(without_numbers(torch.path), without_numbers(port.path))
