"""The client against the real application on loopback."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest

from api.clusters import exclusions
from api.runs.journal import utc_now
from api.tables import OrphanedCluster
from hillclimb.blobs.disk import DiskStore
from hillclimb.client.client import Client
from hillclimb.protocol.rundir import attempt_name, log_segment, run_key
from hillclimb.protocol.validation import summarise_tasks
from hillclimb.stack.state.connection import Connection
from tests.api.clusters.cluster_story import LAMBDA, rented
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url
from tests.api.results.preflight.test_prompts import kept, rendered
from tests.api.results.preflight.test_validation import a_validation, rows, store_rows
from tests.hillclimb.client.payloads import trajectory_json

__all__ = ["blobs", "served", "story", "story_url"]


class Recorder(httpx.HTTPTransport):
    """A transport that keeps the JSON of the last response."""

    last: Any = None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        response.read()
        self.last = json.loads(response.content)
        return response


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project with a run of each kind, a rented cluster and an orphaned one."""

    client: Client
    recorder: Recorder
    run_id: str
    probe_id: str
    validation_id: str
    rented_id: str


@pytest.fixture
def project(story: Story, served: Served, blobs: DiskStore) -> Iterator[Project]:
    recorder = Recorder()
    connection = Connection(url=served.url, api_key=served.key)
    with Client(connection, recorder) as client:
        yield Project(
            client=client,
            recorder=recorder,
            run_id=_training(story, blobs),
            probe_id=_probe(story),
            validation_id=_validation(story, blobs),
            rented_id=_rented(story),
        )


def _training(story: Story, blobs: DiskStore) -> str:
    run_id = story.running()
    rates = {"booking": 0.5, "github": 0.2}
    story.push(run_id, rendered(story, run_id, booking="a", github="b"))
    kept(blobs, run_id, "github")
    for step in (0, 2):
        evaluation = story.evaluation(run_id, step, rates, tasks=8, infra_share=0.2)
        story.push(run_id, evaluation, story.step(run_id, step + 1, rates))
    lines = "".join(json.dumps(trajectory_json(task)) + "\n" for task in range(8)).encode()
    key = run_key(run_id, attempt_name(1), "trajectories/step.jsonl.gz")
    blobs.put(key, gzip.compress(lines))
    blobs.put(run_key(run_id, log_segment(1, 1)), b"a line\n")
    return run_id


def _probe(story: Story) -> str:
    run_id = story.running(spec().model_copy(update={"kind": "probe"}))
    story.push(run_id, story.probed(run_id, {"booking": 4, "github": -1}))
    return run_id


def _validation(story: Story, blobs: DiskStore) -> str:
    run_id = story.running(a_validation())
    store_rows(blobs, run_id, rows())
    story.push(run_id, story.validated(run_id, summarise_tasks(rows()).model_dump()))
    return run_id


def _rented(story: Story) -> str:
    run_id = rented(story, hours=2.0, eta_s=3600.0, budget={"usd": 40.0})
    now = utc_now()
    with story.database.transaction() as session:
        session.add(OrphanedCluster(name="hc-abcd-lost-1", first_seen_at=now))
        exclusions.exclude(session, LAMBDA, "none left", until=now + timedelta(hours=1), now=now)
    return run_id
