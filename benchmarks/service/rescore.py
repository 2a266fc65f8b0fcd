"""The time to grade 10,000 stored rollouts of the miniature apps again, and to search them again.

    .venv/bin/python -m benchmarks.service.rescore [--out FILE]

Scripted agents play eval tasks of all eight apps: the expert, one that stops before its last call,
and one that makes mistakes first. The trainer's own writer stores the rollouts, with as many tokens
as the demo's; the service ingests their outcomes, with the grades of an older verifier for a tenth
of them. Then one request to the real application, over loopback, has all of them graded again, and
another one searched for failure patterns, as if the trainer's detectors had been older ones: they
must find the same.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import update

from api.results.derive import derive
from api.tables import OutcomeRecord, Run
from api.tables.database import Database
from hillclimb.blobs.disk import DiskStore
from hillclimb.environment.base import ToolCall
from hillclimb.environment.task import Task
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.tasks import minifleet_tasks
from hillclimb.protocol.events import EvalCompleted
from hillclimb.protocol.outcomes import Outcome, OutcomeStatus, StopReason
from tests.api.fixtures.serving import serve
from tests.api.fixtures.story import Story
from tests.fixtures.migrated import migrate
from tests.fixtures.postgres import start_test_postgres
from tests.hillclimb.minifleet.playing import Rewrite, as_it_is, without
from tests.hillclimb.minifleet.recording import Recording, record
from trainer.rollouts.records.dump import trajectories_name, write_trajectories
from trainer.rollouts.records.outcomes import outcome_rows
from trainer.rollouts.request import Rollout, RolloutRequest
from trainer.types import Trajectory, Turn

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "benchmarks" / "results" / "rescore.json"
EVALS, TASKS_PER_ENV, SAMPLES = 20, 21, 3
TOKENS = 700
"""Tokens of a rollout, two thirds of them prompt and answers."""
WRONG_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What is in the service: the run, and how many grades the older verifier got wrong."""

    run_id: str
    num_rollouts: int
    num_wrong: int
    file_bytes: int


def mistaken(call: ToolCall) -> Sequence[ToolCall]:
    """Make a call of no tool and one without its arguments, then the right one."""
    return (
        ToolCall(name="fly", arguments={}),
        ToolCall(name=call.name, arguments={"nonsense": 1}),
        call,
    )


async def play_all(tasks: Sequence[Task]) -> dict[str, list[Recording]]:
    """Return the episodes of the three agents, by the key of their task."""
    episodes = {}
    for task in tasks:
        solved = await record(task)
        rewrites: list[Rewrite] = [as_it_is, without(solved.calls[-1][0].name), mistaken]
        episodes[task.key] = [await record(task, rewrite) for rewrite in rewrites]
    return episodes


def rollout_of(played: Recording, score: float, sample: int, rollout_id: str) -> Rollout:
    """Return an episode as the trainer has it after its grade."""
    prompt = 2 * TOKENS // 3
    drawn = TOKENS - prompt
    turns = tuple(
        Turn(
            response=f"<tool_call>{json.dumps({'name': call.name})}</tool_call>",
            tool_name=call.name,
            tool_arguments=call.arguments,
            observation=result.text,
            is_error=result.is_error,
        )
        for call, result in played.calls
    )
    trajectory = Trajectory(
        task=played.task,
        token_ids=tuple(range(TOKENS)),
        action_mask=(False,) * prompt + (True,) * drawn,
        logprobs=(0.0,) * prompt + (-0.654321,) * drawn,
        weight_versions=(-1,) * prompt + (7,) * drawn,
        prompt_length=prompt,
        turns=(
            *turns,
            Turn(response="<done>", tool_name=None, tool_arguments=None, observation=None),
        ),
        stop_reason=StopReason.DONE,
        outcome=Outcome(status=OutcomeStatus.GRADED, score=score),
        rollout_id=rollout_id,
        sample_index=sample,
    )
    return Rollout(trajectory=trajectory, num_turns=len(turns) + 1, duration_s=1.0, infra_errors=())


def fill(story: Story, blobs: DiskStore, folder: Path) -> Filled:
    """Store the evaluations of a run; return what is there."""
    tasks = minifleet_tasks(list(APPS), "eval", TASKS_PER_ENV, seed=11, held_out_share=0.25)
    episodes = asyncio.run(play_all(tasks))
    rng, run_id = random.Random(11), story.running()
    num_wrong = num_rollouts = size = 0
    for step in range(EVALS):
        request = RolloutRequest(
            step=step,
            split="eval",
            decoding="sampled",
            n_samples_per_prompt=SAMPLES,
            temperatures=dict.fromkeys(APPS, 1.0),
        )
        rollouts = []
        for task in tasks:
            for sample in range(SAMPLES):
                played = rng.choice(episodes[task.key])
                score = played.grade.score or 0.0
                is_wrong = rng.random() < WRONG_SHARE
                num_wrong += is_wrong
                rollout_id = f"1/{step}/eval/sampled/{task.key}/{sample}"
                score = 1.0 - score if is_wrong else score
                rollouts.append(rollout_of(played, score, sample, rollout_id))
        name = trajectories_name(request)
        path = folder / f"{name}.jsonl.gz"
        write_trajectories(path, rollouts, request)
        blobs.put_file(f"runs/{run_id}/attempt-1/trajectories/{name}.jsonl.gz", path)
        size += path.stat().st_size
        rows = outcome_rows(rollouts, request, trajectory_key=f"trajectories/{name}.jsonl.gz")
        num_rollouts += len(rows)
        event = EvalCompleted(
            step=step,
            decoding="sampled",
            temperature=1.0,
            n_samples_per_prompt=SAMPLES,
            pass_threshold=1.0,
            metrics={},
            outcomes=rows,
            duration_s=1.0,
        )
        with story.database.transaction() as session:
            derive(session, session.get_one(Run, run_id), 1, [event])
    return Filled(run_id=run_id, num_rollouts=num_rollouts, num_wrong=num_wrong, file_bytes=size)


def measure(url: str, folder: Path) -> dict[str, Any]:
    """Fill the database at the URL, rescore, and return the figures."""
    migrate(url)
    database = Database(url)
    story, blobs = Story(database), DiskStore(folder / "blobs")
    story.prepare()
    filled = fill(story, blobs, folder)
    with (
        serve(url, database, folder / "blobs", has_own_pool=True) as served,
        served.client() as client,
    ):
        client.timeout = 400.0
        began = time.perf_counter()
        path = f"/v1/runs/{filled.run_id}/rescorings"
        answer = client.post(path, json={"verifier": "present"})
        seconds = time.perf_counter() - began
        answer.raise_for_status()
        found = answer.json()
        began = time.perf_counter()
        report = client.get(
            f"/v1/runs/{filled.run_id}/evals/report", params={"verifier": found["verifier"]}
        )
        report.raise_for_status()
        report_s = time.perf_counter() - began
        with database.transaction() as session:
            session.execute(update(OutcomeRecord).values(patterns_version=0))
        began = time.perf_counter()
        path = f"/v1/runs/{filled.run_id}/patterns/searches"
        answer = client.post(path, json={"detectors": "present"})
        search_s = time.perf_counter() - began
        answer.raise_for_status()
        searched = answer.json()
        began = time.perf_counter()
        client.get(f"/v1/runs/{filled.run_id}/patterns").raise_for_status()
        patterns_s = time.perf_counter() - began
    database.close()
    assert searched["num_searched"] == filled.num_rollouts
    assert searched["num_changed"] == 0
    assert found["num_graded"] == found["num_rollouts"] == filled.num_rollouts
    assert found["num_changed"] == filled.num_wrong
    return {
        "rollouts": filled.num_rollouts,
        "seconds": round(seconds, 1),
        "changed": found["num_changed"],
        "wrong_grades_stored": filled.num_wrong,
        "not_replayable": sum(found["ungraded"].values()),
        "file_mb": round(filled.file_bytes / 1e6, 1),
        "report_under_it_ms": round(1000.0 * report_s),
        "search_seconds": round(search_s, 1),
        "searched": searched["num_searched"],
        "patterns_ms": round(1000.0 * patterns_s),
    }


def main() -> int:
    """Measure, print, write; exit code 1 above 60 s."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    postgres, load = start_test_postgres(), os.getloadavg()[0]
    try:
        with tempfile.TemporaryDirectory(prefix="hillclimb-rescore-") as name:
            figures = measure(postgres.url, Path(name))
    finally:
        postgres.stop()
    figures["machine"] = f"{os.cpu_count()} cores, {platform.machine()}, load before {load:.1f}"
    print(json.dumps(figures, indent=1))
    given.out.write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if max(figures["seconds"], figures["search_seconds"]) < 60.0 else 1


if __name__ == "__main__":
    sys.exit(main())
