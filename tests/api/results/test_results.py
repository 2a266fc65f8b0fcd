"""Figures and artifacts of a run over HTTP."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import text

from api.results.artifacts.logs import SEGMENT_BITS
from api.results.metrics import MetricFilters, read_metrics
from api.tables import Metric
from api.tables.bulk import upsert_rows
from api.tables.database import Database
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import CheckpointQualified, CheckpointRefused
from hillclimb.protocol.outcomes import OutcomeStatus
from hillclimb.protocol.rundir import attempt_name, checkpoint_name, log_segment, run_key
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.fixtures.factories import outcome
from tests.hillclimb.client.payloads import trajectory_json

RATES = {"booking": 0.5, "github": 1.0}


def test_metrics_are_chosen_by_pattern_and_step(story: Story, served: Served) -> None:
    run_id = story.running()
    for step in (1, 2, 3):
        story.push(run_id, story.step(run_id, step, RATES))
    with served.client() as client:
        path = f"/v1/runs/{run_id}/metrics"
        loss = client.get(path, params={"names": "policy/*", "from_step": 2, "to_step": 3}).json()
        every = client.get(path).json()
    (series,) = loss["data"]
    assert (series["name"], series["decoding"]) == ("policy/loss", "train")
    assert [point["step"] for point in series["points"]] == [2, 3]
    assert series["points"][0]["value"] == pytest.approx(0.05)
    names = [one["name"] for one in every["data"]]
    assert names == ["policy/loss", "reward/avg_raw_reward", "timing/step"]


def test_metrics_of_a_repeated_step_are_those_of_the_newest_attempt(
    story: Story, served: Served
) -> None:
    run_id = story.running()
    story.push(run_id, story.step(run_id, 1, RATES), story.step(run_id, 2, RATES))
    story.report(run_id, ReasonCode.TRAINER_CRASHED)
    story.launch(run_id)
    story.push(run_id, story.started(run_id), story.step(run_id, 1, {"booking": 1.0}))
    with served.client() as client:
        answer = client.get(f"/v1/runs/{run_id}/metrics", params={"names": "reward/*"}).json()
    points = answer["data"][0]["points"]
    assert [(point["step"], point["attempt"]) for point in points] == [(1, 2), (2, 1)]
    assert points[0]["value"] == 1.0


def test_evals_and_report_answer_over_http(story: Story, served: Served) -> None:
    run_id = story.running()
    with served.client() as client:
        early = client.get(f"/v1/runs/{run_id}/evals/report")
        story.push(run_id, story.evaluation(run_id, 0, {"booking": 0.2}))
        story.push(run_id, story.evaluation(run_id, 40, {"booking": 0.9}))
        table = client.get(f"/v1/runs/{run_id}/evals").json()
        report = client.get(f"/v1/runs/{run_id}/evals/report").json()
        missing = client.get(f"/v1/runs/{run_id}/evals/report", params={"after": 7})
    assert (early.status_code, early.json()["code"]) == (404, "no_such_eval")
    assert missing.status_code == 404
    assert [row["envs"]["booking"]["pass_at_1"] for row in table["data"]] == pytest.approx(
        [0.2, 0.9]
    )
    assert report["sampled"]["verdict"] == "improved"
    assert report["environments"]["booking"]["sampled"]["n"] == 60


def test_trajectories_page_through_exactly_the_failed_ones(story: Story, served: Served) -> None:
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 0, RATES, infra_share=0.1))
    story.push(run_id, story.evaluation(run_id, 10, RATES))
    path = f"/v1/runs/{run_id}/trajectories"
    found = []
    query = {"failed": "true", "limit": "17"}
    with served.client() as client:
        while True:
            page = client.get(path, params=query).json()
            found += page["data"]
            if not page["has_more"]:
                break
            query["cursor"] = page["next_cursor"]
        other = client.get(path, params={"failed": "false", "cursor": query["cursor"]})
        typo = client.get(path, params={"enviroment": "booking"})
        infra = client.get(path, params={"status": "infra_error", "limit": 200}).json()
    assert len({row["rollout_id"] for row in found}) == len(found)
    assert all(row["score"] == 0.0 and row["passed"] is False and row["cause"] for row in found)
    assert sum(row["step"] == 10 for row in found) == 30
    assert found[0]["step"] == 10
    assert (other.status_code, other.json()["code"]) == (400, "cursor_rejected")
    assert typo.status_code == 422
    assert {row["passed"] for row in infra["data"]} == {None}


def test_a_rollout_without_a_grade_says_why_in_words(story: Story, served: Served) -> None:
    run_id = story.running()
    why = {"reason": "env_unavailable", "detail": "the platform answered 401: unknown key"}
    lost = outcome("lost", None, status=OutcomeStatus.INFRA_ERROR, **why)
    event = story.step(run_id, 1, RATES).model_copy(update={"outcomes": (lost, outcome("won"))})
    story.push(run_id, event)
    with served.client() as client:
        page = client.get(f"/v1/runs/{run_id}/trajectories").json()
    found = {row["rollout_id"]: (row["reason"], row["detail"]) for row in page["data"]}
    assert found == {"lost": tuple(why.values()), "won": (None, None)}


def test_a_trajectory_comes_whole_from_its_line_of_the_file(
    story: Story, served: Served, blobs: DiskStore
) -> None:
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 0, {"booking": 0.5}, tasks=4))
    lines = "".join(json.dumps(trajectory_json(task)) + "\n" for task in range(4))
    key = run_key(run_id, attempt_name(1), "trajectories/step.jsonl.gz")
    rollout = f"/v1/runs/{run_id}/trajectories/1/0/eval/sampled/booking/eval/t/2/0"
    with served.client() as client:
        early = client.get(rollout)
        blobs.put(key, gzip.compress(lines.encode()))
        answer = client.get(rollout).json()
        unknown = client.get(f"/v1/runs/{run_id}/trajectories/nobody")
    assert (early.status_code, early.json()["code"]) == (404, "artifact_not_found")
    assert answer["trajectory"] == trajectory_json(2)
    assert answer["task_key"] == "booking-2"
    assert unknown.status_code == 404


def test_checkpoints_list_show_their_manifest_and_download_file_by_file(
    story: Story, served: Served, blobs: DiskStore
) -> None:
    run_id = story.running()
    story.push(run_id, story.checkpoint(run_id, 10))
    weights = bytes(range(256)) * 9000
    manifest = {"files": [{"path": "model/a.bin", "sha256": hashlib.sha256(weights).hexdigest()}]}
    place = run_key(run_id, checkpoint_name(10, 1))
    blobs.put(f"{place}/model/a.bin", weights)
    blobs.put(f"{place}/manifest.json", json.dumps(manifest).encode())
    path = f"/v1/runs/{run_id}/checkpoints"
    with served.client() as client:
        (listed,) = client.get(path).json()["data"]
        shown = client.get(f"{path}/10").json()
        file = client.get(f"{path}/10/files/model/a.bin")
        absent = client.get(f"{path}/11")
    assert (listed["step"], listed["attempt"], listed["final"]) == (10, 1, False)
    assert shown["manifest"] == manifest
    assert file.content == weights
    assert file.headers["content-length"] == str(len(weights))
    assert absent.status_code == 404
    assert "it has: 10" in absent.json()["detail"]


def test_a_checkpoint_shows_the_result_of_its_trial(served: Served, story: Story) -> None:
    run_id = story.running()
    saved = [story.checkpoint(run_id, step) for step in (10, 20, 30)]
    story.push(run_id, *saved)
    reason = "damaged: learner/.metadata is missing"
    story.push(
        run_id,
        CheckpointQualified(**story.place(run_id, 10), path=saved[0].path, duration_s=1.5),
    )
    story.push(
        run_id,
        CheckpointRefused(**story.place(run_id, 20), path=saved[1].path, reason=reason),
    )
    with served.client() as client:
        listed = client.get(f"/v1/runs/{run_id}/checkpoints").json()["data"]
    shown = {each["step"]: (each["qualification"], each["refusal"]) for each in listed}
    assert shown == {10: ("qualified", None), 20: ("refused", reason), 30: ("untried", None)}


@pytest.mark.parametrize(
    "path",
    ["%2e%2e%2f%2e%2e%2fsecret", "x%2F..%2F..%2Fsecret", "%2Fetc%2Fpasswd", "%00", "", "model"],
)
def test_a_path_cannot_leave_its_checkpoint(
    story: Story, served: Served, blobs: DiskStore, path: str
) -> None:
    run_id = story.running()
    story.push(run_id, story.checkpoint(run_id, 10))
    blobs.put(run_key(run_id, "secret"), b"not yours")
    blobs.put(run_key(run_id, checkpoint_name(10, 1), "model/a.bin"), b"a")
    with served.client() as client:
        answer = client.get(f"/v1/runs/{run_id}/checkpoints/10/files/{path}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["policy", "manifest.json/x", "a" * 300, "a%00b", ""])
def test_what_is_no_file_of_a_checkpoint_is_not_found(
    story: Story, served: Served, blobs: DiskStore, path: str
) -> None:
    run_id = story.running()
    story.push(run_id, story.checkpoint(run_id, 10))
    place = run_key(run_id, checkpoint_name(10, 1))
    blobs.put(f"{place}/manifest.json", b"{")
    blobs.put(f"{place}/policy/model", b"x")
    with served.client() as client:
        answer = client.get(f"/v1/runs/{run_id}/checkpoints/10/files/{path}")
        torn = client.get(f"/v1/runs/{run_id}/checkpoints/10")
    assert (answer.status_code, answer.json()["code"]) == (404, "artifact_not_found")
    assert (torn.status_code, torn.json()["code"]) == (404, "artifact_not_found")
    assert "damaged" in torn.json()["detail"]


def test_a_store_that_is_away_is_503_and_retryable(
    story: Story, served: Served, blobs: DiskStore
) -> None:
    run_id = story.running()
    story.push(run_id, story.checkpoint(run_id, 10))
    folder = blobs.local_path(f"runs/{run_id}")
    assert folder is not None
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.symlink_to(folder)  # nothing can be read below a link to itself
    with served.client() as client:
        answer = client.get(f"/v1/runs/{run_id}/checkpoints/10")
    assert (answer.status_code, answer.json()["retryable"]) == (503, True)


def test_a_stored_path_that_leaves_the_run_is_missing_and_no_outage(
    story: Story, served: Served
) -> None:
    run_id = story.running()
    outside = story.checkpoint(run_id, 10).model_copy(update={"path": "../elsewhere"})
    story.push(run_id, outside)
    with served.client() as client:
        answer = client.get(f"/v1/runs/{run_id}/checkpoints/10")
    assert (answer.status_code, answer.json()["code"]) == (404, "artifact_not_found")


def test_a_log_is_followed_through_its_segments_to_the_end(
    story: Story, served: Served, blobs: DiskStore
) -> None:
    run_id = story.running()
    path = f"/v1/runs/{run_id}/logs"
    text = "".join(f"Schritt {i}: größer\n" for i in range(300))
    data = text.encode()
    pieces = [data[:1000], data[1000:1001], data[1001:]]
    query = {"limit": "333", "after": "0"}
    got = ""
    with served.client() as client:
        empty = client.get(path).json()
        for number, piece in enumerate(pieces[:2], start=1):
            blobs.put(run_key(run_id, log_segment(1, number)), piece)
        for last in (False, True):
            if last:
                blobs.put(run_key(run_id, log_segment(1, 3)), pieces[2])
                story.finish(run_id, 40)
            while True:
                page = client.get(path, params=query).json()
                got += page["text"]
                query["after"] = str(page["next_offset"])
                if not page["has_more"]:
                    break
            assert page["ended"] is last
        stale = client.get(path, params={"attempt": 9}).json()
    assert (empty["text"], empty["next_offset"], empty["ended"]) == ("", 0, False)
    assert got == text
    assert int(query["after"]) >> SEGMENT_BITS == 3
    assert stale["text"] == ""


@pytest.mark.parametrize(
    "path",
    [
        "events",
        "metrics",
        "evals",
        "evals/report",
        "trajectories",
        "trajectories/x",
        "tokens/x",
        "checkpoints",
        "checkpoints/1",
        "checkpoints/1/files/x",
        "logs",
    ],
)
def test_another_projects_run_does_not_exist(story: Story, served: Served, path: str) -> None:
    run_id = story.running()
    with served.client(served.stranger_key) as stranger, served.browser() as nobody:
        foreign = stranger.get(f"/v1/runs/{run_id}/{path}")
        anonymous = nobody.get(f"/v1/runs/{run_id}/{path}")
    assert (foreign.status_code, foreign.json()["code"]) == (404, "run_not_found")
    assert anonymous.status_code == 401


def fill(
    story: Story,
    run_id: str,
    name: str,
    *,
    steps: Iterable[int],
    value: Callable[[int], float] = float,
    **more: Any,
) -> None:
    key = {"run_id": run_id, "name": name, "decoding": "train", "attempt": 1} | more
    with story.database.transaction() as session:
        upsert_rows(session, Metric, [{**key, "step": s, "value": value(s)} for s in steps])


@pytest.fixture
def long_run(story: Story) -> str:
    made = story.running()
    fill(story, made, "loss", steps=range(5, 1005), value=lambda step: step / 7)
    fill(story, made, "loss", steps=(7, 1004), value=lambda _: -1.0, attempt=2)
    fill(story, made, "kl", steps=(1, 2, 900), decoding="greedy")
    fill(story, made, "kl", steps=(3,))
    return made


def read(story: Story, run_id: str, **filters: Any) -> dict[tuple[str, str], list[dict[str, Any]]]:
    with story.database.transaction() as session:
        series = read_metrics(session, run_id, MetricFilters(**filters))
    return {(each["name"], each["decoding"]): each["points"] for each in series}


@pytest.mark.parametrize("most", [2, 3, 10, 999, 1000, 10_000])
def test_a_series_has_at_most_so_many_stored_points(story: Story, long_run: str, most: int) -> None:
    every, thinned = read(story, long_run), read(story, long_run, max_points=most)
    assert thinned.keys() == every.keys()
    points, stored = thinned["loss", "train"], every["loss", "train"]
    assert len(points) == min(most, 1000)
    assert all(point in stored for point in points)
    assert (points[0], points[-1]) == (stored[0], stored[-1])
    assert points[-1] == {"step": 1004, "attempt": 2, "value": -1.0}
    gaps = [after["step"] - before["step"] for before, after in pairwise(points)]
    assert max(gaps) - min(gaps) <= 1
    assert thinned["kl", "train"] == every["kl", "train"]
    if most >= 3:
        assert thinned["kl", "greedy"] == every["kl", "greedy"]


def test_a_part_of_the_steps_is_thinned_by_itself(story: Story, long_run: str) -> None:
    part = read(story, long_run, names=("loss",), from_step=100, to_step=900, max_points=3)
    assert [point["step"] for point in part["loss", "train"]] == [100, 500, 900]
    assert read(story, long_run, names=("loss",), from_step=2_000, max_points=3) == {}
    assert read(story, long_run, names=("x*",), max_points=3) == {}
    between = read(story, long_run, names=("kl",), from_step=4, to_step=20, max_points=3)
    assert between == read(story, long_run, names=("kl",), from_step=4, to_step=20) == {}


def test_the_time_does_not_grow_with_the_points_between(
    story: Story, story_url: str, long_run: str
) -> None:
    """Buffers that PostgreSQL reads for 10 points of 1,000 and of 20,000.

    On one connection, because each has counts of its own until it adds them to the table's.
    """
    story = replace(story, database=Database(story_url))

    def buffers() -> int:
        with story.database.transaction() as session:
            session.execute(text("SELECT pg_stat_force_next_flush()"))
        with story.database.transaction() as session:
            before = session.scalar(text(BLOCKS))
        read(story, long_run, names=("loss",), max_points=10)
        with story.database.transaction() as session:
            session.execute(text("SELECT pg_stat_force_next_flush()"))
        with story.database.transaction() as session:
            return int(session.scalar(text(BLOCKS)) or 0) - int(before or 0)

    few = buffers()
    fill(story, long_run, "loss", steps=range(1005, 20_000))
    assert buffers() <= 2 * few
    story.database.close()


BLOCKS = "SELECT idx_blks_hit + idx_blks_read FROM pg_statio_user_tables WHERE relname = 'metrics'"


def test_more_points_than_an_answer_has_are_refused_with_what_to_send(
    story: Story, served: Served, long_run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.results.metrics.MAX_POINTS", 1000)
    path = f"/v1/runs/{long_run}/metrics"
    with served.client() as client:
        assert len(client.get(path, params={"names": "loss"}).json()["data"][0]["points"]) == 1000
        for query in ({}, {"max_points": 500}):
            refused = client.get(path, params=query)
            assert (refused.status_code, refused.json()["code"]) == (422, "too_many_points")
            assert "over 1,000 points: send `max_points`" in refused.json()["detail"]
        # No series has more points than steps, whatever is asked for.
        whole = {"names": "loss", "max_points": 10_000}
        for query in ({"max_points": 300}, {"from_step": 900}, whole):
            assert client.get(path, params=query).status_code == 200


def test_the_route_takes_the_number(story: Story, served: Served, long_run: str) -> None:
    path = f"/v1/runs/{long_run}/metrics"
    with served.client() as client:
        answer = client.get(path, params={"names": "loss", "max_points": 500})
        (series,) = answer.json()["data"]
        assert len(series["points"]) == 500
        assert client.get(path, params={"max_points": 1}).status_code == 422
        assert client.get(path, params={"max_points": 10_001}).status_code == 422
