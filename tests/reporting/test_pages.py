"""The report: pages stand alone, show what they are given, and figures draw the numbers they get."""

from __future__ import annotations

import importlib.util
import re
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from revup.errors import RevupError
from revup.reporting.figures import bars_grid, curves_figure, heatmap_pair, reliability_figure, wilson
from revup.reporting.pages import Page, text_table

RELIABILITY = [
    {"events": 4, "accuracy": 0.75, "confidence": 0.3},
    {"events": 100, "accuracy": 0.6, "confidence": 0.62},
    {"events": 900, "accuracy": 0.95, "confidence": 0.97},
]
METRICS = [
    {"step": s, "train": {"loss": 4.0 / s, "update": 1.0 / s}, "valid": {"accuracy": 0.1 * s, "perplexity": 50.0 / s}}
    for s in (1, 2, 3)
]


class Outline(HTMLParser):
    """Checks that tags nest, and collects them with the text of table cells."""

    VOID = ("meta", "img", "br", "!doctype")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells.append((data, str(self.tags[-1][1].get("class"))))


def outline(html: str) -> Outline:
    parser = Outline()
    parser.feed(html)
    assert parser.open == []
    return parser


def full_page() -> Page:
    page = Page("A <page> & more")
    page.add_heading("Scores")
    page.add_text("One paragraph with `code <b>` and **bold**.\n\nAnother.")
    page.add_table([{"model": "a<b", "score": 0.5, "events": 12345}, {"model": "c", "score": None, "events": 2}], "So.")
    page.add_figure(reliability_figure(RELIABILITY), 'Seen "here"')
    page.add_details("Settings", '{"a": 1}')
    return page


def test_a_page_stands_alone_and_nests(tmp_path: Path) -> None:
    page = full_page()
    page.save(tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text("utf-8")
    found = outline(html)
    names = {tag for tag, _ in found.tags}
    assert not names & {"script", "link", "iframe", "object", "base"}
    for _, attributes in found.tags:
        for name in ("src", "href"):
            assert str(attributes.get(name) or "data:").startswith("data:")
    assert "http" not in re.sub(r"base64,[\w+/=]+", "", html)


def test_everything_given_is_escaped() -> None:
    html = full_page().html()
    assert "<title>A &lt;page&gt; &amp; more</title>" in html
    assert "<code>code &lt;b&gt;</code> and <strong>bold</strong>" in html
    assert ("a<b", "None") in outline(html).cells
    assert "<b>" not in html
    assert outline(html).tags.count(("p", {})) == 2


def test_numbers_stand_to_the_right_and_missing_ones_are_dashes() -> None:
    cells = outline(full_page().html()).cells
    assert cells[1:3] == [("score", "number"), ("events", "number")]
    assert {("0.500", "number"), ("12,345", "number"), ("–", "number")} <= set(cells)


def test_a_table_with_blank_names_has_no_head() -> None:
    page = Page("x")
    page.add_table([{" ": "seed", "  ": "0"}])
    assert "<th" not in page.html().split("<body>")[1]


def test_pictures_inside_the_page_are_svg_that_parses_and_equal_figures_are_equal_bytes() -> None:
    first, second = full_page().html(), full_page().html()
    assert first == second
    (data,) = re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", first)
    assert ElementTree.fromstring(b64decode(data)).tag.endswith("svg")


def test_text_table_aligns() -> None:
    rows = [{"": "lookup", "accuracy": 0.5, "n": 3}, {"": "revup, ours", "accuracy": None, "n": 12000}]
    lines = text_table(rows).splitlines()
    assert lines == [
        "             accuracy       n",
        "───────────  ────────  ──────",
        "lookup          0.500       3",
        "revup, ours         –  12,000",
    ]
    assert text_table([]) == "\n"


def test_a_column_has_one_number_of_digits() -> None:
    rows: list[dict[str, Any]] = [{"perplexity": 9.81, "right": True}, {"perplexity": np.float64(10.8), "right": False}]
    assert [line.split() for line in text_table(rows).splitlines()[2:]] == [["9.8", "yes"], ["10.8", "no"]]


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


def test_curves_have_a_panel_for_each_term_and_score() -> None:
    figure = curves_figure(METRICS, {"accuracy": {"optimum": 0.9}})
    panels = {ax.get_title(): ax for ax in figure.axes if ax.get_visible()}
    assert list(panels) == ["loss", "loss: update", "valid: accuracy", "valid: perplexity"]
    np.testing.assert_allclose(panels["loss: update"].lines[0].get_ydata(), [1, 1 / 2, 1 / 3])
    assert [text.get_text() for text in panels["valid: accuracy"].texts] == ["optimum"]
    assert not panels["valid: perplexity"].texts


def test_curves_leave_unused_panels_out_and_bear_missing_values() -> None:
    lines = [{"step": 1, "train": dict.fromkeys("abcde", 1.0), "valid": {}}, {"step": 2, "train": {}, "valid": {}}]
    assert sum(ax.get_visible() for ax in curves_figure(lines).axes) == 5
    assert sum(ax.get_visible() for ax in curves_figure([]).axes) == 0


def test_heat_maps_show_both_tables_on_one_scale() -> None:
    left, right = np.eye(2, 3), np.full((2, 3), 1 / 3)
    figure = heatmap_pair(["said", "told"], ["A", "B", "C"], left, right, ("learned", "true"))
    for ax, values, title in zip(figure.axes, (left, right), ("learned", "true"), strict=False):
        (mesh,) = ax.collections
        np.testing.assert_allclose(np.ravel(mesh.get_array()), values.ravel())
        assert mesh.get_clim() == (0, 1)
        assert ax.get_title() == title
        assert [label.get_text() for label in ax.get_xticklabels()] == ["A", "B", "C"]


def test_bars_grid_draws_each_series_where_it_belongs() -> None:
    panel = {"proposal": [0.2, 0.8], "revision": [0.1, 0.9], "truth": [0.0, 1.0]}
    figure = bars_grid(["A", "B"], [[panel, panel]], ["row"], ["step 0", "step 9"])
    for ax in figure.axes:
        assert [bar.get_height() for bar in ax.patches] == [0.2, 0.8, 0.1, 0.9]
        assert [segment[0][1] for segment in ax.collections[0].get_segments()] == [0.0, 1.0]


def test_figures_can_be_saved_alone(tmp_path: Path) -> None:
    for ending in ("png", "svg", "pdf"):
        reliability_figure(RELIABILITY).savefig(tmp_path / f"figure.{ending}")
        assert (tmp_path / f"figure.{ending}").stat().st_size > 1000


@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    def find(name: str) -> Any:
        return None if name == missing else importlib.util.find_spec(name)

    monkeypatch.setattr("revup.reporting.figures.find_spec", find)
    with pytest.raises(RevupError, match=r"a report needs the extra 'report': pip install 'revup\[report\]'"):
        Page("x")
    with pytest.raises(RevupError, match="extra 'report'"):
        reliability_figure(RELIABILITY)
