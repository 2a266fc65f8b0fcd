"""One person's way through the product in Chromium, on a real stack that really trains.

Signed in by the form, a run from the submit page, pass@1 that moves in front of the reader, one of
its rollouts, a fork by keyboard, both compared, the experiment's changelog, the fork cancelled.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.e2e.browser.chromium import NEEDS_PLAYWRIGHT, awaited, new_context, sign_in
from tests.e2e.browser.stack import RUN_S, OwnStack

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = [pytest.mark.e2e, pytest.mark.stack, NEEDS_PLAYWRIGHT]

NAME = "first climb"
FORK = "climb on by keyboard"
RUN_MS = 1000.0 * RUN_S
FIELDS = {
    "name": NAME,
    "data.env_keys": "booking",
    "data.eval_tasks_per_env": "24",
    "schedule.train_batch_size": "8",
    "schedule.mini_batch_size": "4",
    "eval.interval": "2",
    "checkpoints.interval": "2",
}
CHOICES = {"engine.type": "torch", "placement.type": "inline"}
OBSERVE = """() => {
  const cell = document.querySelector("#envs tr[data-env=all] [data-cell=now]");
  window.rates = [];
  const note = () => {
    if (window.rates.at(-1) !== cell.textContent) window.rates.push(cell.textContent);
  };
  note();
  new MutationObserver(note).observe(cell, { childList: true, subtree: true, characterData: true });
}"""
TWO_RATES = """() => new Set(window.rates.filter((rate) => rate.includes("%"))).size > 1"""


def test_a_conversation_with_the_dashboard(stack: OwnStack, browser: Browser) -> None:
    context = new_context(browser, url=stack.url)
    page = context.new_page()
    try:
        sign_in(page, stack.key)
        first = submit_from_the_form(page, stack)
        watch_the_pass_rate_move(page, stack, first)
        open_a_rollout(page, first)
        second = fork_by_keyboard(page, first)
        compare(page, first, second)
        read_the_changelog(page, stack, first, second)
        cancel(page, stack, second)
    finally:
        context.close()


def submit_from_the_form(page: Page, stack: OwnStack) -> str:
    """Make a mistake, mend it, read the plan, and press the button twice."""
    page.get_by_role("link", name="New run").click()
    page.get_by_role("heading", name="New run").wait_for()
    for path, text in FIELDS.items():
        field(page, path).fill(text)
    for path, choice in CHOICES.items():
        field(page, path).select_option(choice)

    steps = field(page, "schedule.total_steps")
    steps.fill("a few")
    beside = page.locator('[id="e-schedule.total_steps"]')
    beside.filter(has_text="write a whole number").wait_for()
    assert steps.get_attribute("aria-invalid") == "true"
    assert "1 mistake: this cannot be submitted yet." in page.inner_text("#plan-status")
    assert page.locator("#outcome").get_by_text("Resolved spec").count() == 0

    steps.fill("6")
    page.locator("#plan-status").filter(has_text="Valid, with").wait_for()
    assert beside.inner_text() == ""
    assert steps.get_attribute("aria-invalid") is None
    plan = page.inner_text("#outcome")
    assert "No machines are rented: it runs on the runners of this installation." in plan
    assert re.search(r"Steps\s+6\s", plan), plan
    assert re.search(r"Rollouts per step\s+64\s", plan), plan
    assert named(stack, NAME) == []

    page.get_by_role("button", name="Submit the run").dblclick()
    page.get_by_role("heading", name=NAME).wait_for()
    (run,) = named(stack, NAME)
    assert page.url == f"{stack.url}/runs/{run}"
    return run


def named(stack: OwnStack, name: str) -> list[str]:
    """Return the ids of the runs with this name."""
    return [str(run["id"]) for run in stack.get("/runs?limit=100")["data"] if run["name"] == name]


def field(page: Page, path: str) -> Locator:
    """Return the control of a key; its section is unfolded first."""
    control = page.locator(f'[id="f-{path}"]')
    if not control.is_visible():
        page.locator(f'[data-group="{path.rpartition(".")[0]}"] > summary').click()
    return control


def watch_the_pass_rate_move(page: Page, stack: OwnStack, run: str) -> None:
    """Follow the run to its end on one page that is never loaded again."""
    navigations: list[str] = []
    page.on("framenavigated", lambda frame: navigations.append(frame.url))
    page.evaluate(OBSERVE)
    awaited(page, TWO_RATES, deadline_s=RUN_S)
    page.locator("#status").filter(has_text="succeeded").wait_for(timeout=RUN_MS)
    page.locator("#live").filter(has_text="ended").wait_for()
    assert navigations == []
    rates = page.evaluate("() => window.rates")
    assert rates[0] == "–", "the run had been evaluated before its page was there"
    shown = page.inner_text("#envs tr[data-env=all] [data-cell=now]")
    assert shown == rates[-1]
    evaluations = [e for e in stack.get(f"/runs/{run}/evals")["data"] if e["decoding"] == "sampled"]
    last = max(evaluations, key=lambda each: each["step"])
    assert last["step"] == 6
    assert shown == f"{100 * last['all']['pass_at_1']:.1f}\u00a0%"


def open_a_rollout(page: Page, run: str) -> None:
    """Go from the figure to the failures behind it, and read one turn by turn."""
    page.locator("#envs tr[data-env=all] [data-cell=now] a").click()
    page.get_by_role("heading", name="Rollouts").wait_for()
    marks = page.locator(".mark")
    assert marks.count() > 0
    assert page.locator('.mark:not([data-tone="bad"])').count() == 0
    marks.first.click()
    page.get_by_role("heading", name="Rollout", exact=True).wait_for()
    assert page.url.startswith(f"{page.url.partition('/runs/')[0]}/runs/{run}/rollouts/")
    assert page.locator('.turn[data-role="model"]').count() > 0
    assert page.locator('.turn[data-role="task"] .said').inner_text().strip()
    page.get_by_role("link", name="Overview").click()
    page.get_by_role("heading", name=NAME).wait_for()


def fork_by_keyboard(page: Page, first: str) -> str:
    """Fork with Tab, Enter and letters alone: a longer run, which stays under way."""
    press_to(page, "Fork")
    page.keyboard.press("Enter")
    for text in (FORK, "", "schedule.total_steps=400\noptimizer.lr=1e-4\ncheckpoints.interval=50"):
        page.keyboard.press("Tab")
        for number, line in enumerate(text.split("\n")):
            if number:
                page.keyboard.press("Enter")
            page.keyboard.type(line)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=FORK).wait_for()
    second = page.url.rpartition("/")[2]
    assert second != first
    now = page.locator("#envs tr[data-env=all] [data-cell=now]")
    now.filter(has_text="%").wait_for(timeout=RUN_MS)
    return second


def press_to(page: Page, text: str) -> None:
    """Press Tab until what has the focus says `text`."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.textContent.trim()") == text:
            return
    raise AssertionError(f"Tab never reached {text!r}")


def compare(page: Page, first: str, second: str) -> None:
    """Compare both runs by the page's own form; the difference of their specs is the change."""
    page.get_by_role("link", name="Compare", exact=True).last.click()
    page.get_by_label("A, RUN or RUN@STEP").fill(first)
    page.get_by_label("B", exact=True).fill(second)
    page.get_by_role("button", name="Compare").click()
    table = page.get_by_role("region", name="Verdicts")
    table.wait_for()
    assert "booking" in table.inner_text()
    differences = page.get_by_role("region", name="Difference of the specs").inner_text()
    assert re.search(r"optimizer\.lr\s+0\.00025\s+0\.0001", differences), differences
    assert "schedule.total_steps" in differences
    for run in (first, second):
        assert page.locator(f'.sides a[href="/runs/{run}"]').count() == 1


def read_the_changelog(page: Page, stack: OwnStack, first: str, second: str) -> None:
    """Read what people wrote about the runs, beside what the service computed."""
    stack.experiment("v0.1", first, second)
    page.get_by_role("link", name="Experiments", exact=True).click()
    page.get_by_role("link", name="v0.1", exact=True).click()
    page.get_by_role("heading", name="v0.1").wait_for()
    text = page.inner_text("main")
    for sentence in (
        "The learning rate is too low.",
        "no clipping was seen",
        "Both arms learn from the first evaluation on.",
        "Two seeds would be needed to say how much of it is luck.",
        "Repeat both arms with three seeds.",
    ):
        assert sentence in text
    assert page.get_by_role("region", name="Arms").locator(f'a[href="/runs/{second}"]').count() == 1
    page.get_by_role("link", name="Experiments", exact=True).click()
    page.get_by_role("link", name="Changelog").click()
    page.get_by_role("heading", name="Changelog").wait_for()
    entry = page.locator(".entry").filter(has_text="v0.1 larger learning rate").inner_text()
    assert "Repeat both arms with three seeds." in entry
    assert entry.count(" at step ") == 2


def cancel(page: Page, stack: OwnStack, run: str) -> None:
    """Cancel the run under way; the button asks once more before anything happens."""
    page.goto(f"/runs/{run}")
    page.locator("#status").filter(has_text="running").wait_for()
    confirm = page.get_by_role("button", name="Cancel this run")
    assert not confirm.is_visible()
    page.locator("#actions summary").filter(has_text="Cancel").click()
    assert "A cancelled run does not start again" in page.inner_text("#actions")
    assert stack.get(f"/runs/{run}")["status"] == "running"
    confirm.click()
    page.locator("#status").filter(has_text="cancelled").wait_for(timeout=RUN_MS)
    assert stack.get(f"/runs/{run}")["status"] == "cancelled"
    assert page.locator("#actions summary").filter(has_text="Cancel").count() == 0
