"""The metrics page and the compare page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import httpx
import pytest

from hillclimb.protocol.events import ComputeSpent, StepCompleted
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec
from tests.api.http.dashboard.stored import sign_in


@pytest.fixture
def browser(served: Served) -> Iterator[httpx.Client]:
    with served.browser() as browser:
        yield sign_in(served, browser)


@pytest.fixture
def run_id(story: Story) -> str:
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 0, {"booking": 0.5}, tasks=20))
    story.push(run_id, story.step(run_id, 1, {"booking": 0.5}))
    story.push(run_id, story.evaluation(run_id, 40, {"booking": 0.9}, tasks=20))
    return run_id


def test_the_metrics_page_names_every_series_and_when_steps_ended(
    browser: httpx.Client, run_id: str
) -> None:
    page = browser.get(f"/runs/{run_id}/metrics")
    found = re.search(r'<script type="application/json" id="state">(.*?)</script>', page.text)
    assert found is not None
    state = json.loads(found[1])
    stored = browser.get(f"/v1/runs/{run_id}/metrics").json()["data"]
    assert state["names"] == sorted({series["name"] for series in stored})
    (own,) = state["runs"]
    assert [step for step, _ in own["clock"]] == [0, 1, 40]
    seconds = [after for _, after in own["clock"]]
    assert seconds == sorted(seconds)
    for name in ("uPlot.iife.min.js", "uPlot.min.css", "metrics.js"):
        assert f'"/static/{name}"' in page.text
        assert browser.get(f"/static/{name}").status_code == 200


def test_other_runs_of_the_project_are_drawn_in_the_same_charts(
    story: Story, browser: httpx.Client, run_id: str
) -> None:
    other = story.running(spec("other"))
    story.push(other, counted(story.step(other, 1, {"booking": 0.5}), 700))
    story.push(other, counted(story.step(other, 2, {"booking": 0.5}), 300))
    offered = browser.get(f"/runs/{run_id}/metrics").text
    assert f'<option value="{other}">other (' in offered
    page = browser.get(f"/runs/{run_id}/metrics", params={"beside": [other, "", "run_none"]})
    found = re.search(r'<script type="application/json" id="state">(.*?)</script>', page.text)
    assert found is not None
    own, beside = json.loads(found[1])["runs"]
    assert (own["id"], beside["id"], beside["name"]) == (run_id, other, "other")
    assert beside["tokens"] == [[0, 0], [1, 700], [2, 1000]]
    assert own["tokens"] == [], "its trainer did not count"
    assert "This project has no run <code>run_none</code>" in page.text


def counted(step: StepCompleted, num_tokens: int) -> StepCompleted:
    """A step whose trainer counted its compute."""
    return step.model_copy(update={"compute": ComputeSpent(num_sampled_tokens=num_tokens)})


def test_a_run_without_metrics_says_so(story: Story, browser: httpx.Client) -> None:
    assert "no metrics yet" in browser.get(f"/runs/{story.submit()}/metrics").text


def test_two_steps_of_a_run_are_compared(browser: httpx.Client, run_id: str) -> None:
    page = browser.get("/compare", params={"a": f"{run_id}@0", "b": run_id})
    assert page.status_code == 200
    assert "50.0 %" in page.text
    assert "90.0 %" in page.text
    assert page.text.count(">side by side</a>") == 8
    assert "Both specs are equal" in page.text
    pair = re.search(r'href="(/runs/[^"]+beside=[^"]+)"', page.text)
    assert pair is not None
    both = browser.get(pair[1].replace("&amp;", "&"))
    assert both.text.count('<article class="rollout"') == 2
    assert both.text.count('data-tone="good">passed') == 1


def test_two_runs_show_the_difference_of_their_specs(
    story: Story, browser: httpx.Client, run_id: str
) -> None:
    other = story.running(spec("other", env_keys=("booking",)))
    story.push(other, story.evaluation(other, 0, {"booking": 0.5}, tasks=20))
    page = browser.get("/compare", params={"a": run_id, "b": f"{other}@0"}).text
    assert "data.env_keys" in page
    assert "regressed" in page or "inconclusive" in page or "flat" in page


@pytest.mark.parametrize(
    ("second", "reason"),
    [("run_no", "run_no"), ("RUN@7", "no evaluation at step 7"), ("a@b@c", "neither RUN nor")],
)
def test_what_cannot_be_compared_says_why(
    browser: httpx.Client, run_id: str, second: str, reason: str
) -> None:
    b = second.replace("RUN", run_id)
    page = browser.get("/compare", params={"a": run_id, "b": b})
    assert page.status_code == 404
    assert reason in page.text


def test_a_strangers_run_is_not_compared(served: Served, run_id: str) -> None:
    with served.browser() as stranger:
        stranger.post("/login", data={"key": served.stranger_key, "next": "/"})
        answer = stranger.get("/compare", params={"a": run_id, "b": run_id})
    assert answer.status_code == 404
    assert "50.0 %" not in answer.text
