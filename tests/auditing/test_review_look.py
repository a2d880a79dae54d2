"""How the review page looks and reads: narrow and wide, light and dark, by a screen reader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from auditing.lists import written
from auditing.pages import Page
from auditing.servers import serving
from browser import CONTRAST, browser, emulate  # noqa: F401

OUTSIDE = """
[...document.querySelectorAll('#actions button, #sentence, .options button, #help-button')].filter((element) => {
  const box = element.getBoundingClientRect();
  return box.width && (box.left < 0 || box.right > innerWidth);
}).map((element) => element.textContent)"""


@pytest.fixture
def page(browser: Any) -> Iterator[Page]:  # noqa: F811
    yield Page(browser)
    emulate(browser, 1280, 900)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_fits_the_width_and_can_be_read(width: int, scheme: str, tmp_path: Path, page: Page) -> None:
    _, listed = written(tmp_path)
    emulate(page.driver, width, 800, scheme)
    with serving(listed) as server:
        page.open(server.url)
        page.decide("a", "k")
        for state in ("event", "chooser", "help"):
            if state != "event":
                page.key({"chooser": "o", "help": "?"}[state])
                page.wait(f"document.getElementById('{state}').open")
            assert page.js("document.documentElement.scrollWidth") <= width
            assert page.js("document.getElementById('main').scrollWidth <= document.getElementById('main').clientWidth")
            assert page.js(OUTSIDE) == []
            assert page.js(CONTRAST) == []
            page.key("\ue00c")
        box = page.js("document.getElementById('actions').getBoundingClientRect().toJSON()")
        assert (box["bottom"], box["right"]) == (800, width)  # decisions are in reach of the thumb
        dark = page.js("getComputedStyle(document.body).backgroundColor") == "rgb(23, 23, 28)"
        assert dark == (scheme == "dark")


def test_page_reads_well_aloud(tmp_path: Path, page: Page) -> None:
    _, listed = written(tmp_path)
    with serving(listed) as server:
        page.open(server.url)
        nodes = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        named = [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored") and "role" in node
        ]
        roles = ("button", "textbox", "combobox", "listbox", "progressbar", "checkbox", "main", "article")
        assert not [pair for pair in named if pair[0] in roles[:6] and not pair[1].strip()]
        assert {role for role, _ in named} >= {"main", "navigation", "complementary", "heading", "button"}
        assert ("article", "The jury convicted the man of murder.") in named
        buttons = " | ".join(name for role, name in named if role == "button")
        for expected in ("Accept", "Keep", "Other", "Skip", "Undo", "Verdict", "Trial"):
            assert expected in buttons
        page.decide("a")
        assert page.js("document.activeElement.id") == "event"
        page.wait("document.getElementById('announce').textContent === 'Accepted Verdict. Next: convicted.'")
        page.key("o")
        page.wait("document.getElementById('chooser').open")
        assert page.js("document.activeElement.getAttribute('aria-activedescendant')") == "match-0"
        page.key("\ue00c")
        assert page.js("document.activeElement.id") == "event"


def test_single_keys_can_be_switched_off(tmp_path: Path, page: Page) -> None:
    _, listed = written(tmp_path)
    with serving(listed) as server:
        page.open(server.url)
        page.key("?")
        page.js("document.getElementById('single-keys').click()")
        page.key("\ue00c", "a", "k", " ")
        assert page.done() == "0"
        page.js("document.querySelector('[data-action=accept]').click()")
        page.wait("document.getElementById('done').textContent.startsWith('1')")
        page.js("localStorage.clear()")


def test_space_on_a_focused_button_presses_it(tmp_path: Path, page: Page) -> None:
    _, listed = written(tmp_path)
    with serving(listed) as server:
        page.open(server.url)
        page.js("document.querySelector('[data-action=keep]').focus()")
        page.decide(" ")
        assert page.text("#counts") == "0 accepted, 1 kept, 0 other, 0 skipped"
        page.decide(" ")  # the focus went to the event, where the key skips
        assert page.text("#counts") == "0 accepted, 1 kept, 0 other, 1 skipped"
