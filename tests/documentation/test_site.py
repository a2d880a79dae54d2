"""The site: built without a warning, no dead link, nothing asked of another host, a search that works from file://."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from browser import chromium
from paths import ROOT

pytest.importorskip("furo", reason="the extra 'docs' is not installed")
FOREIGN = re.compile(r'"documentURL":"file:.*"url":"https?:')  # what a page of the site asks, not the browser itself
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """The ids, links and loaded files of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids.add(given.get("id") or "")
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        if tag in LOADS and given.get(LOADS[tag]):
            self.loads.append(str(given[LOADS[tag]]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    out = tmp_path_factory.mktemp("site")
    (command,) = re.findall(r"-m (sphinx .*) build/docs$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    words = [word if word != "auto" else "1" for word in command.split()]
    assert {"-n", "-W"} <= set(words)
    done = subprocess.run([sys.executable, "-m", *words, str(out)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def test_every_page_is_there(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    missing = [
        str(page) for page in pages if str(page) != "README.md" and not (site / page.with_suffix(".html")).exists()
    ]
    assert not missing


def test_links_and_anchors_resolve(site: Path) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html")}
    dead = []
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"\w+:", link):
                continue
            target, _, anchor = unquote(link).partition("#")
            found = (path.parent / target).resolve() if target else path
            if not found.exists() or (anchor and found in pages and anchor not in pages[found].ids):
                dead.append(f"{path.relative_to(site)}: {link}")
    assert not dead


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert not [load for load in Page(path).loads if re.match(r"(\w+:)?//", load)], path
    for path in [*site.rglob("*.css"), *site.rglob("*.js")]:
        assert not re.findall(r"(?:url\(|@import|fetch\(|src\s*=)\s*['\"]?https?://", path.read_text("utf-8")), path


def test_search_works_from_a_file(site: Path) -> None:
    with chromium() as driver:
        driver.get((site / "search.html").as_uri() + "?q=patience")
        end = time.monotonic() + 20
        # results appear one by one; the last of them need not be there when the first is
        while not driver.find_elements("css selector", "#search-results li a[href*='training.html']"):
            assert time.monotonic() < end
            time.sleep(0.1)
        asked = [entry for entry in driver.get_log("performance") if FOREIGN.search(entry["message"])]
        assert not asked
