"""Driving the review page in a browser."""

from __future__ import annotations

import json
import time
from typing import Any


class Page:
    """The page in a browser.

    Args:
        driver: The Selenium driver.
    """

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str) -> Page:
        """Open the page and wait until it shows an event."""
        self.driver.get(url)
        self.wait("document.documentElement.dataset.ready === 'yes'")
        return self

    def js(self, expression: str) -> Any:
        """The value of an expression."""
        return self.driver.execute_script(f"return {expression.strip()}")

    def wait(self, condition: str, seconds: float = 20.0) -> None:
        """Wait until a condition holds."""
        end = time.monotonic() + seconds
        while not self.js(condition):
            assert time.monotonic() < end, f"never: {condition}\n{self.text('body')}"
            time.sleep(0.02)

    def text(self, selector: str) -> str:
        """The visible text of an element."""
        return str(self.js(f"document.querySelector({json.dumps(selector)}).innerText"))

    def key(self, *keys: str) -> None:
        """Press keys, one after the other, as a person does: wherever the focus is."""
        from selenium.webdriver import ActionChains

        for key in keys:
            ActionChains(self.driver, duration=0).send_keys(key).perform()

    def decide(self, *keys: str) -> None:
        """Press keys that decide, each when the page shows that the last one was saved."""
        for key in keys:
            before = self.done()
            self.key(key)
            self.wait(f"document.getElementById('done').textContent.split(' of ')[0] !== '{before}'")

    def done(self) -> str:
        """How many events are decided, as the page shows it."""
        return self.text("#done").split(" of ")[0]

    def where(self) -> str:
        """The document and event that are shown."""
        return self.text(".where span")
