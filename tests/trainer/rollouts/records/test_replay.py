"""What the trainer stores of a rollout is enough to grade it again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from api.results.rescoring import job
from hillclimb.environment.task import Task
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.tasks import minifleet_tasks
from hillclimb.protocol.outcomes import StopReason
from hillclimb.spec.environment.environment import EnvironmentSpec
from hillclimb.spec.training.rollout import RolloutSpec
from tests.hillclimb.minifleet.playing import calls_of
from tests.trainer.fixtures.scripted import DONE, ScriptedEngine, a_collector, a_request
from trainer.envs.minifleet import MinifleetProvider
from trainer.rollouts.records.dump import trajectories_name, write_trajectories
from trainer.rollouts.records.outcomes import outcome_rows
from trainer.rollouts.request import Rollout

LONG = RolloutSpec(max_input_length=30_000, max_generate_length=1_000, max_sequence_length=31_000)

REQUEST = replace(a_request(), temperatures=dict.fromkeys(APPS, 1.0))


async def turns_of(task: Task) -> list[str]:
    """An expert's turns, with a call that cannot be read and one of no tool before them."""
    calls = [
        f"<tool_call>{json.dumps({'name': call.name, 'arguments': dict(call.arguments)})}"
        "</tool_call>"
        for call in await calls_of(task)
    ]
    return ["<tool_call>{</tool_call>", '<tool_call>{"name": "fly"}</tool_call>', *calls]


async def rolled_out(task: Task, turns: list[str], *, max_turns: int) -> Rollout:
    engine = ScriptedEngine(lambda turn, _: [*turns, DONE][turn])
    collector = a_collector(
        engine,
        MinifleetProvider(),
        environment=EnvironmentSpec(max_turns=max_turns),
        rollout=LONG,
    )
    ((found,),) = await collector.collect([task], REQUEST)
    return found


@pytest.mark.parametrize("grades_unfinished", [False, True])
async def test_the_stored_file_gives_every_rollout_its_grade(
    tmp_path: Path, grades_unfinished: bool
) -> None:
    """Each app solved, given up before the last call, and stopped at the turn limit."""
    rollouts = []
    for task in minifleet_tasks(list(APPS), "eval", 1, seed=4):
        turns = await turns_of(task)
        rollouts += [
            await rolled_out(task, turns, max_turns=len(turns) + 1),
            await rolled_out(task, turns[:-1], max_turns=len(turns)),
            await rolled_out(task, turns, max_turns=len(turns)),
        ]
    name = f"{trajectories_name(REQUEST)}.jsonl.gz"
    write_trajectories(tmp_path / name, rollouts, REQUEST)
    rows = outcome_rows(rollouts, REQUEST, trajectory_key=name)
    assert [row.score for row in rows[:3]] == [1.0, 0.0, 0.0]
    assert rows[2].stop_reason is StopReason.MAX_TURNS
    entries = [
        {
            "rollout_id": row.rollout_id,
            "line": row.trajectory_line,
            "stop_reason": row.stop_reason.value,
            "status": row.status.value,
            "reason": row.reason,
        }
        for row in rows
    ]
    asked = {"grades_unfinished": grades_unfinished, "files": {name: entries}}
    found = await job._grade_all(tmp_path, asked)
    limited = 1.0 if grades_unfinished else 0.0
    assert [each["score"] for each in found] == [1.0, 0.0, limited] * len(APPS)
    if not grades_unfinished:
        assert [(each["score"], each["reason"]) for each in found] == [
            (row.score, row.reason) for row in rows
        ]
