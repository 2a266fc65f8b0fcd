"""One trace from a client's request to its trainer's environment; nothing where no endpoint is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.runs import store
from api.scheduling import attempts, runners
from api.tables import RunEvent
from hillclimb.process import tracing
from hillclimb.process.host import TrainerHost
from hillclimb.process.launcher import Launcher
from hillclimb.protocol.launch import LaunchPlan, RegisterRunner
from tests.api.fixtures.serving import Served, serve
from tests.api.fixtures.story import PROJECT, Story, spec
from tests.api.fixtures.story_fixtures import story, story_url
from tests.fixtures.otlp import Receiver, otlp_receiver

__all__ = ["story", "story_url"]

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CLIENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with otlp_receiver() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)
        yield received
    tracing.stop_tracing()


def submitted(served: Served, traceparent: str | None = CLIENT) -> str:
    headers = {} if traceparent is None else {"traceparent": traceparent}
    with served.client() as client:
        client.get("/v1/health")
        body = spec().model_dump(mode="json", exclude_defaults=True)
        answer = client.post("/v1/runs", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def claimed(story: Story, run_id: str) -> LaunchPlan:
    body = RegisterRunner(name="box", hostname="box", slots=1)
    with story.database.transaction() as session:
        run = store.lock_run(session, run_id)
        now = run.status_since
        runner_id = runners.register(session, PROJECT, body, now=now).id
        attempts.schedule(session, run, now=now)
    with story.database.transaction() as session:
        runner = runners.get_runner(session, PROJECT, runner_id)
        plan = runners.claim(session, runner, ingest_url="http://x", now=now)
    assert plan is not None
    return plan


def environment_of(plan: LaunchPlan, root: Path) -> dict[str, str]:
    host = TrainerHost(trainer_python="python", runs_dir=root, blobs_url=str(root), own_dir=root)
    return Launcher(host, {})._trainer_environment(plan)


def test_a_run_is_one_trace_from_the_request_to_the_trainers_environment(
    receiver: Receiver, story: Story, story_url: str, tmp_path: Path
) -> None:
    with serve(story_url, story.database, tmp_path / "blobs") as served:
        run_id = submitted(served)
        plan = claimed(story, run_id)
        with tracing.span("start attempt 1", parent=plan.traceparent):
            variables = environment_of(plan, tmp_path)
    chain = [
        receiver.named(name)
        for name in (
            "POST /v1/runs",
            "admission",
            "schedule attempt 1",
            "claim attempt 1",
            "start attempt 1",
        )
    ]
    assert {span.trace_id for span in chain} == {TRACE}
    parents = ["00f067aa0ba902b7", *(span.span_id for span in chain[:-1])]
    assert [span.parent_id for span in chain] == parents
    assert variables["TRACEPARENT"] == f"00-{TRACE}-{chain[-1].span_id}-01"
    assert chain[2].attributes["hillclimb.run"] == run_id
    assert {span.service for span in receiver.spans} == {"hillclimb-api"}
    assert not [span for span in receiver.spans if "health" in span.name]


@pytest.mark.parametrize("header", [None, "", "garbage", f"00-{'0' * 32}-{'0' * 16}-01"])
def test_a_request_without_a_valid_context_begins_a_trace(
    receiver: Receiver, story: Story, story_url: str, tmp_path: Path, header: str | None
) -> None:
    with serve(story_url, story.database, tmp_path / "blobs") as served:
        submitted(served, header)
    root = receiver.named("POST /v1/runs")
    assert (root.parent_id, root.trace_id != TRACE) == ("", True)


def test_a_receiver_that_refuses_harms_no_request(
    receiver: Receiver, story: Story, story_url: str, tmp_path: Path
) -> None:
    receiver.status = 400
    with serve(story_url, story.database, tmp_path / "blobs") as served:
        assert submitted(served)
    assert receiver.spans == []
    assert receiver.num_requests


def test_without_an_endpoint_nothing_is_traced_or_stored(
    story: Story, story_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in tracing.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    with serve(story_url, story.database, tmp_path / "blobs") as served:
        run_id = submitted(served)
        plan = claimed(story, run_id)
    assert not tracing.is_tracing()
    assert plan.traceparent is None
    assert "TRACEPARENT" not in environment_of(plan, tmp_path)
    with story.database.transaction() as session:
        data = [e.data for e in session.query(RunEvent).filter(RunEvent.run_id == run_id)]
    assert not [each for each in data if "traceparent" in each]
