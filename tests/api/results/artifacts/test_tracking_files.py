"""Where a run is at a tracker is a link of the run, and files of trackers outlive their machine."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from pydantic import ValidationError

from api.notices.slack.facts import wandb_line
from api.runs import store
from hillclimb.blobs.base import BlobStore
from hillclimb.protocol.events import TrackingStarted
from hillclimb.protocol.rundir import run_key, tracking_file
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import PROJECT, Story
from tests.hillclimb.cli.conftest import Invoke, blobs, hc, served, story, story_url

__all__ = ["blobs", "hc", "served", "story", "story_url"]

URL = "https://wandb.ai/team/climbs/runs/x-attempt-1"
FILE = "wandb/offline-run-20261120_120000-x/run-x.wandb"


def started(story: Story, run_id: str, url: str | None) -> TrackingStarted:
    return TrackingStarted(**story.place(run_id, 0), tracker="wandb", name="x", url=url)


def test_the_trainers_address_is_a_link_of_the_run_everywhere(
    hc: Invoke, served: Served, story: Story
) -> None:
    tracking = {"wandb": {"mode": "online", "project": "climbs"}}
    run_id = story.running()
    story.push(run_id, started(story, run_id, URL))
    with served.client() as client:
        assert client.get(f"/v1/runs/{run_id}").json()["links"] == {"wandb": URL}
    assert URL in hc("show", run_id).stdout
    with story.database.transaction() as session:
        run = store.get_run(session, PROJECT, run_id)
        run.spec = run.spec | {"tracking": tracking}
        assert wandb_line(run) == f"W&B: <{URL}|{run_id}-attempt-1>"
        run.links = {"wandb": "https://w/?a|b"}
        assert "https" not in (wandb_line(run) or "")


@pytest.mark.parametrize("url", ["javascript:alert(1)", 'https://x/"onload=', "ftp://x", ""])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        TrackingStarted(step=0, tracker="wandb", name="x", url=url)


def test_the_files_of_a_machine_that_is_gone_are_exported(
    hc: Invoke, story: Story, blobs: BlobStore, tmp_path: Path
) -> None:
    run_id = story.running()
    none = hc("export", "tracking", run_id, str(tmp_path / "none"))
    assert none.exit_code != 0
    assert "has no files of trackers" in none.stderr
    blobs.put(run_key(run_id, tracking_file(1, FILE)), b"figures")
    answer = hc("export", "tracking", run_id, str(tmp_path / "out"))
    path = tmp_path / "out" / "attempt-1" / FILE
    assert answer.exit_code == 0, answer.stderr
    assert path.read_bytes() == b"figures"
    assert "wandb sync" in answer.stdout
    again = hc("export", "tracking", run_id, str(tmp_path / "out"))
    assert "there already" in again.stderr


def test_the_zip_has_a_folder_for_each_attempt(
    served: Served, story: Story, blobs: BlobStore
) -> None:
    run_id = story.running()
    blobs.put(run_key(run_id, tracking_file(1, FILE)), b"figures")
    with served.client() as client:
        answer = client.get(f"/v1/runs/{run_id}/exports/tracking")
    assert zipfile.ZipFile(io.BytesIO(answer.content)).namelist() == [f"attempt-1/{FILE}"]
