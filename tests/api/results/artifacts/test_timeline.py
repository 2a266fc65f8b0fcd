"""A timeline draws what was measured: phases end at the next event, slots never overlap."""

from __future__ import annotations

import gzip
from typing import Any

import httpx

from api.results.artifacts.timeline.phases import Mark, draw_phases, draw_starts
from api.results.artifacts.timeline.rollouts import RolloutFacts, draw_rollouts
from api.results.artifacts.timeline.trace import Trace
from hillclimb.blobs.base import BlobStore
from hillclimb.protocol.payloads.results.rollouts import StoredSpan, StoredTimes
from hillclimb.protocol.rundir import run_key, times_file
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url

__all__ = ["blobs", "served", "story", "story_url"]


def slices(events: list[dict[str, Any]], category: str) -> dict[str, tuple[float, float]]:
    rows = [each for each in events if each["ph"] == "X" and each["cat"] == category]
    return {each["name"]: (each["ts"] / 1e6, each["dur"] / 1e6) for each in rows}


def mark(kind: str, at: float, *, attempt: int = 1, **facts: Any) -> Mark:
    return Mark(type=kind, attempt=attempt, at=at, step=facts.pop("step", 2), **facts)


MARKS = [
    mark("phase.started", 10, phase="rollout"),
    mark("phase.started", 14, phase="train"),
    mark("phase.started", 19, phase="sync"),
    mark("step.completed", 20),
    mark("phase.started", 21, phase="eval", decoding="greedy"),
    mark("eval.completed", 28, decoding="greedy"),
    mark("phase.started", 29, phase="rollout", step=3),
]
TIMINGS = {(1, 2): {"generate": 3.5, "convert_to_training_input": 0.5, "policy_train": 4.0}}


def times(number: int, began_at: float, *spans: tuple[str, float, float], worker: int = 0) -> Any:
    stored = [StoredSpan(kind=kind, began_s=at, seconds=s) for kind, at, s in spans]
    return StoredTimes(
        rollout_id=f"r{number}", worker=worker, engine=0, began_at=began_at, spans=stored
    )


def test_phases_end_at_the_next_event_and_parts_lie_within_them() -> None:
    trace = Trace()
    draw_phases(trace, MARKS, TIMINGS, until=None)
    assert slices(trace.events(), "phase") == {
        "rollout": (0.0, 4.0),
        "train": (4.0, 5.0),
        "sync": (9.0, 1.0),
        "eval greedy": (11.0, 7.0),
    }
    assert slices(trace.events(), "part") == {
        "generate": (0.0, 3.5),
        "convert_to_training_input": (4.0, 0.5),
        "policy_train": (4.5, 4.0),
    }
    assert slices(trace.events(), "step") == {"step 2": (0.0, 10.0)}


def test_phases_of_a_start_that_overlap_have_tracks_of_their_own() -> None:
    trace = Trace()
    draw_starts(
        trace,
        [
            mark("trainer.starting", 10, step=0, phase="ray"),
            mark("trainer.starting", 13, step=0, phase="ray", seconds=3.0),
            mark("trainer.starting", 20, step=0, phase="weights", seconds=6.0),
            mark("trainer.starting", 25, step=0, phase="engines", seconds=11.0),
        ],
    )
    events = trace.events()
    assert slices(events, "start") == {
        "ray": (0.0, 3.0),
        "weights": (4.0, 6.0),
        "engines": (4.0, 11.0),
    }
    tracks = {each["name"]: each["tid"] for each in events if each["ph"] == "X"}
    assert len(set(tracks.values())) == 3


def test_rollouts_at_once_have_slots_of_their_own_and_engines_count_their_turns() -> None:
    rows = [
        times(1, 100.0, ("reset", 0, 1), ("sample", 1, 2), ("call", 3, 1), ("sample", 4, 1)),
        times(2, 101.0, ("reset", 0, 1), ("sample", 1, 2)),
        times(3, 105.0, ("sample", 0, 1)),
        times(4, 105.0, ("sample", 0, 1), worker=1),
        times(5, 105.0, ("sample", 0, 1)),
    ]
    facts = {f"r{i}": RolloutFacts(name=f"task #{i}", args={}) for i in range(1, 5)}
    trace = Trace()
    assert draw_rollouts(trace, rows, facts) == 4
    events = trace.events()
    place = {e["name"]: (e["pid"], e["tid"]) for e in events if e.get("cat") == "rollout"}
    slots = {"task #1": (1000, 0), "task #2": (1000, 1), "task #3": (1000, 0)}
    assert place == slots | {"task #4": (1001, 0)}
    assert slices(events, "sample")["turn 2"] == (4.0, 1.0)
    load = [(e["ts"] / 1e6, *e["args"].values()) for e in events if e["ph"] == "C"]
    assert load == [
        *((1.0, 1), (2.0, 2), (3.0, 1), (4.0, 0), (4.0, 1), (5.0, 0), (5.0, 1), (5.0, 2)),
        *((6.0, 1), (6.0, 0)),
    ]


def test_the_route_draws_a_step_with_its_rollouts_and_the_whole_run_without(
    served: Served, story: Story, blobs: BlobStore
) -> None:
    run_id = story.running()
    phases = story.phase(run_id, 1, "rollout"), story.phase(run_id, 1, "train")
    step = story.step(run_id, 1, {"booking": 0.5})
    story.push(run_id, *phases, step)
    row = times(0, story.now.timestamp() - 3.0, ("sample", 0, 1), ("call", 1, 0.5))
    row = row.model_copy(update={"rollout_id": step.outcomes[0].rollout_id})
    key = run_key(run_id, times_file(1, "step"))
    blobs.put(key, gzip.compress(row.model_dump_json().encode() + b"\n"))

    headers = {"Authorization": f"Bearer {served.key}"}
    with httpx.Client(base_url=served.url, headers=headers) as client:
        answer = client.get(f"/v1/runs/{run_id}/timeline", params={"step": 1})
        assert answer.status_code == 200, answer.text
        assert f"{run_id}.step-1.timeline.json" in answer.headers["content-disposition"]
        trace = answer.json()
        assert trace["otherData"]["rollouts"] == 1
        assert trace["otherData"]["rollouts_without_times"] == len(step.outcomes) - 1
        assert set(slices(trace["traceEvents"], "rollout")) == {"booking-0 #0"}
        assert set(slices(trace["traceEvents"], "phase")) == {"rollout", "train"}
        whole = client.get(f"/v1/runs/{run_id}/timeline").json()
        assert set(slices(whole["traceEvents"], "status")) >= {"queued", "running"}
        assert not slices(whole["traceEvents"], "rollout")
        blobs.put(key, b"not gzip")
        damaged = client.get(f"/v1/runs/{run_id}/timeline", params={"step": 1}).json()
        assert damaged["otherData"]["rollouts"] == 0
        assert client.get(f"/v1/runs/{run_id}/timeline", params={"step": 9}).status_code == 404
        assert client.get(f"/v1/runs/{run_id}/timeline", params={"step": 0}).status_code == 422
