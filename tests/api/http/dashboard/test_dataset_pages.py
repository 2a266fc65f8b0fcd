"""The pages of datasets, and what runs that train nothing show of what they found."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api.http.requests.thread_pools import BoundedPool, DatasetPools
from hillclimb.protocol.validation import summarise_tasks
from hillclimb.spec.run import RunSpec
from tests.api.datasets.samples import lines, task, tasks
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec
from tests.api.http.dashboard.test_pages import sign_in
from tests.api.results.preflight.test_prompts import rendered
from tests.api.results.preflight.test_validation import rows as validated_rows

VERSIONS = "/v1/datasets/fleet/versions"
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def versions(served: Served) -> list[dict[str, Any]]:
    """Two versions of `fleet`, the second without a task, and an environment in quarantine."""
    drafts = [
        {"scope": "task", "key": "booking-003", "reason": f"no date {EVIL}"},
        {"scope": "env", "key": "github", "reason": "502", "expires_at": "2999-01-01T00:00:00Z"},
    ]
    made = []
    with served.client() as client:
        rows = [*tasks(booking=60, github=60), task("booking", 1, key=f"x-{EVIL}")]
        made.append(client.post(VERSIONS, content=lines(rows)).json())
        added = client.post("/v1/datasets/fleet/exclusions", json={"exclusions": drafts})
        assert added.status_code == 200, added.text
        options = {"options": json.dumps({"source": "fleet@1"})}
        form = {"options": ("options.json", options["options"].encode())}
        made.append(client.post(VERSIONS, files=form).json())
    return made


def page(served: Served, path: str, *, status: int = 200) -> str:
    with served.browser() as browser:
        sign_in(served, browser)
        answer = browser.get(path)
    assert answer.status_code == status, answer.text
    assert "unsafe" not in answer.headers["content-security-policy"]
    return answer.text


def test_datasets_are_listed_and_lead_to_their_newest_version(
    served: Served, versions: list[dict[str, Any]]
) -> None:
    text = page(served, "/datasets")
    assert 'href="/datasets/fleet"' in text
    assert "@2" in text
    newest = page(served, "/datasets/fleet")
    assert f"<h1>fleet@{versions[1]['number']}</h1>" in newest


def test_a_version_shows_environments_lint_and_what_is_kept_out(
    served: Served, versions: list[dict[str, Any]]
) -> None:
    text = page(served, "/datasets/fleet/versions/2")
    assert '<th scope="row">booking</th>' in text
    for finding in versions[1]["lint"]:
        assert f"<code>{finding['code']}</code>" in text
    assert "excluded: user: no date &lt;script&gt;" in text
    assert EVIL not in text
    assert "2999-01-01 00:00" in text
    assert ">quarantine</span>" in text
    assert 'href="/datasets/fleet/versions/2/diff/1"' in text
    assert "newest is" not in text
    assert "newest is @2" in page(served, "/datasets/fleet/versions/1")


def test_two_versions_are_compared(served: Served, versions: list[dict[str, Any]]) -> None:
    text = page(served, "/datasets/fleet/versions/2/diff/1")
    assert "booking-003" in text
    assert "→ excluded (user: no date &lt;script&gt;" in text
    assert EVIL not in text
    assert "the same split" in page(served, "/datasets/fleet/versions/2/diff/2")
    assert len(versions) == 2


@pytest.mark.parametrize(
    ("path", "command", "route"),
    [
        ("/datasets", "hillclimb datasets list", "/v1/datasets"),
        (
            "/datasets/fleet/versions/2",
            "hillclimb datasets show fleet@2",
            "/v1/datasets/fleet/versions/2",
        ),
        (
            "/datasets/fleet/versions/2/diff/1",
            "hillclimb datasets diff fleet@1 fleet@2",
            "/v1/datasets/fleet/versions/2/diff?base=1",
        ),
        ("/clusters", "hillclimb clusters", "/v1/clusters"),
    ],
)
@pytest.mark.usefixtures("versions")
def test_a_page_names_the_command_and_the_route_of_its_data(
    served: Served, path: str, command: str, route: str
) -> None:
    text = page(served, path)
    assert f"<code>{command}</code>" in text
    assert f'"$HILLCLIMB_API_URL{route}"' in text
    with served.client() as client:
        assert client.get(route).status_code == 200


@pytest.mark.parametrize(
    "path", ["/datasets/none", "/datasets/fleet/versions/9", "/datasets/fleet/versions/1/diff/99"]
)
@pytest.mark.usefixtures("versions")
def test_what_is_not_there_is_a_page_that_says_so(served: Served, path: str) -> None:
    assert "No such" in page(served, path, status=404)


@pytest.mark.parametrize("path", ["/datasets", "/datasets/a", "/datasets/a/versions/1/diff/2"])
def test_a_stranger_is_asked_to_sign_in(served: Served, path: str) -> None:
    with served.browser() as browser:
        away = browser.get(path)
    assert (away.status_code, away.headers["location"]) == (303, f"/login?next={path}")


@pytest.mark.usefixtures("versions")
def test_a_difference_waits_in_the_lane_of_long_work(served: Served) -> None:
    """Forty of these would take all the threads that every other request needs."""
    app = served.server.config.app
    assert isinstance(app, FastAPI)
    full = DatasetPools(works=BoundedPool(threads=1, waiting=0))
    app.state.services = replace(app.state.services, dataset_pools=full)
    text = page(served, "/datasets/fleet/versions/2/diff/1", status=503)
    assert "Too many dataset requests are waiting" in text


def test_datasets_of_other_projects_are_not_there(served: Served) -> None:
    assert "No datasets yet." in page(served, "/datasets")


def test_a_run_leads_to_the_version_that_it_took(
    served: Served, versions: list[dict[str, Any]]
) -> None:
    body = {
        "name": "mine",
        "data": {"dataset": "fleet@1", "allow_lint": ["leak"]},
        "environment": {"provider": "fleet", "fleet": {"base_url": "http://127.0.0.1:9"}},
    }
    with served.client() as client:
        run: httpx.Response = client.post("/v1/runs", json=body)
    assert run.status_code == 201, run.text
    text = page(served, f"/runs/{run.json()['id']}")
    assert 'href="/datasets/fleet/versions/1">fleet@1</a>' in text
    assert versions[0]["id"] in page(served, f"/runs/{run.json()['id']}/config")


def of_kind(kind: str) -> RunSpec:
    return spec(kind).model_copy(update={"kind": kind})


def test_a_probe_shows_its_verdicts_and_no_empty_curves(story: Story, served: Served) -> None:
    run_id = story.running(of_kind("probe"))
    assert "The results will appear here." in page(served, f"/runs/{run_id}")
    story.push(run_id, story.probed(run_id, {"booking": 4, "github": -1}))
    text = page(served, f"/runs/{run_id}")
    assert ">informative</span>" in text
    assert ">unhealthy</span>" in text
    assert "Reward in training" not in text
    assert 'id="progress"' not in text


def test_a_validation_shows_its_numbers(story: Story, served: Served) -> None:
    run_id = story.running(of_kind("validate"))
    found = summarise_tasks(validated_rows()).model_dump()
    story.push(run_id, story.validated(run_id, found, complete=False))
    text = page(served, f"/runs/{run_id}")
    assert "stopped early" in text
    assert "2 passes_untouched" in text
    assert f'href="/v1/runs/{run_id}/validation?verdict=excluded"' in text


def test_a_preview_shows_the_tokens_of_its_prompts(story: Story, served: Served) -> None:
    run_id = story.running(of_kind("preview"))
    story.push(run_id, rendered(story, run_id, booking="a", github="b"))
    text = page(served, f"/runs/{run_id}")
    assert "Tokens of the prompts" in text
    assert 'title="github-1">420</td>' in text
    assert "Evaluation</h2>" not in text
