"""Buttons of the run page: what they offer, what they do, and who may press them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

import httpx
import pytest

from api.tables import ApiKey
from hillclimb.protocol.end_reasons import ReasonCode
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.http.dashboard.stored import sign_in


@pytest.fixture
def browser(served: Served) -> Iterator[httpx.Client]:
    with served.browser() as browser:
        yield sign_in(served, browser)


@pytest.fixture
def run_id(story: Story) -> str:
    run_id = story.running()
    story.push(run_id, story.checkpoint(run_id, 20))
    return run_id


def fields_of(browser: httpx.Client, run_id: str) -> dict[str, str]:
    page = browser.get(f"/runs/{run_id}").text
    return {
        name: re.search(rf'name="{name}" value="([^"]+)"', page)[1]  # type: ignore[index]
        for name in ("token", "key")
    }


def press(browser: httpx.Client, run_id: str, action: str, **fields: str) -> httpx.Response:
    return browser.post(
        f"/runs/{run_id}/actions/{action}", data=fields_of(browser, run_id) | fields
    )


def status_of(browser: httpx.Client, run_id: str) -> str:
    return str(browser.get(f"/v1/runs/{run_id}").json()["status"])


def test_pause_and_cancel_do_what_their_routes_do(browser: httpx.Client, run_id: str) -> None:
    answer = press(browser, run_id, "pause")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{run_id}")
    assert status_of(browser, run_id) == "pausing"
    assert press(browser, run_id, "cancel").status_code == 303
    assert status_of(browser, run_id) == "cancelling"


def test_a_waiting_run_is_cancelled_at_once_and_then_offers_no_more(
    story: Story, browser: httpx.Client
) -> None:
    run_id = story.submit()
    press(browser, run_id, "cancel")
    assert status_of(browser, run_id) == "cancelled"
    page = browser.get(f"/runs/{run_id}").text
    assert "/actions/cancel" not in page
    assert "/actions/pause" not in page
    assert "/actions/resume" not in page


def test_an_ended_run_with_a_checkpoint_resumes_as_a_new_one(
    story: Story, browser: httpx.Client, run_id: str
) -> None:
    story.finish(run_id, 20, ReasonCode.TRAINER_CRASHED)
    press(browser, run_id, "cancel")
    assert status_of(browser, run_id) == "cancelled"
    page = browser.get(f"/runs/{run_id}").text
    assert "Resume as a new run" in page
    location = press(browser, run_id, "resume").headers["location"]
    assert location not in ("", f"/runs/{run_id}")
    new = browser.get(f"/v1{location}").json()
    assert new["spec"]["lineage"]["resumed_from"]["run_id"] == run_id


def test_an_ended_run_is_deleted_and_the_list_has_it_no_more(
    story: Story, browser: httpx.Client, run_id: str
) -> None:
    assert "/actions/delete" not in browser.get(f"/runs/{run_id}").text
    early = press(browser, run_id, "delete")
    assert (early.status_code, "Cancel it first" in early.text) == (409, True)
    story.finish(run_id, 20, ReasonCode.TRAINER_CRASHED)
    press(browser, run_id, "cancel")
    assert f'action="/runs/{run_id}/actions/delete"' in browser.get(f"/runs/{run_id}").text
    deleted = press(browser, run_id, "delete")
    assert (deleted.status_code, deleted.headers["location"]) == (303, "/")
    gone = browser.get(f"/runs/{run_id}")
    assert (gone.status_code, "was deleted by" in gone.text) == (404, True)
    assert browser.get("/v1/runs").json()["data"] == []


def test_evaluate_makes_one_run_also_of_a_double_click(browser: httpx.Client, run_id: str) -> None:
    fields = fields_of(browser, run_id) | {"step": "20"}
    answers = [browser.post(f"/runs/{run_id}/actions/evaluate", data=fields) for _ in range(2)]
    locations = {answer.headers["location"] for answer in answers}
    assert len(locations) == 1
    made = browser.get(f"/v1{locations.pop()}").json()
    assert (made["spec"]["kind"], made["name"]) == ("eval", "climb eval.20")
    assert len(browser.get("/v1/runs").json()["data"]) == 2


def test_a_fork_has_its_changes_and_shows_them_against_its_parent(
    browser: httpx.Client, run_id: str
) -> None:
    answer = press(browser, run_id, "fork", name="hotter", changes="optimizer.lr=1e-3\n\n", step="")
    location = answer.headers["location"]
    made = browser.get(f"/v1{location}").json()
    assert (made["name"], made["spec"]["optimizer"]["lr"]) == ("hotter", 1e-3)
    page = browser.get(f"{location}/config").text
    assert "optimizer.lr" in page
    assert f'href="/runs/{run_id}"' in page


@pytest.mark.parametrize(
    ("action", "fields", "reason"),
    [
        ("fork", {"changes": "optimizer.lr"}, "write KEY=VALUE"),
        ("fork", {"changes": "optimizer.nothing=1"}, "optimizer"),
        ("fork", {"step": "7"}, "no complete checkpoint at step 7"),
        ("evaluate", {"step": "7"}, "no checkpoint at step 7"),
        ("evaluate", {}, "none chosen"),
    ],
)
def test_what_cannot_be_done_says_why(
    browser: httpx.Client, run_id: str, action: str, fields: dict[str, str], reason: str
) -> None:
    answer = press(browser, run_id, action, **fields)
    assert 400 <= answer.status_code < 500
    assert answer.headers["content-type"].startswith("text/html")
    assert reason in answer.text
    assert len(browser.get("/v1/runs").json()["data"]) == 1


def test_a_form_of_another_site_changes_nothing(
    served: Served, browser: httpx.Client, run_id: str
) -> None:
    with served.browser() as other:
        token = fields_of(sign_in(served, other), run_id)["token"]
    for fields in ({}, {"token": ""}, {"token": "0" * 64}, {"token": "é"}):
        answer = browser.post(f"/runs/{run_id}/actions/cancel", data=fields)
        assert answer.status_code == 401
    assert status_of(browser, run_id) == "running"
    if token != fields_of(browser, run_id)["token"]:
        answer = browser.post(f"/runs/{run_id}/actions/cancel", data={"token": token})
        assert answer.status_code == 401
    with served.browser() as nobody:
        assert (
            nobody.post(f"/runs/{run_id}/actions/cancel").headers["location"].startswith("/login")
        )
    assert status_of(browser, run_id) == "running"


def test_who_may_only_read_sees_no_button_and_can_press_none(
    story: Story, served: Served, browser: httpx.Client, run_id: str
) -> None:
    fields = fields_of(browser, run_id)
    with story.database.transaction() as session:
        session.get_one(ApiKey, f"key_{served.key[-8:]}").scopes = ["runs:read"]
    assert "/actions/" not in browser.get(f"/runs/{run_id}").text
    assert browser.post(f"/runs/{run_id}/actions/cancel", data=fields).status_code == 403
    assert status_of(browser, run_id) == "running"


def test_a_stranger_cannot_act_on_a_run(served: Served, story: Story, run_id: str) -> None:
    with served.browser() as stranger:
        stranger.post("/login", data={"key": served.stranger_key, "next": "/"})
        own = story.submit(project_id="prj_stranger")
        fields = fields_of(stranger, own)
        for action in ("pause", "resume", "cancel", "evaluate", "fork"):
            answer = stranger.post(f"/runs/{run_id}/actions/{action}", data=fields)
            assert answer.status_code == 404


def test_the_run_page_leads_on_and_no_link_is_dead(
    story: Story, browser: httpx.Client, run_id: str
) -> None:
    story.push(run_id, story.evaluation(run_id, 0, {"booking": 0.2}, tasks=4))
    story.push(run_id, story.step(run_id, 1, {"booking": 0.5}, tasks=1))
    visited: dict[str, str] = {}
    to_visit = [f"/runs/{run_id}"]
    while to_visit:
        path = to_visit.pop(0)
        if path in visited or sum("/rollouts/" in each for each in visited) > 4:
            continue
        answer = browser.get(path)
        assert answer.status_code == 200 or path == "/admin", path
        visited[path] = answer.text
        if path.startswith("/runs/"):
            to_visit += [unescape(each) for each in re.findall(r'href="(/[^"#]*)"', answer.text)]
    names = ("rollouts", "metrics", "signal", "log", "checkpoints", "config", "attempts")
    assert visited.keys() >= {f"/runs/{run_id}/{name}" for name in names}
    assert visited.keys() >= {f"/compare?a={run_id}@0&b={run_id}", f"/v1/runs/{run_id}/timeline"}
    first = visited[f"/runs/{run_id}"]
    actions = re.findall(rf'action="/runs/{run_id}/actions/(\w+)"', first)
    assert {"pause", "cancel", "evaluate", "fork"} <= set(actions)


def test_the_pages_of_the_record(story: Story, browser: httpx.Client, run_id: str) -> None:
    checkpoints = browser.get(f"/runs/{run_id}/checkpoints").text
    assert "untried" in checkpoints
    assert f"hillclimb pull {run_id}@20" in checkpoints
    attempts = browser.get(f"/runs/{run_id}/attempts").text
    assert "<td>running</td>" in attempts
    assert "reward_collapse" in attempts or "guard" in attempts.lower()
    assert "&#34;optimizer&#34;" in browser.get(f"/runs/{run_id}/config").text
    waiting = story.submit()
    assert "has no checkpoint yet" in browser.get(f"/runs/{waiting}/checkpoints").text
    assert "No attempt was made yet." in browser.get(f"/runs/{waiting}/attempts").text
    for name in ("overview", "rollouts", "log", "checkpoints", "config", "attempts"):
        path = "" if name == "overview" else f"/{name}"
        page = browser.get(f"/runs/{run_id}{path}").text
        assert f'href="/runs/{run_id}{path}" aria-current="page"' in page
