from pathlib import Path

from tests.trainer.scripted import (
    ADD,
    DONE,
    CountingProvider,
    ScriptedEngine,
    a_collector,
    a_task,
    a_wave,
)
from trainer.rollouts.dump import read_trajectories, wave_name, write_trajectories


async def test_a_trajectory_file_holds_everything_needed_to_train_on_it_again(
    tmp_path: Path,
) -> None:
    engine = ScriptedEngine(lambda turn, _: (ADD, DONE)[turn])
    wave = a_wave(n=2, step=3)
    (group,) = await a_collector(engine, CountingProvider()).collect([a_task()], wave)
    path = tmp_path / f"{wave_name(wave)}.jsonl.gz"
    write_trajectories(path, group, wave)
    records = read_trajectories(path)
    assert path.name == "step-000003-train-train.jsonl.gz"
    assert len(records) == 2
    record, trajectory = records[1], group[1].trajectory
    assert record["token_ids"] == list(trajectory.token_ids)
    assert record["action_mask"] == [int(action) for action in trajectory.action_mask]
    assert record["logprobs"] == [-0.5] * sum(trajectory.action_mask)
    assert record["weight_versions"] == [0] * sum(trajectory.action_mask)
    assert record["outcome"] == {"status": "graded", "score": 1.0, "reason": None}
    assert record["rollout_id"] == trajectory.rollout_id


async def test_equal_rollouts_make_equal_bytes(tmp_path: Path) -> None:
    engine = ScriptedEngine(lambda turn, _: (ADD, DONE)[turn])
    (group,) = await a_collector(engine, CountingProvider()).collect([a_task()], a_wave())
    for name in ("a", "b"):
        write_trajectories(tmp_path / name, group, a_wave())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
