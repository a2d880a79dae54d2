"""A headless Chromium for tests of pages, where one is installed.

Import the fixture by name into a test module: `from browser import browser  # noqa: F401`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)

# the contrast of every visible text with what is behind it, by WCAG's formula
CONTRAST = """
(() => {
  const channels = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.slice(0, 3).map((c) => (c / 255 <= .03928 ? c / 255 / 12.92 : ((c / 255 + .055) / 1.055) ** 2.4));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = channels(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest(':disabled, .unseen, .flash, script, datalist, option')) continue;
    const [a, b] = [light(channels(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) found.push(`${element.tagName} ${element.className} ${element.textContent.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return found;
})()"""  # noqa: E501


@contextmanager
def chromium(width: int = 1280, height: int = 900, downloads: Path | None = None) -> Iterator[Any]:
    """Start a Chromium with a fresh profile; skips the test where Chromium, its driver or Selenium is missing.

    Args:
        width, height: Size of the window in pixels. Chromium's windows are at least 500 wide: `emulate` goes below.
        downloads: Where downloaded files go.

    Yields:
        The Selenium driver, which records the console (`get_log("browser")`) and network events
        (`get_log("performance")`).
    """
    for program in (CHROMIUM, DRIVER):
        if not program.exists():
            pytest.skip(f"{program} is not installed")
    webdriver = pytest.importorskip("selenium.webdriver", reason="Selenium is not installed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        if downloads is not None:
            options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
        try:
            driver.get("about:blank")  # else the start page may still come, and replace the page of a test
            yield driver
        finally:
            driver.quit()


def emulate(driver: Any, width: int, height: int, scheme: str = "light") -> None:
    """Give the page a size, and the colour scheme that the user prefers.

    Args:
        driver: The Selenium driver.
        width, height: Size of the viewport in CSS pixels.
        scheme: "light" or "dark".
    """
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for the tests of a module."""
    with chromium() as driver:
        yield driver
