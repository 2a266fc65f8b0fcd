import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from hillclimb.environment.base import Grade, ToolResult
from hillclimb.protocol.outcomes import OutcomeRow
from tests.trainer.fixtures.scripted import (
    ADD,
    DONE,
    CountingEnv,
    CountingProvider,
    ScriptedEngine,
    a_collector,
    a_request,
    a_task,
)
from trainer.rollouts.records.dump import read_trajectories, trajectories_name, write_trajectories
from trainer.rollouts.records.outcomes import outcome_rows


async def test_a_trajectory_file_holds_everything_needed_to_train_on_it_again(
    tmp_path: Path,
) -> None:
    engine = ScriptedEngine(lambda turn, _: (ADD, DONE)[turn])
    request = a_request(n=2, step=3)
    (group,) = await a_collector(engine, CountingProvider()).collect([a_task()], request)
    path = tmp_path / f"{trajectories_name(request)}.jsonl.gz"
    write_trajectories(path, group, request)
    records = read_trajectories(path)
    assert path.name == "step-000003-train-train.jsonl.gz"
    assert len(records) == 2
    record, trajectory = records[1], group[1].trajectory
    assert record["token_ids"] == list(trajectory.token_ids)
    assert record["action_mask"] == [int(action) for action in trajectory.action_mask]
    assert record["logprobs"] == [-0.5] * sum(trajectory.action_mask)
    assert record["weight_versions"] == [0] * sum(trajectory.action_mask)
    assert record["outcome"] == {
        "status": "graded",
        "score": 1.0,
        "reason": None,
        "detail": None,
        "verifier_execution_id": None,
    }
    sampled = [turn["num_tokens"] for turn in record["turn_tokens"]]
    assert len(sampled) == 2
    assert sum(sampled) == sum(trajectory.action_mask)
    assert record["rollout_id"] == trajectory.rollout_id


async def test_equal_rollouts_make_equal_bytes(tmp_path: Path) -> None:
    engine = ScriptedEngine(lambda turn, _: (ADD, DONE)[turn])
    (group,) = await a_collector(engine, CountingProvider()).collect([a_task()], a_request())
    for name in ("a", "b"):
        write_trajectories(tmp_path / name, group, a_request())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


class HalfAnEmoji(CountingEnv):
    async def call(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolResult:
        return ToolResult(text="cut within \ud83d")

    async def score(self) -> Grade:
        return Grade(score=0.0, reason="missing: \ud83d")


async def test_text_that_no_file_takes_does_not_end_a_run(tmp_path: Path) -> None:
    engine = ScriptedEngine(lambda turn, _: (ADD, DONE)[turn])
    provider = CountingProvider(lambda _: HalfAnEmoji(goal=1))
    request = a_request()
    (group,) = await a_collector(engine, provider).collect([a_task()], request)
    write_trajectories(tmp_path / "file", group, request)
    (row,) = outcome_rows(group, request, trajectory_key="file")
    assert row.status == "graded"
    assert OutcomeRow.model_validate_json(row.model_dump_json()).reason == "missing: ?"
    assert "cut within ?" in json.dumps(read_trajectories(tmp_path / "file")[0]["turns"])
