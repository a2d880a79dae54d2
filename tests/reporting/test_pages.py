"""Pages stand alone and show what they are given."""

from __future__ import annotations

import re
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

from revup.reporting.figures import reliability_figure
from revup.reporting.pages import Page

RELIABILITY = [
    {"events": 4, "accuracy": 0.75, "confidence": 0.3},
    {"events": 100, "accuracy": 0.6, "confidence": 0.62},
    {"events": 900, "accuracy": 0.95, "confidence": 0.97},
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


def test_page_needs_nothing_beside_itself(tmp_path: Path) -> None:
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


def test_everything_is_escaped() -> None:
    html = full_page().html()
    assert "<title>A &lt;page&gt; &amp; more</title>" in html
    assert "<code>code &lt;b&gt;</code> and <strong>bold</strong>" in html
    assert ("a<b", "None") in outline(html).cells
    assert "<b>" not in html
    assert outline(html).tags.count(("p", {})) == 2


def test_numbers_are_aligned_right_and_missing_ones_are_dashes() -> None:
    cells = outline(full_page().html()).cells
    assert cells[1:3] == [("score", "number"), ("events", "number")]
    assert {("0.500", "number"), ("12,345", "number"), ("–", "number")} <= set(cells)


def test_table_with_blank_names_has_no_header() -> None:
    page = Page("x")
    page.add_table([{" ": "seed", "  ": "0"}])
    assert "<th" not in page.html().split("<body>")[1]


def test_images_are_valid_svg_and_equal_pages_are_equal_bytes() -> None:
    first, second = full_page().html(), full_page().html()
    assert first == second
    (data,) = re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", first)
    assert ElementTree.fromstring(b64decode(data)).tag.endswith("svg")
