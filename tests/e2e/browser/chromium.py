"""Debian's Chromium, driven by Playwright; axe as its package bundles it.

Both come from `.playwright`, which `install.sh` fills and `make e2e` puts on the path: no lock of
the product has them, so they are imported by name.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

CHROMIUM = shutil.which("chromium")
HAS_PLAYWRIGHT = importlib.util.find_spec("playwright") is not None
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
SERIOUS = ("serious", "critical")
DESKTOP, PHONE = (1280, 900), (390, 844)
"""Width and height of the window in CSS pixels."""
NEEDS_PLAYWRIGHT = pytest.mark.skipif(
    CHROMIUM is None or not HAS_PLAYWRIGHT,
    reason="no chromium, or no Playwright on the path: `make e2e` installs both",
)


@contextmanager
def launched() -> Iterator[Browser]:
    """Yield a Chromium of its own; it ends with the block."""
    playwright = importlib.import_module("playwright.sync_api").sync_playwright()
    with playwright as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def new_context(
    browser: Browser,
    *,
    url: str,
    window: tuple[int, int] = DESKTOP,
    theme: str = "light",
    scale: float = 1.0,
    state: Any = None,
) -> BrowserContext:
    """Return an empty profile, or one with the stored `state` of another: its cookies."""
    context = browser.new_context(
        base_url=url,
        viewport={"width": window[0], "height": window[1]},
        color_scheme="dark" if theme == "dark" else "light",
        device_scale_factor=scale,
        storage_state=state,
    )
    context.set_default_timeout(20_000)
    return context


def sign_in(page: Page, key: str) -> None:
    """Fill the sign-in form, wherever the page is, and wait for the list of runs."""
    page.goto("/login")
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Runs").wait_for()


def awaited(page: Page, expression: str, *, deadline_s: float = 20.0) -> Any:
    """Return the value of the expression once it is true.

    Asked for again and again: the pages' policy forbids the script that Playwright would leave.
    """
    end = time.monotonic() + deadline_s
    while not (value := page.evaluate(expression)):
        assert time.monotonic() < end, f"not within {deadline_s:.0f} s: {expression}"
        page.wait_for_timeout(100)
    return value


def serious_faults(page: Page) -> list[str]:
    """Return what axe finds in the page as it is now, a line per element; minor faults left out."""
    axe = importlib.import_module("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{fault['id']} ({fault['impact']}) {node['target']}: {node['failureSummary']}"
        f" {node['html'][:200]}"
        for fault in found
        if fault["impact"] in SERIOUS
        for node in fault["nodes"]
    ]


def wider_than_window(page: Page) -> list[str]:
    """Return the elements that make the page scroll sideways; empty where it does not."""
    found: list[str] = page.evaluate(WIDER)
    return found


WIDER = """() => {
  const wide = document.scrollingElement.scrollWidth > innerWidth;
  const clips = (each) => {
    for (let at = each.parentElement; at && at !== document.body; at = at.parentElement)
      if (getComputedStyle(at).overflowX !== "visible") return true;
    return false;
  };
  const found = [...document.body.querySelectorAll("*")]
    .filter((each) => each.getBoundingClientRect().right > innerWidth + 0.5 && !clips(each))
    .map((each) => `${each.tagName}.${each.className} ${each.textContent.trim().slice(0, 60)}`);
  const width = `${document.scrollingElement.scrollWidth} of ${innerWidth} px`;
  return wide ? [width, ...found.slice(0, 8)] : [];
}"""
