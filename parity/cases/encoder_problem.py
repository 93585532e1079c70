"""Problems for the encoder and its parts: sizes, masks, and parameters as one vector.

All parameters are one array, as an optimizer's step takes them; `tree` makes the dicts of it that
the functions of either side take. Results are told by layer, and kernel and bias as one tensor, the
bias as its last row: the bias of the keys has no gradient but noise, of which nothing could be said
alone. So are both norms of a layer: of the rounding errors of a few numbers, the greatest scatters.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np

from jax_input.config import Activation, Norm
from parity.cases.expected import rng
from parity.cases.sides import COTANGENT
from parity.formats import round_to

D_MODEL, HEADS, D_FF, LENGTH, BATCH = 16, 2, 24, 7, 2
PARTS = {"encoder": "", "layer": "", "attention": "attention/", "feed_forward": "feed_forward/"}

Shapes: TypeAlias = dict[str, tuple[int, ...]]
_SPLIT = (HEADS, D_MODEL // HEADS)
_PROJECTION: Shapes = {"kernel": (D_MODEL, *_SPLIT), "bias": _SPLIT}
_NORM: Shapes = {"scale": (D_MODEL,), "bias": (D_MODEL,)}
_LAYER: dict[str, Shapes] = {
    **{f"attention/{name}": _PROJECTION for name in ("query", "key", "value")},
    "attention/out": {"kernel": (*_SPLIT, D_MODEL), "bias": (D_MODEL,)},
    "attention_norm": _NORM,
    "feed_forward/in": {"kernel": (D_MODEL, D_FF), "bias": (D_FF,)},
    "feed_forward/out": {"kernel": (D_FF, D_MODEL), "bias": (D_MODEL,)},
    "feed_forward_norm": _NORM,
}
_POSITIONS = np.arange(LENGTH)
_SEGMENTS = np.array([[0, 0, 0, 1, 1, 2, 2], [5, 5, 1, 1, 1, 1, 1]])


def masks() -> dict[str, np.ndarray | None]:
    """Return a mask of every kind, True = may attend."""
    query, key = _POSITIONS[:, None], _POSITIONS
    padding = np.array([7, 4])[:, None, None, None] > key
    rows = np.array([[3], [-1]])[:, None, :, None] != query
    return {
        "no mask": None,
        "padding": padding,
        "causal": (key <= query)[None, None],
        "window": ((query - 1 <= key) & (key <= query + 2))[None, None],
        "block": (query // 3 == key // 3)[None, None],
        "segment": (_SEGMENTS[:, :, None] == _SEGMENTS[:, None, :])[:, None],
        "padding causal": padding & (key <= query),
        # One query without a key, and an example without any token.
        "hidden row": rows & (np.array([7, 0])[:, None, None, None] > key),
    }


def whole_mask(name: str) -> np.ndarray | None:
    """Return one of `masks` in full: masks of one shape are given to one program."""
    mask = masks()[name]
    return None if mask is None else np.broadcast_to(mask, (BATCH, 1, LENGTH, LENGTH)).copy()


@dataclass(frozen=True)
class Problem:
    """What an encoder, or a part of one, is given.

    Attributes:
      part: one of `PARTS`.
      norm: "post" or "pre"; an encoder of "pre" has a final norm.
      activation: of the feed-forward network.
      mask: one of `masks`.
      dtype: of everything.
    """

    part: str = "encoder"
    norm: Norm = "post"
    activation: Activation = "relu"
    mask: str = "padding"
    dtype: str = "float32"

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return 2 if self.part == "encoder" else 1

    @property
    def has_final_norm(self) -> bool:
        """Whether the result is normalised once more."""
        return self.part == "encoder" and self.norm == "pre"

    @property
    def options(self) -> dict[str, Any]:
        """The options of the config of either side."""
        return {
            "num_layers": self.layers,
            "d_model": D_MODEL,
            "num_heads": HEADS,
            "d_ff": D_FF,
            "norm": self.norm,
            "activation": self.activation,
            "final_norm": self.has_final_norm,
            "dropout_rate": 0.0,
        }

    @property
    def parameters(self) -> str:
        """The options as the id of a case has them."""
        parts: dict[str, list[str]] = {"attention": [self.mask], "feed_forward": [self.activation]}
        named = parts.get(self.part, [self.norm, self.activation, self.mask])
        return ", ".join([*named, self.dtype])

    def arrays(self, *, differentiated: bool = True) -> dict[str, np.ndarray]:
        """Return what both sides are given; a cotangent where gradients are asked for."""
        random = rng(40)
        drawn = [_draw(random, path, shape).ravel() for path, shape in self.shapes().items()]
        shape = (BATCH, LENGTH, D_MODEL)
        wide = {"parameters": np.concatenate(drawn), "x": random.normal(size=shape)}
        if differentiated:
            wide[COTANGENT] = random.normal(size=shape)
        mask = None if self.part == "feed_forward" else whole_mask(self.mask)
        named = {name: round_to(array, self.dtype) for name, array in wide.items()}
        return named if mask is None else {**named, "mask": mask}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each parameter by its path, in the order of the vector."""
        prefix = PARTS[self.part]
        lead, stack = ("layers/", (self.layers,)) if self.part == "encoder" else ("", ())
        shapes = {
            f"{lead}{name.removeprefix(prefix)}/{leaf}": (*stack, *shape)
            for name, leaves in _LAYER.items()
            if name.startswith(prefix)
            for leaf, shape in leaves.items()
        }
        final = _NORM if self.has_final_norm else {}
        return shapes | {f"final_norm/{leaf}": shape for leaf, shape in final.items()}

    def leaves(self, parameters: Any) -> dict[str, Any]:
        """Cut the vector into the parameters, by path; of any framework."""
        found, start = {}, 0
        for path, shape in self.shapes().items():
            found[path] = parameters[start : start + prod(shape)].reshape(shape)
            start += prod(shape)
        return found

    def tree(self, parameters: Any) -> dict[str, Any]:
        """Cut the vector into nested dicts, as the functions take them."""
        nested: dict[str, Any] = {}
        for path, leaf in self.leaves(parameters).items():
            *folders, name = path.split("/")
            inner = nested
            for folder in folders:
                inner = inner.setdefault(folder, {})
            inner[name] = leaf
        return nested

    def by_layer(self, leaves: Mapping[str, Any]) -> dict[str, Any]:
        """Name the parameters, or what else is stacked alike, by their layers: layer.0/..."""
        named: dict[str, Any] = {}
        for path, leaf in leaves.items():
            stacked, inner = path.startswith("layers/"), path.removeprefix("layers/")
            layers = range(self.layers) if stacked else ()
            named |= {f"layer.{index}/{inner}": leaf[index] for index in layers}
            named |= {} if stacked else {path: leaf}
        return named

    def told(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Return a vector of all parameters by name, what belongs together as one: see `joined`."""
        return joined(self.by_layer(self.leaves(vector)))

    def vector(self, named: Mapping[str, np.ndarray]) -> np.ndarray:
        """Join what `by_layer` has named."""
        parts = []
        for path in self.shapes():
            inner = path.removeprefix("layers/")
            layers = [f"layer.{index}/{inner}" for index in range(self.layers)]
            parts += [named[name] for name in (layers if path != inner else [path])]
        return np.concatenate([part.ravel() for part in parts])


def joined(leaves: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Join what belongs to one kernel, or the norms of one layer: the bias is the last row."""
    rows: dict[str, list[np.ndarray]] = {}
    for path, leaf in leaves.items():
        folder = path.rpartition("/")[0]
        width = leaves[f"{folder}/bias"].size
        joint = re.sub("(attention|feed_forward)_norm$", "norms", folder)
        rows.setdefault(joint, []).append(leaf.reshape(-1, width))
    return {folder: np.concatenate(parts) for folder, parts in rows.items()}


def _draw(random: np.random.Generator, path: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draw what keeps vectors their size, and lets every parameter tell."""
    drawn = random.normal(size=shape)
    if path.endswith("scale"):
        return 1 + 0.2 * drawn
    if path.endswith("bias"):
        return 0.3 * drawn
    return drawn / (D_FF if D_FF in shape[:-1] else D_MODEL) ** 0.5
