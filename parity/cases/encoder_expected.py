"""An encoder in float64, each step with the error that its dtype allows: see `running_error`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from parity.case import Arrays, Tensor
from parity.cases import running_error as tape
from parity.cases.encoder_problem import Problem, joined
from parity.cases.encoder_steps import activated, half_weights, normalised, softmax
from parity.cases.running_error import Node, Noisy, added, given, product, rounded
from parity.cases.sides import COTANGENT

EPS = 1e-5
# Six deviations: 2e-9 for a normal error. Errors that have one source in common, and so may add up
# instead of by their squares, are counted as if they had not; that is what most of it is for.
DEVIATIONS = 6.0
REASON = "six deviations of the roundings on the way, carried on"


@dataclass(frozen=True)
class Computation:
    """One pass through an encoder or a part of it.

    Attributes:
      problem: what it is.
      mask: True = may attend.
      coarse: whether scores, weights and sums are stored in the dtype too, as PyTorch's own modules
        do.
      drops: whether everything is dropped that dropout may drop.
      taps: every step by name; filled on the way.
    """

    problem: Problem
    mask: np.ndarray | None
    coarse: bool = False
    drops: bool = False
    taps: dict[str, Node] = field(default_factory=dict)

    def stored(self, node: Node) -> Node:
        """Round to the dtype."""
        return rounded(node, self.problem.dtype)

    def between(self, node: Node) -> Node:
        """Round what is float32 but in PyTorch's own modules."""
        return self.stored(node) if self.coarse else node

    def kept(self, node: Node) -> Node:
        """Return what dropout leaves."""
        return tape.scaled(node, 0.0) if self.drops else node

    def dense(self, x: Node, leaves: Mapping[str, Node], name: str, spec: str) -> Node:
        """Multiply by a kernel and add a bias."""
        y = product(spec, x, leaves[f"{name}/kernel"], self.problem.dtype)
        return self.stored(added(self.between(y), leaves[f"{name}/bias"]))

    def attend(self, query: Node, key: Node, value: Node, tap: str = "") -> Node:
        """Average the values: ``dot_product_attention``."""
        dtype = self.problem.dtype
        scores = self.between(product("bqhe,bkhe->bhqk", query, key, dtype))
        scores = self.between(tape.scaled(scores, query.value.shape[-1] ** -0.5))
        weights = softmax(scores, self.mask)
        self.taps[f"{tap}weights"] = weights
        kept = self.kept(self.between(weights))
        kept = kept if dtype == "float32" else half_weights(kept, dtype)
        return self.stored(product("bhqk,bkhe->bqhe", kept, value, dtype))

    def attention(self, x: Node, leaves: Mapping[str, Node], at: str = "", tap: str = "") -> Node:
        """Attend in several heads: ``multi_head_attention``."""
        query, key, value = (
            self.dense(x, leaves, f"{at}{name}", "bsd,dhe->bshe")
            for name in ("query", "key", "value")
        )
        heads = self.attend(query, key, value, tap)
        return self.dense(heads, leaves, f"{at}out", "bshe,hed->bsd")

    def norm(self, x: Node, leaves: Mapping[str, Node], at: str, form: str = "standard") -> Node:
        """Normalise, scale and shift: ``layer_norm``."""
        y = self.between(normalised(x, EPS, form))
        y = self.between(tape.stretched(y, leaves[f"{at}scale"]))
        return self.stored(added(y, leaves[f"{at}bias"]))

    def feed_forward(self, x: Node, leaves: Mapping[str, Node], at: str, tap: str = "") -> Node:
        """Pass through a hidden layer: ``feed_forward``."""
        hidden = self.dense(x, leaves, f"{at}in", "bsd,df->bsf")
        hidden = self.stored(activated(hidden, self.problem.activation))
        self.taps[f"{tap}feed_forward_hidden"] = hidden
        return self.dense(self.kept(hidden), leaves, f"{at}out", "bsf,fd->bsd")

    def layer(self, x: Node, leaves: Mapping[str, Node], at: str = "") -> Node:
        """Attend and feed forward: ``encoder_layer``."""
        for name in ("attention", "feed_forward"):
            y = x
            if self.problem.norm == "pre":
                y = self.taps[f"{at}{name}_norm"] = self.norm(x, leaves, f"{at}{name}_norm/")
            if name == "attention":
                y = self.attention(y, leaves, f"{at}attention/", f"{at}attention_")
            else:
                y = self.feed_forward(y, leaves, f"{at}feed_forward/", at)
            self.taps[f"{at}{name}"] = y
            x = self.taps[f"{at}{name}_sum"] = self.stored(added(x, self.kept(y)))
            if self.problem.norm == "post":
                x = self.taps[f"{at}{name}_norm"] = self.norm(x, leaves, f"{at}{name}_norm/")
        return x

    def output(self, x: Node, leaves: Mapping[str, Node]) -> Node:
        """Return what the whole problem gives."""
        part = self.problem.part
        if part == "attention":
            return self.attention(x, leaves)
        if part == "feed_forward":
            return self.feed_forward(x, leaves, "")
        for index in range(self.problem.layers):
            x = self.layer(x, leaves, f"layer.{index}/" if part == "encoder" else "")
        if self.problem.has_final_norm:
            x = self.taps["final_norm"] = self.norm(x, leaves, "final_norm/")
        return x


def expected(problem: Problem, arrays: Arrays, *, coarse: bool = False) -> dict[str, Tensor]:
    """Return the exact value of the output, of every tap, and of every gradient.

    Args:
      problem: what is computed.
      arrays: its inputs; gradients are expected where a cotangent is among them.
      coarse: as in `Computation`.
    """
    x = given(arrays["x"])
    leaves = begun(problem, arrays["parameters"])
    computation = Computation(problem, arrays.get("mask"), coarse)
    output = computation.output(x, leaves)
    tensors = {name: tensor(tap) for name, tap in computation.taps.items()}
    tensors["output"] = tensor(output)
    if COTANGENT not in arrays:
        return tensors
    slopes = tape.gradients(output, given(arrays[COTANGENT]), [x, *leaves.values()])
    slopes = [tape.narrowed(slope, problem.dtype) for slope in slopes]
    tensors["gradient/x"] = tensor(slopes[0])
    told = joined_noisy(dict(zip(leaves, slopes[1:], strict=True)))
    return tensors | {f"gradient/{name}": tensor(slope) for name, slope in told.items()}


def begun(problem: Problem, vector: np.ndarray, off: np.ndarray | None = None) -> dict[str, Node]:
    """Return the parameters by layer, each off by at most so much."""
    named = problem.by_layer(problem.leaves(vector))
    zeros = np.zeros(vector.shape) if off is None else off
    errors = problem.by_layer(problem.leaves(zeros / DEVIATIONS))
    return {name: given(array, errors[name]) for name, array in named.items()}


def slope_of_squares(
    problem: Problem, arrays: Arrays, vector: np.ndarray, off: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradient of ``sum(y * cotangent + y**2 / 2)``, and how far off it may be.

    Args:
      problem: whose output is y.
      arrays: its inputs, the parameters left out.
      vector: the parameters.
      off: how far they are off.
    """
    leaves = begun(problem, vector, off)
    output = Computation(problem, arrays.get("mask")).output(given(arrays["x"]), leaves)
    cotangent = tape.total(output, given(arrays[COTANGENT]))
    slopes = dict(zip(leaves, tape.gradients(output, cotangent, [*leaves.values()]), strict=True))
    values = problem.vector({name: slope.value for name, slope in slopes.items()})
    variances = problem.vector({name: slope.variance for name, slope in slopes.items()})
    return values, DEVIATIONS * np.sqrt(variances)


def joined_noisy(leaves: Mapping[str, Noisy]) -> dict[str, Noisy]:
    """Join values and variances as `encoder_problem.joined` does arrays."""
    values = joined({name: noisy.value for name, noisy in leaves.items()})
    variances = joined({name: noisy.variance for name, noisy in leaves.items()})
    return {name: Noisy(value, variances[name]) for name, value in values.items()}


def tensor(noisy: Noisy) -> Tensor:
    """Expect a value within its error."""
    deviation = np.sqrt(noisy.variance)
    return Tensor(
        noisy.value,
        DEVIATIONS * deviation,
        REASON,
        same_bits=False,
        deviation=deviation,
        exact_kind="reference in float64",
    )
