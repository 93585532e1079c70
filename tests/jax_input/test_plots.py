import io
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

from jax_input.diagnosis import gradient_report
from jax_input.plots import attention_maps, gradient_norms, position_table
from jax_input.sinusoidal import sinusoidal_table


def draw_weights(heads, size):
    return np.random.default_rng(0).dirichlet(np.ones(size), (heads, size)).astype(np.float32)


def rendered(figure):
    """Draw it for good: what can not be drawn warns or raises."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=40)
    return len(file.getvalue())


@pytest.mark.parametrize("heads", [1, 3, 6])
def test_each_head_has_its_panel_with_its_weights_on_one_scale(heads):
    weights = draw_weights(heads, 5)
    figure = attention_maps(weights)
    *panels, bar = figure.axes
    assert isinstance(figure, Figure)
    assert [panel.get_title() for panel in panels] == [f"head {head}" for head in range(heads)]
    for panel, own in zip(panels, weights, strict=True):
        (image,) = panel.images
        np.testing.assert_array_equal(image.get_array(), own)
        assert image.get_clim() == (0, 1)
        assert (panel.get_xlabel(), panel.get_ylabel()) == ("key", "query")
    assert bar.get_ylabel() == "attention weight"
    assert rendered(figure) > 0


def test_tokens_stand_along_both_axes_as_they_are_written():
    tokens = ["[CLS]", "$x_$", "$", "costs\\frac"]
    panel = attention_maps(draw_weights(1, 4), tokens).axes[0]
    for labels in (panel.get_xticklabels(), panel.get_yticklabels()):
        assert [label.get_text() for label in labels] == tokens
    assert rendered(panel.figure) > 0


def test_of_many_tokens_some_are_named_at_their_places():
    tokens = [f"t{place}" for place in range(100)]
    panel = attention_maps(draw_weights(1, 100), tokens).axes[0]
    places = panel.get_xticks()
    assert 20 <= len(places) <= 32
    assert [label.get_text() for label in panel.get_xticklabels()] == [f"t{x}" for x in places]


def test_weights_of_other_axes_are_refused_with_the_way_out():
    with pytest.raises(
        ValueError, match=r"\[num_heads, query, key\], got \[1, 2, 5, 5\].*\[layer,"
    ):
        attention_maps(draw_weights(2, 5)[None])
    with pytest.raises(ValueError, match=r"got 4 for weights of \[5, 5\]"):
        attention_maps(draw_weights(2, 5), ["a", "b", "c", "d"])
    with pytest.raises(TypeError, match=r"list of texts, got one. Write \['a', 'b'\]"):
        attention_maps(draw_weights(2, 2), "a b")
    with pytest.raises(TypeError, match="`weights` is traced"):
        jax.jit(lambda x: attention_maps(x) and x)(draw_weights(2, 2))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_position_table_is_drawn_value_by_value_with_zero_in_the_middle(dtype):
    table = sinusoidal_table(20, 8, dtype=dtype) * dtype(0.5)
    panel, bar = position_table(table).axes
    (image,) = panel.images
    np.testing.assert_array_equal(image.get_array(), np.asarray(table, np.float64))
    low, high = image.get_clim()
    assert low == -high == -np.abs(np.asarray(table, np.float64)).max()
    assert (panel.get_xlabel(), panel.get_ylabel(), bar.get_ylabel()) == (
        *("column", "position"),
        "value",
    )
    assert rendered(panel.figure) > 0


def test_a_table_of_zeros_is_drawn_and_an_empty_one_refused():
    assert rendered(position_table(np.zeros((3, 2), np.float32))) > 0
    with pytest.raises(ValueError, match=r"`table` must have shape .*got \[0, 4\]"):
        position_table(np.zeros((0, 4), np.float32))


def tree(*sizes):
    return {f"w{place}": np.full(4, size, np.float32) for place, size in enumerate(sizes)}


def test_norms_of_gradients_alone_are_one_line():
    panel = gradient_norms(tree(1.0, 10.0, 0.1)).axes[0]
    (line,) = panel.lines
    np.testing.assert_allclose(line.get_ydata(), [2, 20, 0.2], rtol=1e-6)  # float32 of 0.1
    assert [label.get_text() for label in panel.get_xticklabels()] == ["w0", "w1", "w2"]
    assert (panel.get_yscale(), line.get_label()) == ("log", "gradients")
    assert rendered(panel.figure) > 0


def test_a_report_is_drawn_with_parameters_and_updates_told_apart_without_colour():
    report = gradient_report(tree(1.0, 2.0), tree(3.0, 4.0), tree(5.0, 6.0))
    panel = gradient_norms(report).axes[0]
    drawn = {line.get_label(): list(line.get_ydata()) for line in panel.lines}
    assert drawn == {"gradients": [6, 8], "parameters": [2, 4], "updates": [10, 12]}
    assert len({line.get_marker() for line in panel.lines}) == 3
    legend = [text.get_text() for text in panel.get_legend().get_texts()]
    assert legend == list(drawn)
    report = gradient_report(tree(1.0), tree(3.0))
    assert [x.get_label() for x in gradient_norms(report).axes[0].lines] == [
        "gradients",
        "parameters",
    ]


def test_a_norm_without_a_place_on_the_axis_is_written_at_its_foot():
    panel = gradient_norms(tree(0.0, 1.0, np.nan, np.inf)).axes[0]
    np.testing.assert_array_equal(panel.lines[0].get_ydata(), [np.nan, 2, np.nan, np.nan])
    assert [(text.get_text(), text.xy[0]) for text in panel.texts] == [
        ("0", 0),
        ("nan", 2),
        ("inf", 3),
    ]
    assert rendered(panel.figure) > 0
    assert rendered(gradient_norms(tree(0.0))) > 0
    with pytest.raises(ValueError, match="holds no gradients"):
        gradient_norms({})


def test_no_window_and_no_global_state_is_opened():
    attention_maps(draw_weights(1, 2))
    assert "matplotlib.pyplot" not in sys.modules


@pytest.mark.parametrize(
    "call",
    [
        lambda: attention_maps(draw_weights(1, 2)),
        lambda: position_table(np.ones((2, 2), np.float32)),
        lambda: gradient_norms(tree(1.0)),
    ],
)
def test_without_matplotlib_the_extra_is_named(call, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'jax-input\[plot\]'"):
        call()
