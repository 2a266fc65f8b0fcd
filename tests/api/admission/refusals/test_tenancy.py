"""A spec reaches no file and no channel of another project, whichever way it is submitted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.tables import Run
from hillclimb.protocol.rundir import checkpoint_name, run_key
from tests.api.fixtures.serving import Served, serve
from tests.api.fixtures.story import PROJECT, Story, spec
from tests.api.fixtures.story_fixtures import blobs, story, story_url

__all__ = ["blobs", "story", "story_url"]
Json = dict[str, Any]
SECRETS = {"AWS_ACCESS_KEY_ID": "aws-id", "AWS_SECRET_ACCESS_KEY": "aws-key"}


@pytest.fixture
def served(story: Story, story_url: str, tmp_path: Path) -> Iterator[Served]:
    """A service whose operator opens the bucket of the store, and every path of the machine."""
    with serve(
        story_url,
        story.database,
        tmp_path / "blobs",
        run_sources="s3://blobs s3://models file:///",
        slack_channels=f"#ours=prj_stranger C0OURS=prj_stranger #story={PROJECT}",
    ) as running:
        yield running


def send(client: httpx.Client, path: str, **sections: object) -> httpx.Response:
    return client.post(path, json=spec("thief").model_dump(mode="json") | sections)


def foreign(served: Served, story: Story, tmp_path: Path) -> list[str]:
    """Addresses of a checkpoint of the project `PROJECT`, as a member of another one knows them."""
    key = run_key(story.running(spec("theirs")), checkpoint_name(20, 1))
    (tmp_path / "link").symlink_to(tmp_path / "blobs" / "runs")
    return [
        str(tmp_path / "blobs" / key / "policy"),
        f"{tmp_path}/elsewhere/../blobs/{key}/policy",
        str(tmp_path / "link" / key.removeprefix("runs/") / "policy"),
        f"s3://blobs/nodes/{key}/policy",
        f"s3://blobs/nodes/{key}/policy?endpoint_url=http://evil.example",
        f"s3://blobs/nodes%2F{key}/policy",
        f"s3://blobs/models/../nodes/{key}/policy",
        f"../../{key.removeprefix('runs/')}",
    ]


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/runs/plan"])
def test_a_checkpoint_of_another_project_is_no_model(
    served: Served, story: Story, tmp_path: Path, path: str
) -> None:
    with served.client(served.stranger_key) as thief:
        for address in foreign(served, story, tmp_path):
            answer = send(thief, path, model={"source": address})
            assert answer.status_code == 422, (address, answer.text)
            assert "model.source" in answer.text, answer.text
        assert send(thief, path, model={"source": "s3://models/qwen"}).is_success
        assert send(thief, path, model={"source": str(tmp_path / "own")}).is_success


def test_rollouts_of_another_project_are_no_demonstrations(
    served: Served, story: Story, tmp_path: Path
) -> None:
    with served.client(served.stranger_key) as thief:
        for address in foreign(served, story, tmp_path):
            sft = {"demonstrations": address}
            answer = send(thief, "/v1/runs", kind="sft", sft=sft)
            assert answer.status_code == 422, (address, answer.text)
        assert send(thief, "/v1/runs", kind="sft", sft={"demonstrations": "/data/own"}).is_success


def test_campaigns_forks_and_resumed_runs_are_no_way_round(
    served: Served, story: Story, tmp_path: Path
) -> None:
    address = foreign(served, story, tmp_path)[0]
    with served.client(served.stranger_key) as thief:
        run_id = send(thief, "/v1/runs").json()["id"]
        changes = {"changes": {"model.source": address}}
        forked = thief.post(f"/v1/runs/{run_id}/fork", json=changes)
        assert (forked.status_code, forked.json()["code"]) == (422, "address_refused")
        campaign = {
            "name": "all",
            "base": spec("cell").model_dump(mode="json", exclude_defaults=True),
            "models": [{"name": "stolen", "source": address}],
        }
        made = thief.post("/v1/campaigns", json=campaign)
        assert made.status_code == 201, made.text
        (cell,) = thief.get(f"/v1/campaigns/{made.json()['id']}").json()["cells"]
        assert (cell["state"], "blob store" in cell["why"]) == ("blocked", True)
        # Stored before the rule was there:
        with story.database.transaction() as session:
            run = session.get_one(Run, run_id)
            run.spec = run.spec | {"model": {"source": address, "rope": None}}
            run.status = "paused"
        resumed = thief.post(f"/v1/runs/{run_id}/resume")
        assert (resumed.status_code, resumed.json()["code"]) == (422, "address_refused")


def test_an_operator_who_allows_nothing_leaves_the_projects_own_keys(
    story: Story, story_url: str, tmp_path: Path
) -> None:
    with (
        serve(story_url, story.database, tmp_path / "blobs", run_sources="") as served,
        served.client() as client,
    ):
        for address in ("s3://models/qwen", "/srv/models/qwen"):
            answer = send(client, "/v1/runs", model={"source": address})
            assert "HILLCLIMB_RUN_SOURCES (there: nothing)" in answer.json()["detail"]
        for name in SECRETS.values():
            client.put(f"/v1/secrets/{name}", json={"value": "a-long-value"}).raise_for_status()
        own = {"model": {"source": "s3://models/qwen"}, "secrets": SECRETS}
        assert send(client, "/v1/runs", **own).is_success
        half = own | {"secrets": {"AWS_ACCESS_KEY_ID": "aws-id"}}
        assert send(client, "/v1/runs", **half).json()["code"] == "address_refused"
        store = own | {"model": {"source": "s3://blobs/nodes/runs/run_1"}}
        assert "blob store" in send(client, "/v1/runs", **store).json()["detail"]


@pytest.mark.parametrize("channel", ["#ours", "ours", "#OURS", "C0OURS", "#unlisted"])
def test_a_channel_of_another_project_gets_no_message(served: Served, channel: str) -> None:
    notify = {"slack": {"channel": channel}}
    with served.client() as client:
        answer = send(client, "/v1/runs", notify=notify)
        assert (answer.status_code, answer.json()["code"]) == (422, "address_refused")
        assert f"={PROJECT} to HILLCLIMB_SLACK_CHANNELS" in answer.json()["detail"]
        defaults = client.put("/v1/project/defaults", json={"slack_channel": channel})
        assert defaults.json()["code"] == "address_refused"
        own = send(client, "/v1/runs", notify={"slack": {"channel": "#story"}})
        assert own.is_success, own.text
        changes = {"changes": {"notify.slack.channel": channel}}
        forked = client.post(f"/v1/runs/{own.json()['id']}/fork", json=changes)
        assert forked.json()["code"] == "address_refused"
        assert client.post(f"/v1/runs/{own.json()['id']}/fork", json={"changes": {}}).is_success
