"""The review as one HTML file: it needs nothing beside itself, keeps decisions and exports what `apply` reads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from auditing.lists import issues, lines, row, written
from auditing.pages import Page
from browser import browser, chromium  # noqa: F401
from revup.auditing.apply import apply
from revup.auditing.issues import About, write_issues
from revup.auditing.page import page_html, write_page
from revup.errors import OutputExistsError


def test_decisions_are_kept_and_exported(tmp_path: Path) -> None:
    file, listed = written(tmp_path)
    assert write_page(tmp_path / "page.html", listed) == 6
    with chromium(downloads=tmp_path) as driver:
        page = Page(driver).open((tmp_path / "page.html").as_uri())
        assert "suspect 0" in page.text(".around")
        page.decide("a", "k", "a", "u")
        page.open((tmp_path / "page.html").as_uri())  # closed and opened again
        assert (page.done(), page.where()) == ("2", "d2 · event 1 of 3")
        page.decide(" ")
        page.key("e")
        exported = tmp_path / "issues.decisions.jsonl"
        page.wait("document.getElementById('announce').textContent.includes('3 decisions exported')")
        for _ in range(200):
            if exported.exists():
                break
            page.js("new Promise((resolve) => setTimeout(resolve, 20))")
        found = lines(exported)
        assert [(each["id"], each["decision"], each["frame"]) for each in found] == [
            ("d0", "accept", "Verdict"),
            ("d1", "keep", "Trial"),
            ("d2", "skip", None),
        ]
        assert list(found[0]) == ["id", "event", "given", "decision", "frame", "digest", "time"]
        figures = apply(file, exported, tmp_path / "out.jsonl")
        assert (figures["changed"], figures["unchanged"], figures["skipped"]) == (1, 1, 1)
        # and back in, in a browser that knows nothing
        page.js("localStorage.clear()")
        page.open((tmp_path / "page.html").as_uri())
        assert page.done() == "0"
        page.driver.find_element("id", "import").send_keys(str(exported))
        page.wait("document.getElementById('done').textContent.startsWith('3')")
        page.driver.find_element("id", "import").send_keys(str(listed))
        page.wait("document.getElementById('alert').textContent.includes('no decision about this list')")
        assert not [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
        sent = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
        urls = [each["params"]["request"]["url"] for each in sent if each["method"] == "Network.requestWillBeSent"]
        assert all(url.startswith(("file:", "data:", "blob:", "chrome:")) for url in urls), urls


def test_names_cannot_break_out_of_the_data(tmp_path: Path, browser: Any) -> None:  # noqa: F811
    evil = "</script><script>window.hacked=1</script><!--"
    write_issues(tmp_path / "i.jsonl", [row(proposed=evil, reasons=[evil], text=evil)], About(evil, "0" * 64, [evil]))
    write_page(tmp_path / "page.html", tmp_path / "i.jsonl")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert text.count("</script>") == 2
    page = Page(browser).open((tmp_path / "page.html").as_uri())
    assert page.text(".proposed b") == evil
    assert page.js("window.hacked") is None


def test_page_holds_the_most_suspicious_only(tmp_path: Path) -> None:
    _, listed = written(tmp_path)
    assert write_page(tmp_path / "page.html", listed, most=2) == 2
    data = re.search(r'id="data">(.*?)</script>', (tmp_path / "page.html").read_text("utf-8"), re.S)
    assert data
    found = json.loads(data[1])
    assert [each["id"] for each in found["rows"]] == ["d0", "d1"]
    assert (found["count"], found["total"]) == (2, 6)
    assert set(found["documents"]) == {"d0", "d1"}
    with pytest.raises(OutputExistsError):
        write_page(tmp_path / "page.html", listed)


def test_page_without_the_file_shows_the_events_around(tmp_path: Path, browser: Any) -> None:  # noqa: F811
    file, listed = written(tmp_path, rows=issues(2))
    file.unlink()
    write_page(tmp_path / "page.html", listed)
    page = Page(browser).open((tmp_path / "page.html").as_uri())
    assert "suspect 0" in page.text(".around")


def test_equal_lists_are_equal_bytes() -> None:
    assert page_html({"a": "<b>"}, connect=False) == page_html({"a": "<b>"}, connect=False)
    assert "connect-src 'none'" in page_html({}, connect=False)
