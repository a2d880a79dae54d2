"""Figures draw the numbers they are given."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from revup.errors import RevupError
from revup.reporting.figures import (
    bars_grid,
    heatmaps,
    image,
    reliability_figure,
    score_curves,
    training_curves,
    wilson,
)
from revup.reporting.tables import Row, Table, quoted

RELIABILITY = [
    {"events": 4, "accuracy": 0.75, "confidence": 0.3},
    {"events": 100, "accuracy": 0.6, "confidence": 0.62},
    {"events": 900, "accuracy": 0.95, "confidence": 0.97},
]
METRICS = [
    {"step": s, "train": {"loss": 4.0 / s, "update": 1.0 / s}, "valid": {"accuracy": 0.1 * s, "perplexity": 50.0 / s}}
    for s in (1, 2, 3)
]


def test_wilson_is_the_score_interval() -> None:
    """Its ends are where |p̂ − p| = z·√(p(1−p)/n), which is how it is defined."""
    shares, counts = np.array([0.0, 0.3, 1.0]), np.array([5, 50, 7])
    for end in wilson(shares, counts):
        inside = (end > 1e-12) & (end < 1 - 1e-12)
        z = (np.abs(shares - end) / np.sqrt(np.where(inside, end * (1 - end), 1.0) / counts))[inside]
        np.testing.assert_allclose(z, 1.96, rtol=1e-9)


def test_reliability_figure_draws_the_bins() -> None:
    above, below = reliability_figure(RELIABILITY).axes
    line = next(line for line in above.lines if len(line.get_xdata()) == 3)
    np.testing.assert_allclose(line.get_xdata(), [0.3, 0.62, 0.97])
    np.testing.assert_allclose(line.get_ydata(), [0.75, 0.6, 0.95])
    assert [bar.get_height() for bar in below.patches] == [4, 100, 900]


def test_reliability_figure_of_nothing_is_empty() -> None:
    reliability_figure([])


def test_training_curves_have_a_panel_for_each_term_and_score() -> None:
    figure = training_curves(METRICS, {"accuracy": {"optimum": 0.9}})
    panels = {ax.get_title(): ax for ax in figure.axes if ax.get_visible()}
    assert list(panels) == ["loss", "loss: update", "validation: accuracy", "validation: perplexity"]
    np.testing.assert_allclose(panels["loss: update"].lines[0].get_ydata(), [1, 1 / 2, 1 / 3])
    assert [text.get_text() for text in panels["validation: accuracy"].texts] == ["optimum"]
    assert not panels["validation: perplexity"].texts


def test_training_curves_with_missing_values() -> None:
    lines = [{"step": 1, "train": dict.fromkeys("abcde", 1.0), "valid": {}}, {"step": 2, "train": {}, "valid": {}}]
    assert sum(ax.get_visible() for ax in training_curves(lines).axes) == 5
    assert sum(ax.get_visible() for ax in training_curves([]).axes) == 0


def test_heatmaps_show_all_tables_on_one_scale() -> None:
    left, right = np.eye(2, 3), np.full((2, 3), 1 / 3)
    figure = heatmaps(["said", "told"], ["A", "B", "C"], {"learned": left, "true": right})
    for ax, values, title in zip(figure.axes, (left, right), ("learned", "true"), strict=False):
        (mesh,) = ax.collections
        np.testing.assert_allclose(np.ravel(mesh.get_array()), values.ravel())
        assert mesh.get_clim() == (0, 1)
        assert ax.get_title() == title
        assert [label.get_text() for label in ax.get_xticklabels()] == ["A", "B", "C"]


def test_bars_grid_draws_each_series() -> None:
    panel = {"proposed": [0.2, 0.8], "revised": [0.1, 0.9], "true": [0.0, 1.0]}
    figure = bars_grid(["A", "B"], [[panel, panel]], ["row"], ["step 0", "step 9"])
    for ax in figure.axes:
        assert [bar.get_height() for bar in ax.patches] == [0.2, 0.8, 0.1, 0.9]
        assert [segment[0][1] for segment in ax.collections[0].get_segments()] == [0.0, 1.0]


def test_figures_can_be_saved_alone(tmp_path: Path) -> None:
    for ending in ("png", "svg", "pdf"):
        reliability_figure(RELIABILITY).savefig(tmp_path / f"figure.{ending}")
        assert (tmp_path / f"figure.{ending}").stat().st_size > 1000


def test_score_curves_draw_means_and_leave_out_quoted_rows() -> None:
    rows = (
        Row("RevUp default", ((0.4, 0.6), (0.7, 0.9))),
        Row("Lookup", ((None, None), (0.5, 0.5))),
        quoted("x", [1, 1]),
    )
    table = Table("t", "Accuracy", "ε", ("0.1", "1"), rows)
    (ax,) = score_curves([table], [0.1, 1.0], "ε").axes
    assert [line.get_label() for line in ax.lines] == ["RevUp default", "Lookup"]
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[0.1, 0.5], [1.0, 0.8]])
    np.testing.assert_allclose(ax.lines[1].get_xydata(), [[1.0, 0.5]])
    assert ax.get_title() == "Accuracy"


def test_equal_figures_are_equal_bytes() -> None:
    for kind in ("svg", "png"):
        first, second = (image(reliability_figure(RELIABILITY), kind) for _ in range(2))
        assert first == second
    assert ElementTree.fromstring(image(reliability_figure(RELIABILITY))).tag.endswith("svg")


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("revup.reporting.figures.find_spec", lambda name: None)
    with pytest.raises(RevupError, match=r"a figure needs the extra 'report': pip install 'revup\[report\]'"):
        reliability_figure(RELIABILITY)
