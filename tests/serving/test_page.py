"""The page in a real browser: a story, a frame set, details, copying, keyboard, screen reader, no other host."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from asking import ask
from browser import CONTRAST, browser, emulate  # noqa: F401
from revup.data.documents import as_documents
from revup.data.events import Document, document_to_json
from revup.data.lexicon import Lexicon
from revup.inference.trained import Trained
from revup.serving.server import running

OUTSIDE = """
[...document.querySelectorAll('button, h3, .frame, textarea, pre, td')].filter((element) => {
  const box = element.getBoundingClientRect();
  return box.width && (box.left < 0 || box.right > innerWidth + 1);
}).map((element) => element.textContent)"""
UNNAMED = """
[...document.querySelectorAll('button, input, select, textarea, a, article, section, dialog, nav')].filter((element) =>
  element.checkVisibility() && !element.textContent.trim() && !element.labels?.length
  && !element.getAttribute('aria-label') && !element.getAttribute('aria-labelledby')
).map((element) => element.outerHTML)"""


class Page:
    """The page in a browser."""

    def __init__(self, driver: Any, address: str) -> None:
        self.driver, self.address = driver, address

    def open(self, path: str = "/") -> Page:
        self.driver.get_log("browser")
        self.driver.get(self.address + path)
        assert self.driver.current_url == self.address + path
        self.wait("(document.getElementById('about')?.textContent ?? '') !== ''")
        return self

    def js(self, expression: str, *arguments: Any) -> Any:
        return self.driver.execute_script(f"return {expression.strip()}", *arguments)

    def wait(self, condition: str, seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while not self.js(condition):
            assert time.monotonic() < end, f"never: {condition}\n{self.text('body')}"
            time.sleep(0.02)

    def text(self, selector: str) -> str:
        return str(self.js("document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def texts(self, selector: str) -> list[str]:
        found = self.js("[...document.querySelectorAll(arguments[0])].map((each) => each.innerText.trim())", selector)
        return list(found)

    def click(self, selector: str, number: int = 0) -> None:
        self.js("document.querySelectorAll(arguments[0])[arguments[1]].click()", selector, number)

    def key(self, *keys: str) -> None:
        """Press keys as a person does: wherever the focus is."""
        from selenium.webdriver import ActionChains

        for key in keys:
            ActionChains(self.driver, duration=0).send_keys(key).perform()

    def label(self, text: str) -> None:
        """Type a story and label it; wait until its vectors are there too."""
        self.js("document.getElementById('input').value = arguments[0]", text)
        self.js("document.getElementById('input').dispatchEvent(new Event('input', {bubbles: true}))")
        self.click("#send")
        self.settle()

    def settle(self) -> None:
        self.wait("document.getElementById('story').getAttribute('aria-busy') === 'false'")


@pytest.fixture
def page(browser: Any, server: str) -> Iterator[Page]:  # noqa: F811
    yield Page(browser, server).open()
    assert browser.get_log("browser") == []  # nothing went wrong, and the policy forbade nothing
    emulate(browser, 1280, 900)


@pytest.fixture(scope="module")
def story(tiny_documents: list[Document]) -> dict[str, Any]:
    """A document of four events without labels."""
    document = document_to_json(next(each for each in tiny_documents if len(each.events) == 4))
    for event in document["events"]:
        event.pop("frame", None)
    return document


def shown(page: Page) -> list[str]:
    """The most probable frame of each event."""
    return page.texts(".options li:first-child .frame")


def titles(page: Page) -> list[str]:
    """Who did what to whom, without the number that only a screen reader says."""
    return [" ".join(text.split(":", 1)[1].split()) for text in page.texts(".event h3")]


def test_pasted_events_become_a_timeline_with_the_answers_of_the_server(page: Page, story: dict[str, Any]) -> None:
    page.label(json.dumps(story))
    expected = ask(page.address, "/predict", {"documents": [story]}).data["documents"][0]["events"]
    assert shown(page) == [event["predicted"][0]["frame"] for event in expected]
    assert [title.split()[0] for title in titles(page)] == [
        event.get("subj") or event["pred"] for event in story["events"]
    ]
    page.click(".more", 2)
    rows = page.texts(".events li:nth-child(3) .options .frame")
    assert rows == [item["frame"] for item in expected[2]["predicted"]]
    assert len(page.texts(".near li")) == 3
    assert page.text("#status") == "4 events labelled."


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (
            "arrested | police | man | in\nleft\tman\n\nsaid, he, _, to",
            ["police arrested man in …", "man left", "he said to …"],
        ),
        ('[{"pred": "left", "subj": "man"}]', ["man left"]),
        ('{"events": [{"pred": "left"}]}\n{"events": [{"pred": "said"}]}', ["left", "said"]),
        ('{"documents": [{"events": [{"pred": "left"}]}], "top": 3}', ["left"]),
    ],
)
def test_input_may_be_lines_or_json(page: Page, text: str, events: list[str]) -> None:
    page.label(text)
    assert titles(page) == events


def test_setting_a_frame_moves_the_others_and_removing_it_brings_them_back(page: Page, story: dict[str, Any]) -> None:
    page.label(json.dumps(story))
    before, shares = shown(page), page.texts(".options .percent")
    wanted = page.texts(".events li:nth-child(1) .options .frame")[1]
    page.click(".events li:nth-child(1) .options button", 1)
    page.settle()
    page.wait("document.querySelector('.pinned') !== null")
    revised = {**story, "events": [{**story["events"][0], "frame": wanted}, *story["events"][1:]]}
    answer = ask(page.address, "/predict", {"documents": [revised], "revise": True}).data["documents"][0]["events"]
    assert shown(page) == [event["predicted"][0]["frame"] for event in answer]
    assert page.text(".pin").startswith(f"Set by you: {wanted}")
    assert any("▲" in each for each in page.texts(".events li:nth-child(1) .change"))
    assert f"Event 1 is set to {wanted}." in page.text("#status")
    page.click(".pin button")
    page.settle()
    page.wait("document.querySelector('.pinned') === null")
    assert (shown(page), page.texts(".options .percent")) == (before, shares)


def test_any_frame_of_the_model_can_be_set_and_no_other(page: Page, story: dict[str, Any], model: Trained) -> None:
    page.label(json.dumps(story))
    page.click(".more", 1)
    for name in (model.frames[-1], "Nonsense"):
        page.js("document.querySelector('.choose input').value = arguments[0]", name)
        page.click(".choose button")
        page.settle()
        page.wait("document.querySelector('.pinned') !== null")
    assert page.text("#alert") == "The model has no frame Nonsense."
    assert page.text(".pin").startswith(f"Set by you: {model.frames[-1]}")
    page.click("#undo")
    assert page.texts(".pin") == []


def test_everything_works_by_keyboard(page: Page, story: dict[str, Any]) -> None:
    from selenium.webdriver.common.keys import Keys

    page.js("document.getElementById('input').focus()")
    page.driver.switch_to.active_element.send_keys("left | man\nsaid | man | word\n")
    page.driver.switch_to.active_element.send_keys(Keys.CONTROL, Keys.ENTER)
    page.wait("document.querySelectorAll('.event').length === 2")
    page.settle()
    page.js("document.querySelector('.event').focus()")
    page.key(Keys.ARROW_DOWN, "2")
    page.wait("document.querySelectorAll('.events > li')[1].classList.contains('pinned')")
    page.settle()
    assert page.js("document.activeElement.dataset.key") == "0/1"  # the focus stays where it was
    page.key(Keys.ENTER)
    page.wait("document.querySelector('.details') !== null")
    page.key("0")
    page.wait("document.querySelector('.pinned') === null")
    page.key("?")
    page.wait("document.getElementById('help').open")
    page.key(Keys.ESCAPE)
    page.wait("!document.getElementById('help').open")


def test_copied_curl_command_gives_the_shown_answer(page: Page, story: dict[str, Any]) -> None:
    page.js("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    story = {**story, "id": "it's"}
    page.label(json.dumps(story))
    page.click(".events li:nth-child(2) .options button", 1)
    page.settle()
    page.wait("document.querySelector('.pinned') !== null")
    page.click("#copy-json")
    page.wait("window.copied !== undefined")
    documents = json.loads(page.js("window.copied"))["documents"]
    assert [event["predicted"][0]["frame"] for event in documents[0]["events"]] == shown(page)
    page.click("#copy-curl")
    page.wait("window.copied.startsWith('curl ')")
    command = page.js("window.copied")
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 127:
        pytest.skip("curl is not installed")
    assert json.loads(done.stdout)["documents"] == documents


def test_what_is_wrong_is_said_in_one_sentence(page: Page) -> None:
    for text, sentence in (
        ("", "There is nothing to label yet: paste events, one a line, or JSON."),
        ("a|b|c|d|e", "Line 1: expected predicate | subject | object | modifier, found 5 parts."),
        ('[{"pred": 5}]', "documents[0].events[0].pred: expected the predicate as text, found the number 5"),
    ):
        page.label(text)
        page.wait(f"document.getElementById('alert').textContent === {json.dumps(sentence)}")
    markup = '<img src=x onerror="document.title=1">'
    page.label(json.dumps([{"pred": markup, "subj": markup}]))
    assert page.texts(".event h3")[0].endswith(f"{markup} {markup}")
    page.driver.get_log("browser")  # the refused request is noted there


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_fits_the_width_and_can_be_read(width: int, scheme: str, page: Page, story: dict[str, Any]) -> None:
    emulate(page.driver, width, 800, scheme)
    page.label(json.dumps(story))
    page.click(".options button", 1)
    page.settle()
    page.click(".more", 0)
    assert page.js(OUTSIDE) == []
    assert page.js("document.documentElement.scrollWidth <= innerWidth")
    assert page.js(CONTRAST) == []
    assert page.js(UNNAMED) == []
    page.open("/docs")
    page.wait("document.querySelectorAll('article').length > 9")
    assert page.js("document.documentElement.scrollWidth <= innerWidth")
    assert page.js(CONTRAST) == []


def test_pages_ask_no_other_host(page: Page, story: dict[str, Any]) -> None:
    page.driver.get_log("performance")
    page.open().label(json.dumps(story))
    page.open("/docs")
    page.wait("document.querySelectorAll('article').length > 9")
    events = [json.loads(entry["message"])["message"] for entry in page.driver.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert {address.split("/")[3] for address in asked} >= {
        "",
        "page",
        "info",
        "predict",
        "embed",
        "docs",
        "openapi.json",
    }
    assert all(address.startswith((page.address, "data:")) for address in asked)


def test_token_is_asked_for(browser: Any, model: Trained, story: dict[str, Any]) -> None:  # noqa: F811
    with running(model, token="s3cret") as address:
        page = Page(browser, address)
        browser.get(address)
        page.wait("!document.getElementById('token-box').hidden")
        page.js("document.getElementById('token').focus()")
        browser.switch_to.active_element.send_keys("s3cret\t")
        page.wait("(document.getElementById('about')?.textContent ?? '') !== ''")
        page.label(json.dumps(story))
        assert len(shown(page)) == 4
        assert page.text("#alert") == ""


def test_explanation_and_other_models_are_shown(
    browser: Any,  # noqa: F811
    model: Trained,
    story: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the dictionary and the counts say of an event, and what the context changes, as the model tells it."""
    (document,) = as_documents(story)
    pred = document.events[1].pred  # of the event whose details are opened
    lexicon = Lexicon({pred: {(model.frames[0], ""): 3.0, (model.frames[1], ""): 1.0}})
    monkeypatch.setattr(model, "lexicon", lexicon)
    why = model.explain([document])[0][1]
    assert [item["probability"] for item in why["lexicon"]] == [0.75, 0.25]
    assert abs(sum(item["change"] for item in model.explain([document], len(model.frames))[0][1]["context"])) < 0.01
    with running({"first": model, "second": model}) as address:
        page = Page(browser, address).open()
        page.label(json.dumps(story))
        page.click(".more", 1)
        titles = ["THE DICTIONARY SAYS", "THE COUNTS SAY", "THE CONTEXT CHANGES"]
        assert page.texts(".details h4")[: 2 + bool(why["context"])] == titles[: 2 + bool(why["context"])]
        assert page.texts(".shares .percent")[:2] == ["75%", "25%"]
        assert page.texts(".shares .frame")[2] == why["counts"][0]["frame"]
        page.js("document.getElementById('model').value = 'second'")
        page.js("document.getElementById('model').dispatchEvent(new Event('change'))")
        page.wait("document.getElementById('about').textContent.startsWith('second: revup')")
        page.settle()
        assert len(shown(page)) == 4
