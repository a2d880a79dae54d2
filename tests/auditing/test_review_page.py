"""The review page in a real browser: keyboard, undo, reload, a killed server, many issues, hostile names."""

from __future__ import annotations

import json
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from auditing.lists import documents, issues, lines, written
from auditing.pages import Page
from auditing.servers import command, serving
from browser import browser  # noqa: F401
from revup.auditing.issues import About, decisions_path, write_issues
from revup.data.decisions import latest, read_decisions
from revup.data.events import write
from revup.io.digests import content_digest

ENTER, ESCAPE, TAB, DOWN, UP, LEFT, RIGHT = "\ue007", "\ue00c", "\ue004", "\ue015", "\ue013", "\ue012", "\ue014"
BACKSPACE = "\ue003"


@pytest.fixture
def page(browser: Any) -> Iterator[Page]:  # noqa: F811
    """A page of the module's browser; nothing on it may fail without being noticed."""
    browser.get_log("browser")
    yield Page(browser)
    browser.get("about:blank")
    severe = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert not [entry for entry in severe if entry["source"] != "network"]  # refusals are part of the tests


def decided(listed: Path) -> list[tuple[str, str, str | None]]:
    return [(line["id"], line["decision"], line["frame"]) for line in lines(decisions_path(listed))]


def test_everything_goes_by_keyboard(tmp_path: Path, page: Page) -> None:
    _, listed = written(tmp_path)
    with serving(listed) as server:
        page.open(server.url)
        assert page.where() == "d0 · event 1 of 3"
        assert page.text("mark") == "convicted"
        assert "The jury convicted the man of murder." in page.text("#sentence")
        shown = page.text("#event")
        for expected in ("Verdict", "90%", "Trial", "p(wrong) 95%", "9 of 10 others are Verdict", "suspect 0"):
            assert expected in shown
        page.decide("a", "k", "x")
        page.key("o")
        page.wait("document.getElementById('chooser').open")
        page.key(*"sent")
        assert page.text("#matches [aria-selected=true]").startswith("Sentencing")
        page.decide(ENTER)
        page.decide(" ")
        assert decided(listed) == [
            ("d0", "accept", "Verdict"),
            ("d1", "keep", "Trial"),
            ("d2", "keep", "Trial"),
            ("d3", "other", "Sentencing"),
            ("d4", "skip", None),
        ]
        assert page.text("#counts") == "1 accepted, 2 kept, 1 other, 1 skipped"
        page.decide("a")
        assert "All events are decided" in page.text("#event")
        assert "revup apply docs.jsonl" in page.text("#event")


def test_undo_takes_back_and_shows_the_event_again(tmp_path: Path, page: Page) -> None:
    _, listed = written(tmp_path)
    with serving(listed) as server:
        page.open(server.url)
        page.decide("a", "k", "u")
        assert page.where() == "d1 · event 1 of 3"
        assert decided(listed) == [("d0", "accept", "Verdict")]
        page.open(server.url)  # also after a reload
        page.decide(BACKSPACE)
        assert page.where() == "d0 · event 1 of 3"
        assert decided(listed) == []
        page.key("u")
        page.decide("k")
        assert decided(listed) == [("d0", "keep", "Trial")]


def test_reload_in_the_middle_goes_on(tmp_path: Path, page: Page) -> None:
    _, listed = written(tmp_path)
    with serving(listed) as server:
        page.open(server.url)
        page.decide("a", "a")
        page.driver.refresh()
        page.wait("document.documentElement.dataset.ready === 'yes'")
        assert page.where() == "d2 · event 1 of 3"
        assert page.done() == "2"
        page.decide("a")
        assert [each[0] for each in decided(listed)] == ["d0", "d1", "d2"]


def test_killed_server_loses_no_decision(tmp_path: Path, page: Page) -> None:
    _, listed = written(tmp_path)
    process, url = command(listed)
    try:
        page.open(url)
        page.decide("a")
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert decided(listed) == [("d0", "accept", "Verdict")]
        page.key("k")  # while nobody answers: kept, not shown as done, saved when the server is there again
        page.wait("document.getElementById('alert').textContent.includes('not saved yet')")
        assert (page.done(), page.where()) == ("1", "d1 · event 1 of 3")
        process, again = command(listed, port=int(url.rsplit(":", 1)[1].strip("/")))
        assert again == url
        page.wait("document.getElementById('done').textContent.startsWith('2')")
        assert page.text("#alert") == ""
        page.decide("a")
        assert decided(listed) == [("d0", "accept", "Verdict"), ("d1", "keep", "Trial"), ("d2", "accept", "Verdict")]
    finally:
        process.kill()
        process.wait()


def test_html_in_names_is_text(tmp_path: Path, page: Page) -> None:
    evil = "<img src=x onerror=window.hacked=1><b>Ev&il</b></script><script>window.hacked=2</script>"
    found = [
        {
            **issue,
            "proposed": evil,
            "pred": evil,
            "source": evil,
            "reasons": [evil],
            "id": evil,
            "text": evil,
            "span": None,
        }
        for issue in issues(1)
    ]
    listed = tmp_path / "issues.jsonl"
    write_issues(listed, found, About(evil, "0" * 64, [evil, "Trial"]))
    with serving(listed) as server:
        page.open(server.url)
        assert page.text(".proposed b") == evil
        assert page.text("#sentence") == evil
        assert page.text(".reasons") == evil
        page.key("o")
        page.wait("document.getElementById('chooser').open")
        assert evil in page.text("#matches")
        page.key(ESCAPE)
        page.decide("a")
        assert page.js("window.hacked") is None
        assert page.js("document.querySelectorAll('main img, main script, #side img').length") == 0
        assert lines(decisions_path(listed))[0]["frame"] == evil


WATCH = """(() => {
  window.delays = [];
  const where = () => document.querySelector('.where').textContent;
  let began, before;
  addEventListener('keydown', () => { began = performance.now(); before = where(); }, true);
  new MutationObserver(() => {
    if (before && where() !== before) { delays.push(performance.now() - began); before = null; }
  }).observe(document.getElementById('event'), { childList: true, subtree: true });
})()"""


def delay(page: Page, listed: Path) -> float:
    """Median milliseconds from a key to the next event, the disk between them."""
    with serving(listed) as server:
        page.open(server.url)
        page.js(WATCH)
        page.decide(*"akakakakakakakak")
        return float(statistics.median(page.js("delays")))


def test_ten_thousand_issues_do_not_lag(tmp_path: Path, page: Page) -> None:
    """A key takes as long as with a handful of issues, whatever else this machine does at the same time."""
    file, listed = tmp_path / "docs.jsonl", tmp_path / "issues.jsonl"
    write(documents(10_000), file)
    frames = [f"Frame_{number}" for number in range(1200)]
    write_issues(listed, issues(10_000), About(str(file), content_digest(file), frames))
    _, few = written(tmp_path / "few", count=20)
    attempts = []
    for _ in range(4):
        many, little = delay(page, listed), delay(page, few)
        attempts.append((many, little))
        if many < 1.5 * little + 30:
            break
        for path in (listed, few):
            decisions_path(path).unlink()
    else:
        pytest.fail(f"milliseconds with 10,000 and with 20 issues: {attempts}")
    with serving(listed) as server:
        page.open(server.url)
        assert page.text("#done") == "16 of 10,000"
        page.key("f", TAB, *"convic", ENTER)
        page.wait("document.querySelector('.where').textContent.includes('of 10,000')")
        assert len(read_decisions(decisions_path(listed))) == 16


def test_filters_narrow_the_list(tmp_path: Path, page: Page) -> None:
    found = issues(6)
    for number, issue in enumerate(found):
        issue["source"] = ("ann1", "ann2")[number % 2]
    found[3] |= {"pred": "freed", "proposed": "Arrest"}
    _, listed = written(tmp_path, rows=found)
    with serving(listed) as server:
        page.open(server.url)
        page.key("f", TAB, *"freed", ENTER)
        page.wait("document.querySelector('.where').textContent.startsWith('d3')")
        assert "1 of 1" in page.text(".where")
        page.key("k")  # the focus is back on the event
        page.wait("document.getElementById('event').textContent.includes('pass the filters are decided')")
        page.js("document.querySelector('#filter-form button').click()")
        page.wait("document.querySelector('.where').textContent.startsWith('d0')")
        page.key("f", *"Arrest", TAB)
        page.wait("document.getElementById('filtered').textContent === '1 of 6'")
        page.js("document.querySelector('#filter-form button').click()")
        page.js(
            "(() => { const s = document.getElementById('filter-source'); s.selectedIndex = 2;"
            " s.dispatchEvent(new Event('change', { bubbles: true })) })()"
        )
        page.wait("document.getElementById('filtered').textContent === '3 of 6'")
        assert decided(listed) == [("d3", "keep", "Trial")]  # letters typed into a filter decide nothing


def test_looking_around_decides_nothing(tmp_path: Path, page: Page) -> None:
    _, listed = written(tmp_path)
    with serving(listed) as server:
        page.open(server.url)
        page.key(RIGHT, RIGHT, LEFT)
        page.wait("document.querySelector('.where').textContent.startsWith('d1')")
        page.decide("a")
        page.key(LEFT)
        page.wait("document.querySelector('.where').textContent.startsWith('d1')")
        assert "accepted" in page.text(".where")
        page.key("n")
        page.wait("document.querySelector('.where').textContent.startsWith('d2')")
        assert decided(listed) == [("d1", "accept", "Verdict")]


def test_changed_mind_is_the_decision_that_holds(tmp_path: Path, page: Page) -> None:
    _, listed = written(tmp_path)
    with serving(listed) as server:
        page.open(server.url)
        page.decide("a")
        page.key(LEFT, "k")
        page.wait("document.getElementById('counts').textContent.startsWith('0 accepted, 1 kept')")
    assert [each.decision for each in latest(read_decisions(decisions_path(listed))).values()] == ["keep"]


def test_held_key_decides_once(tmp_path: Path, page: Page) -> None:
    _, listed = written(tmp_path)
    with serving(listed) as server:
        page.open(server.url)
        press = {"type": "keyDown", "key": "a", "text": "a", "windowsVirtualKeyCode": 65}
        for repeat in (False, True, True, True):
            page.driver.execute_cdp_cmd("Input.dispatchKeyEvent", {**press, "autoRepeat": repeat})
        time.sleep(0.3)
        assert len(decided(listed)) == 1


def test_keyboards_without_latin_letters(tmp_path: Path, page: Page) -> None:
    _, listed = written(tmp_path)
    with serving(listed) as server:
        page.open(server.url)
        for letter, code in (("ф", "KeyA"), ("л", "KeyK")):  # Russian: where A and K are
            before = page.done()
            press = {"type": "keyDown", "key": letter, "code": code, "text": letter}
            page.driver.execute_cdp_cmd("Input.dispatchKeyEvent", press)
            page.wait(f"!document.getElementById('done').textContent.startsWith('{before} ')")
        assert [each[1] for each in decided(listed)] == ["accept", "keep"]


def test_new_frame_and_no_frame_must_be_chosen_on_purpose(tmp_path: Path, page: Page) -> None:
    _, listed = written(tmp_path)
    with serving(listed) as server:
        page.open(server.url)
        page.key("o", *"Acquittal", ENTER)  # no such frame: Enter alone chooses nothing
        assert page.js("document.getElementById('chooser').open")
        page.key(DOWN)
        page.decide(ENTER)
        page.key("o", UP)
        assert page.text("#matches [aria-selected=true]").startswith("No frame fits")
        page.decide(ENTER)
        page.key("o", *"acq")
        assert page.text("#matches [aria-selected=true]").startswith("Acquittal")  # the list has it now
        page.key(ESCAPE)
        assert decided(listed) == [("d0", "other", "Acquittal"), ("d1", "other", None)]


def test_offsets_count_characters(tmp_path: Path, page: Page) -> None:
    found = {**issues(1)[0], "text": "😀😀 They 𝒄onvicted him.", "span": [8, 17]}
    _, listed = written(tmp_path, rows=[found])
    with serving(listed) as server:
        page.open(server.url)
        assert page.text("mark") == "𝒄onvicted"


def test_second_window_sees_what_the_first_decided(tmp_path: Path, page: Page) -> None:
    _, listed = written(tmp_path)
    with serving(listed) as server:
        page.open(server.url)
        first = page.driver.current_window_handle
        page.driver.switch_to.new_window("tab")
        page.open(server.url)
        page.decide("a")
        page.driver.switch_to.window(first)
        page.key("k")
        page.wait("document.getElementById('alert').textContent.includes('Another window')")
        assert page.done() == "1"
        assert decided(listed) == [("d0", "accept", "Verdict")]
        page.driver.switch_to.window(page.driver.window_handles[1])
        page.driver.close()
        page.driver.switch_to.window(first)


def test_no_request_to_any_other_host(tmp_path: Path, page: Page) -> None:
    _, listed = written(tmp_path)
    page.driver.get_log("performance")
    with serving(listed) as server:
        page.open(server.url)
        page.decide("a")
        events = [json.loads(entry["message"])["message"] for entry in page.driver.get_log("performance")]
        urls = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
        assert len(urls) >= 3
        assert all(url.startswith((server.url, "data:")) for url in urls), urls


def test_page_of_another_origin_cannot_decide(tmp_path: Path, page: Page) -> None:
    _, listed = written(tmp_path)
    _, decoy = written(tmp_path / "decoy")
    with serving(listed) as server, serving(decoy) as other:
        body = {"list": server.review.list, "after": 0, "row": 0, "decision": "keep", "frame": "Trial"}
        page.driver.get(other.url)
        code = """
            const [url, token, body, done] = arguments;
            const frame = document.createElement('iframe');
            document.body.append(frame);
            const headers = { 'X-Revup-Token': token, 'Content-Type': 'application/json' };
            const send = [
              () => frame.contentWindow.fetch(url + 'api/decide', { method: 'POST', body, headers }),
              () => frame.contentWindow.fetch(url + 'api/decide', { method: 'POST', body, mode: 'no-cors' }),
              () => frame.contentWindow.fetch(url + 'api/session'),
            ];
            Promise.allSettled(send.map((each) => each())).then((all) => done(all.map((each) => each.status)));
        """
        page.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})  # the decoy is as hostile as it can be
        page.driver.get(other.url)
        outcome = page.driver.execute_async_script(code, server.url, server.review.token, json.dumps(body))
        page.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": False})
        assert outcome[0] == outcome[2] == "rejected"
        assert not server.review.log.entries
        page.driver.get_log("browser")  # the refusals are in the console
