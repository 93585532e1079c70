"""Figures of attention weights, position tables and gradient norms; matplotlib draws them.

Each function returns a ``matplotlib.figure.Figure`` that belongs to the caller: no window opens, no
global state is left. ``figure.savefig("name.png")`` writes it. The colours are told apart by
colour-blind readers too, and in print without colour.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from jax_input.diagnosis import GradientReport, Norms, norms_of_gradients
from jax_input.leaves import read_array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 4
# Labels of more tokens than these overlap at the size of a panel.
_LABELS = 32
# Of the palette of Okabe and Ito 2008; each series has its own marker too.
_SERIES = (
    ("gradient", "#D55E00", "o"),
    ("parameter", "#0072B2", "s"),
    ("update", "#009E73", "^"),
)


def attention_maps(
    weights: Float[ArrayLike, "num_heads query key"], tokens: Sequence[str] | None = None
) -> "Figure":
    """Draw the attention weights of one layer and example, a panel for each head.

    Args:
      weights: such as ``taps["attention_weights"][layer, example]``; all panels have one scale,
        from 0 to 1.
      tokens: the words along both axes, one for each key; written as they are, dollars too.

    Returns:
      A figure with a panel titled "head 0", ... for each head, and a colour bar.

    Raises:
      ImportError: if matplotlib is not installed.
      TypeError: if ``weights`` are traced or no floats, or ``tokens`` one text.
      ValueError: if there are not three axes, or not as many tokens as keys and queries.
    """
    figure_type = _require_figure()
    array = read_array("weights", weights)
    if array.ndim != 3 or 0 in array.shape:
        raise ValueError(
            f"`weights` must have shape [num_heads, query, key], got {list(array.shape)}. "
            "Of taps, take one layer and one example: weights[layer, example]."
        )
    labels = None if tokens is None else _require_tokens(tokens, array.shape[1:])
    columns = min(_COLUMNS, len(array))
    rows = math.ceil(len(array) / columns)
    figure = figure_type(figsize=(3.2 * columns + 0.8, 3.2 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for head, panel in enumerate(axes[: len(array)]):
        image = panel.imshow(array[head].astype(np.float64), vmin=0, vmax=1, cmap="cividis")
        panel.set(title=f"head {head}", xlabel="key", ylabel="query")
        if labels is not None:
            _write_tokens(panel, labels)
    for unused in axes[len(array) :]:
        unused.remove()
    figure.colorbar(image, ax=list(axes[: len(array)]), label="attention weight")
    return figure


def position_table(table: Float[ArrayLike, "max_len d_model"]) -> "Figure":
    """Draw a position table as an image, zero in white.

    Args:
      table: such as ``sinusoidal_table`` gives.

    Returns:
      A figure with one panel, positions downwards, columns to the right, and a colour bar.

    Raises:
      ImportError: if matplotlib is not installed.
      TypeError: if ``table`` is traced or no floats.
      ValueError: if it has not two axes, or is empty.
    """
    figure_type = _require_figure()
    array = read_array("table", table).astype(np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"`table` must have shape [max_len, d_model], each at least 1, got {list(array.shape)}."
        )
    # Symmetric, so that the middle of the colours is 0.
    finite = np.abs(array[np.isfinite(array)])
    greatest = float(finite.max(initial=0)) or 1.0
    figure = figure_type(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(
        array, aspect="auto", interpolation="nearest", cmap="PuOr", vmin=-greatest, vmax=greatest
    )
    axes.set(title="position table", xlabel="column", ylabel="position")
    figure.colorbar(image, ax=axes, label="value")
    return figure


def gradient_norms(report: GradientReport | Any) -> "Figure":
    """Draw the norms by layer on a logarithmic axis.

    Args:
      report: of ``gradient_report``, or a tree of gradients alone.

    Returns:
      A figure with one panel and a line for the gradients, and for the parameters and updates of a
      report. A norm of 0, NaN or inf has no place on the axis, and is written at its foot.

    Raises:
      ImportError: if matplotlib is not installed.
      TypeError: if it is traced, or no floats.
      ValueError: if there is nothing in it.
    """
    figure_type = _require_figure()
    norms = report.norms if isinstance(report, GradientReport) else norms_of_gradients(report)
    if not norms:
        raise ValueError(
            "`report` holds no gradients. Pass a `GradientReport` or a tree of arrays."
        )
    figure = figure_type(figsize=(max(5.0, 0.5 * len(norms) + 2), 4), layout="constrained")
    axes = figure.subplots()
    axes.set_yscale("log")
    series = _SERIES if isinstance(report, GradientReport) else _SERIES[:1]
    for row, (name, colour, marker) in enumerate(series):
        _draw_series(axes, norms, name, colour, marker, row)
    axes.set_xticks(range(len(norms)), [x.place for x in norms], rotation=60, ha="right")
    for label in axes.get_xticklabels():
        label.set_parse_math(False)
    axes.set(title="norms by layer", ylabel="norm (logarithmic)", xlim=(-0.5, len(norms) - 0.5))
    axes.grid(visible=True, axis="y", alpha=0.3)
    axes.legend()
    return figure


def _require_figure() -> "type[Figure]":
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "`jax_input.plots` draws with matplotlib, which is not installed. Install the extra: "
            "pip install 'jax-input[plot]'."
        ) from error
    return Figure


def _require_tokens(tokens: Sequence[str], scores: tuple[int, ...]) -> list[str]:
    if isinstance(tokens, str):
        raise TypeError(f"`tokens` must be a list of texts, got one. Write {tokens.split()!r}.")
    if not len(tokens) == scores[0] == scores[1]:
        raise ValueError(
            f"`tokens` must have one text for each query and key, got {len(tokens)} for weights of "
            f"{list(scores)}. Cut the weights to the tokens: weights[:, :n, :n]."
        )
    return [str(token) for token in tokens]


def _write_tokens(panel: "Axes", tokens: list[str]) -> None:
    """Name the ticks, each n-th token where all would overlap."""
    places = range(0, len(tokens), math.ceil(len(tokens) / _LABELS))
    shown = [tokens[place] for place in places]
    # A pair of dollars would be read as a formula.
    panel.set_xticks(places, shown, rotation=90, fontsize="small", parse_math=False)
    panel.set_yticks(places, shown, fontsize="small", parse_math=False)


def _draw_series(
    axes: "Axes", norms: tuple[Norms, ...], name: str, colour: str, marker: str, row: int
) -> None:
    values = [getattr(of_layer, name) for of_layer in norms]
    if None in values:
        return
    drawn = [value if math.isfinite(value) and value > 0 else math.nan for value in values]
    axes.plot(range(len(values)), drawn, color=colour, marker=marker, label=f"{name}s")
    for place, value in enumerate(values):
        if math.isnan(drawn[place]):
            axes.annotate(
                f"{value:g}",
                (place, 0.02 + 0.05 * row),
                xycoords=("data", "axes fraction"),
                color=colour,
                ha="center",
                fontsize="small",
            )
