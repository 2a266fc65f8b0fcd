"""Every page of a filled stack: axe finds nothing serious, and nothing scrolls sideways.

axe runs at desktop width in both themes, and on a phone, where more is scrolled and all that can
be unfolded is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.e2e.browser.addresses import STATES, filled_in, pages
from tests.e2e.browser.chromium import (
    DESKTOP,
    NEEDS_PLAYWRIGHT,
    PHONE,
    new_context,
    serious_faults,
    sign_in,
    wider_than_window,
)
from tests.e2e.browser.stack import SMALL, OwnStack

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.e2e, pytest.mark.stack, NEEDS_PLAYWRIGHT]

PATHS = [*pages(), *STATES]
UNFOLD = """() => {
  for (const each of [...document.querySelectorAll("details")].slice(0, 40)) each.open = true;
}"""
"""Forty are enough: the reference of the API folds three hundred that are alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A Chromium that knows a signed-in session of the filled stack."""

    browser: Browser
    url: str
    state: Any
    values: Mapping[str, str]

    def open(self, path: str, *, window: tuple[int, int], theme: str) -> Page:
        """Return the page at the path, drawn to its end; a sign-in form is opened as a stranger."""
        state = None if path == "/login" else self.state
        context = new_context(self.browser, url=self.url, window=window, theme=theme, state=state)
        page = context.new_page()
        page.goto(filled_in(path, self.values))
        page.wait_for_load_state("networkidle")
        return page


@pytest.fixture(scope="session")
def values(stack: OwnStack) -> Mapping[str, str]:
    """The parameters of all paths, from runs and records of every kind that are in the stack."""
    run = stack.submit(name="of every page", tags=["screens"])
    preview = stack.submit(name="prompts", kind="preview")
    probe = stack.submit(name="probed", kind="probe", probe={"tasks_per_env": 6})
    stack.register("mine", ("booking",), 20)
    stack.register("mine", ("booking", "github"), 20)
    stack.until_ended(run, preview, probe)
    campaign = stack.post("/campaigns", campaign_of("tiny models"))
    stack.experiment("v0.2", run)
    stack.post("/issues", {"title": "Fails", "severity": "high", "baseline": f"{run}@2"})
    stack.put("/members/ada@example.org", {"role": "member"})
    stack.put("/secrets/fleet-prod", {"value": "a-secret-of-some-length"})
    stack.post("/keys", {"name": "ci", "scopes": ["runs:read"]})
    stack.put("/project/defaults", {"slack_channel": "#training"})
    evaluation = str(stack.get(f"/campaigns/{campaign['id']}")["cells"][0]["run_id"])
    stack.until_ended(evaluation)
    rollouts = stack.get(f"/runs/{run}/trajectories?split=eval")["data"]
    return {
        "run_id": run,
        "preview_id": preview,
        "probe_id": probe,
        "eval_id": evaluation,
        "rollout_id": quote(rollouts[0]["rollout_id"]),
        "other_rollout": quote(rollouts[1]["rollout_id"], safe=""),
        "name": "mine",
        "number": "2",
        "base": "1",
        "campaign_id": campaign["id"],
        "key": "v0.2",
    }


def campaign_of(name: str) -> dict[str, Any]:
    left_out = ("model", "schedule", "checkpoints", "rollout")
    base = {key: value for key, value in SMALL.items() if key not in left_out}
    models = [{"name": "a", "source": "builtin:tiny-qwen3-a"}]
    return {"name": name, "base": {"name": "base", **base}, "models": models}


@pytest.fixture(scope="module")
def visit(browser: Browser, stack: OwnStack, values: Mapping[str, str]) -> Iterator[Visit]:
    context = new_context(browser, url=stack.url)
    sign_in(context.new_page(), stack.key)
    yield Visit(browser=browser, url=stack.url, state=context.storage_state(), values=values)
    context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", PATHS)
def test_axe_finds_no_serious_fault(visit: Visit, path: str, theme: str) -> None:
    page = visit.open(path, window=DESKTOP, theme=theme)
    assert serious_faults(page) == []
    assert wider_than_window(page) == []
    page.context.close()


@pytest.mark.parametrize("path", PATHS)
def test_a_phone_shows_all_of_it_without_scrolling_sideways(visit: Visit, path: str) -> None:
    page = visit.open(path, window=PHONE, theme="light")
    folded = wider_than_window(page)
    page.evaluate(UNFOLD)
    assert (folded, wider_than_window(page)) == ([], [])
    assert serious_faults(page) == []
    page.context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("window", [DESKTOP, PHONE])
def test_answers_to_forms_are_as_good(visit: Visit, theme: str, window: tuple[int, int]) -> None:
    """The secret of a new key, a form with mistakes, a refused key on the sign-in form."""
    page = visit.open("/admin/keys", window=window, theme=theme)
    page.get_by_label("Name", exact=True).fill(f"{theme} {window[0]}")
    page.get_by_role("button", name="Create").click()
    page.locator("#secret").wait_for()
    assert (serious_faults(page), wider_than_window(page)) == ([], [])

    page.goto("/submit")
    page.locator('[id="f-data.env_keys"]').fill("bookng")
    page.get_by_role("button", name="Submit the run").click()
    page.get_by_role("heading", name="What has to change").wait_for()
    assert (serious_faults(page), wider_than_window(page)) == ([], [])

    stranger = visit.open("/login", window=window, theme=theme)
    stranger.get_by_label("API key").fill("hc_wrong")
    stranger.get_by_role("button", name="Sign in").click()
    stranger.get_by_role("alert").wait_for()
    assert (serious_faults(stranger), wider_than_window(stranger)) == ([], [])
    stranger.context.close()
    page.context.close()


def test_the_eyes_of_these_tests_are_open(browser: Browser) -> None:
    """A page with a faint sentence, a picture without words and a wide box is found out."""
    page = browser.new_page(viewport={"width": PHONE[0], "height": PHONE[1]})
    faint = '<p style="color: #ccc; background: #fff">Faint</p><img src="data:,">'
    page.set_content(f'<html lang="en"><title>Bad</title><main>{faint}<div id="w">x</div></main>')
    assert wider_than_window(page) == []
    page.evaluate("() => { document.getElementById('w').style.width = '500px'; }")
    assert wider_than_window(page)[0] == "508 of 390 px"
    assert {fault.split()[0] for fault in serious_faults(page)} == {"color-contrast", "image-alt"}
    page.close()
