"""The stream over real HTTP, against a real table with concurrent writers."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from sqlalchemy import create_engine, select
from sqlalchemy.event import listen, remove
from sqlalchemy.orm import Session

from api.runs import store
from api.runs.journal import Draft, append
from api.runs.status import TERMINAL
from api.tables import Run, RunEvent
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.stack.system.poll import wait_until
from tests.api.fixtures.serving import SECRET, Served
from tests.api.fixtures.story import Story

NUM_WRITERS = 4
EVENTS_PER_WRITER = 150


def frames(response: httpx.Response) -> Iterator[dict[str, str]]:
    """Parse frames as a browser does; comments are skipped."""
    frame: dict[str, str] = {}
    for line in response.iter_lines():
        if not line:
            if frame:
                yield frame
            frame = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            frame[name] = value


def table(story: Story, run_id: str) -> list[tuple[int, str]]:
    query = select(RunEvent.seq, RunEvent.id).where(RunEvent.run_id == run_id)
    with story.database.transaction() as session:
        return [(seq, id_) for seq, id_ in session.execute(query.order_by(RunEvent.seq))]


def write(story: Story, run_id: str, writer: int) -> None:
    rng = random.Random(writer)
    left = EVENTS_PER_WRITER
    while left:
        count = min(left, rng.randint(1, 9))
        drafts = [Draft(type="run.warning", data={"code": "x", "message": f"{writer}"})] * count
        with story.database.transaction() as session:
            append(session, store.lock_run(session, run_id), drafts)
        left -= count


def read_to_the_end(
    served: Served, path: str, seed: int, drop: float
) -> tuple[list[tuple[int, str]], int]:
    """Follow the stream, dropping the connection at random; return what came and how often."""
    rng = random.Random(seed)
    seen: list[tuple[int, str]] = []
    num_connections = 0
    with served.client() as client:
        while True:
            num_connections += 1
            headers = {"Last-Event-ID": str(seen[-1][0])} if seen else {}
            with client.stream("GET", path, headers=headers) as response:
                assert response.headers["content-type"].startswith("text/event-stream")
                for frame in frames(response):
                    if frame.get("event") == "end":
                        return seen, num_connections
                    if "data" in frame:
                        data = json.loads(frame["data"])
                        assert frame["id"] == str(data["seq"])
                        assert frame["event"] == data["type"]
                        seen.append((data["seq"], data["id"]))
                    if rng.random() < drop:
                        break


def test_the_union_of_frames_is_the_table_under_disconnects_and_concurrent_writers(
    story: Story, served: Served
) -> None:
    run_id = story.running()
    path = f"/v1/runs/{run_id}/events/stream"
    with ThreadPoolExecutor(NUM_WRITERS + 4) as pool:
        readers = [
            pool.submit(read_to_the_end, served, path, seed, drop)
            for seed, drop in enumerate((0.0, 0.0, 0.02, 0.05))
        ]
        writers = [pool.submit(write, story, run_id, i) for i in range(NUM_WRITERS)]
        for writer in writers:
            writer.result(60)
        story.finish(run_id, 40)
        results = [reader.result(60) for reader in readers]
    expected = table(story, run_id)
    assert [seq for seq, _ in expected] == list(range(1, len(expected) + 1))
    assert len(expected) > NUM_WRITERS * EVENTS_PER_WRITER
    for seen, _ in results:
        assert seen == expected
    assert results[3][1] > 5


def test_an_ended_run_is_replayed_and_closed(story: Story, served: Served) -> None:
    run_id = story.running()
    story.finish(run_id, 40)
    seen, num_connections = read_to_the_end(served, f"/v1/runs/{run_id}/events/stream", 0, 0.0)
    assert (seen, num_connections) == (table(story, run_id), 1)
    after, _ = read_to_the_end(served, f"/v1/runs/{run_id}/events/stream?after=3", 0, 0.0)
    assert after == seen[3:]


def test_the_last_event_id_prevails_over_after(story: Story, served: Served) -> None:
    run_id = story.running()
    story.finish(run_id, 40)
    path = f"/v1/runs/{run_id}/events/stream?after=1"
    with served.client() as client:
        answer = client.get(path, headers={"Last-Event-ID": "4"})
        garbage = client.get(path, headers={"Last-Event-ID": "<script>"})
    assert "id: 5\n" in answer.text
    assert "id: 4\n" not in answer.text
    assert "id: 2\n" in garbage.text
    assert answer.text.startswith("retry: 2000\n\n")


def test_a_stream_survives_the_loss_of_the_listen_connection(story: Story, served: Served) -> None:
    run_id = story.running()
    path = f"/v1/runs/{run_id}/events/stream"
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read_to_the_end, served, path, 0, 0.0)
        try:
            _kill_listeners(story)
            write(story, run_id, 0)
        finally:
            story.finish(run_id, 40)
        seen, num_connections = reader.result(30)
    assert seen == table(story, run_id)
    assert num_connections == 1


def _kill_listeners(story: Story) -> None:
    """End the application's LISTEN connection, which it opens beside its first requests."""
    assert wait_until(lambda: _num_killed(story) >= 1, deadline_s=10)


def _num_killed(story: Story) -> int:
    with story.database.transaction() as session:
        killed = session.connection().exec_driver_sql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE starts_with(query, 'LISTEN') AND datname = current_database()"
        )
        num_killed: int = killed.scalar_one()
    return num_killed


def test_other_projects_runs_and_missing_keys_are_refused(story: Story, served: Served) -> None:
    run_id = story.running()
    path = f"/v1/runs/{run_id}/events/stream"
    with served.client(served.stranger_key) as stranger, served.browser() as nobody:
        for answer, status in ((stranger.get(path), 404), (nobody.get(path), 401)):
            assert answer.status_code == status
            assert answer.headers["content-type"] == "application/problem+json"


def test_events_page_by_seq_and_filter_by_type(story: Story, served: Served) -> None:
    run_id = story.running()
    story.push(run_id, story.step(run_id, 1, {"booking": 0.5}))
    expected = table(story, run_id)
    with served.client() as client:
        first = client.get(f"/v1/runs/{run_id}/events", params={"limit": 4}).json()
        rest = client.get(f"/v1/runs/{run_id}/events", params={"after": 4}).json()
        steps = client.get(f"/v1/runs/{run_id}/events", params={"types": "step.completed"}).json()
    assert first["has_more"] is True
    assert rest["has_more"] is False
    found = [(event["seq"], event["id"]) for event in first["data"] + rest["data"]]
    assert found == expected
    (step,) = steps["data"]
    assert step["data"]["envs"]["booking"]["n"] == 32
    assert "outcomes" not in step["data"]
    assert step["created_at"].endswith("Z")


def test_a_stop_signal_ends_open_streams_at_once(
    story: Story, story_url: str, tmp_path: Path, served: Served
) -> None:
    run_id = story.running()
    environment = os.environ | {
        "DATABASE_URL": story_url,
        "REDIS_URL": "redis://127.0.0.1:1",
        "HILLCLIMB_BLOBS_URL": str(tmp_path),
        "HILLCLIMB_SECRET_KEY": SECRET,
    }
    code = "import sys, uvicorn; uvicorn.run('api.app:create_app', factory=True, port=0)"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = next(line for line in process.stderr if "running on" in line).split()[-5]
        drain = threading.Thread(target=process.stderr.read)
        drain.start()
        rest = _stop_in_mid_stream(process, f"{url}/v1/runs/{run_id}/events/stream", served.key)
        process.wait(10)
        drain.join()
    assert not any("event: end" in line for line in rest)
    assert process.returncode in (0, -signal.SIGTERM)


def _stop_in_mid_stream(process: subprocess.Popen[str], url: str, key: str) -> list[str]:
    """Send SIGTERM behind the first event and return what still came."""
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.stream("GET", url, headers=headers, timeout=20) as response:
        lines = response.iter_lines()
        while "id: 1" not in next(lines):
            pass
        process.send_signal(signal.SIGTERM)
        return list(lines)


def test_nobody_sees_the_end_of_a_run_that_is_not_marked_ended(
    story: Story, story_url: str, served: Served
) -> None:
    """A commit notifies the streams: what another connection sees after each is what they send."""
    run_id = story.running()
    seen: list[tuple[bool, bool]] = []
    engine = create_engine(story_url)

    def look(_: Session) -> None:
        moves = select(RunEvent.data).where(
            RunEvent.run_id == run_id, RunEvent.type == "run.status_changed"
        )
        with engine.connect() as other:
            newest = other.scalars(moves.order_by(RunEvent.seq.desc()).limit(1)).one()
            ended_at = other.scalar(select(Run.ended_at).where(Run.id == run_id))
        seen.append((newest["to"] in TERMINAL, ended_at is not None))

    listen(Session, "after_commit", look)
    try:
        story.finish(run_id, 12, ReasonCode.SPEC_REJECTED, message="no")
    finally:
        remove(Session, "after_commit", look)
        engine.dispose()
    assert set(seen) <= {(False, False), (True, True)}
    assert seen[-1] == (True, True)
    read_to_the_end(served, f"/v1/runs/{run_id}/events/stream", 0, 0.0)
