"""Each key of the spec reaches the part it is about; what is read deeper is tested there."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from hillclimb.environment.base import Grade
from hillclimb.hardware.model.published import KNOWN
from hillclimb.hardware.model.shapes import TINY
from hillclimb.protocol.events import (
    CheckpointDeleted,
    CheckpointSaved,
    EvalCompleted,
    StepCompleted,
    TrainerStarted,
)
from hillclimb.protocol.outcomes import OutcomeRow
from tests.fixtures.factories import make_spec
from tests.trainer.fixtures.scripted import CountingEnv, CountingProvider
from tests.trainer.fixtures.short_run import ShortRun
from tests.trainer.fixtures.tiny_model import write_tiny_model
from trainer.errors import ModelUnavailable, SpecError
from trainer.jobs.assembly import is_inline, refuse_gpu, refuse_unsuited
from trainer.rollouts.records.dump import read_trajectories

SMALL: dict[str, dict[str, Any]] = {
    "environment": {"max_turns": 1},
    "rollout": {"n_samples_per_prompt": 2},
    "schedule": {"total_steps": 1, "train_batch_size": 2, "mini_batch_size": 2},
    "eval": {"before_training": False, "interval": 0},
    "checkpoints": {"interval": 1000},
}


class HalfRight(CountingEnv):
    """Every episode that comes to its end is worth one half."""

    async def score(self) -> Grade:
        return Grade(score=0.5)


def a_run(root: Path, **sections: dict[str, Any]) -> ShortRun:
    merged = {
        name: {**SMALL.get(name, {}), **sections.get(name, {})} for name in {*SMALL, *sections}
    }
    return ShortRun(root, **merged)


def rows(run: ShortRun) -> tuple[OutcomeRow, ...]:
    first: StepCompleted = run.events(StepCompleted)[0]
    return first.outcomes


async def test_data_says_how_many_tasks_there_are_and_how_many_are_of_unseen_templates(
    tmp_path: Path,
) -> None:
    run = a_run(
        tmp_path,
        data={"train_tasks_per_env": 7, "eval_tasks_per_env": 6, "held_out_template_share": 0.5},
    )
    await run.train()
    started = run.events(TrainerStarted)[0]
    assert (started.num_train_tasks, started.num_eval_tasks) == (14, 12)
    outcomes = run.events(EvalCompleted)[0].outcomes
    assert sum(row.held_out_template for row in outcomes) == 6


async def test_the_seed_of_the_data_decides_the_tasks_and_that_of_the_schedule_the_draws(
    tmp_path: Path,
) -> None:
    runs = {
        name: a_run(tmp_path / name, data={"seed": data}, schedule={"seed": draws})
        for name, data, draws in (("a", 0, 0), ("b", 0, 1), ("c", 1, 0))
    }
    tasks, tokens = {}, {}
    for name, run in runs.items():
        await run.train()
        tasks[name] = [row.task_key for row in rows(run)]
        files = read_trajectories(run.dir().trajectories / "step-000001-train-train.jsonl.gz")
        tokens[name] = [record["token_ids"] for record in files]
    assert tasks["a"] == tasks["b"] != tasks["c"]
    assert tokens["a"] != tokens["b"]


@pytest.mark.invariant("one threshold decides a pass in training and in evaluation")
async def test_a_score_at_the_threshold_passes_in_training_and_in_evaluation(
    tmp_path: Path,
) -> None:
    rates = []
    for threshold in (0.5, 0.6):
        run = a_run(
            tmp_path / str(threshold),
            data={"eval_tasks_per_env": 8},
            environment={"max_turns": 2},
            rollout={"n_samples_per_prompt": 16},
            eval={"pass_threshold": threshold},
        )
        await run.train(provider=CountingProvider(lambda _: HalfRight(goal=0)))
        assert any(row.score == 0.5 for row in rows(run))
        step, last = run.events(StepCompleted)[0], run.events(EvalCompleted)[0]
        assert last.pass_threshold == threshold
        rates.append((step.metrics["reward/avg_pass_at_1"], last.metrics["eval/all/pass_at_1"]))
    assert min(rates[0]) > 0.0
    assert rates[1] == (0.0, 0.0)


async def test_the_schedule_says_how_many_updates_a_step_has_and_how_the_rate_rises(
    tmp_path: Path,
) -> None:
    run = a_run(
        tmp_path,
        rollout={"n_samples_per_prompt": 8},
        schedule={"total_steps": 3, "mini_batch_size": 1, "lr_warmup_steps": 1000},
    )
    await run.train()
    steps = run.events(StepCompleted)
    updates = [step.metrics["policy/num_updates"] for step in steps]
    assert sum(updates) > 0
    assert max(updates) <= 2
    assert steps[-1].metrics["policy/policy_lr"] == pytest.approx(0.01 * sum(updates) / 1000)


async def test_checkpoints_are_saved_at_their_interval_and_only_the_last_ones_kept(
    tmp_path: Path,
) -> None:
    run = a_run(tmp_path, schedule={"total_steps": 5}, checkpoints={"interval": 2, "keep_last": 1})
    await run.train()
    assert [event.step for event in run.events(CheckpointSaved)] == [2, 4, 5]
    gone = [event.path for event in run.events(CheckpointDeleted)]
    assert gone == [f"checkpoints/global_step_{step}/attempt-1" for step in (2, 4)]


async def test_an_environments_own_temperature_is_drawn_at_and_stored(tmp_path: Path) -> None:
    run = a_run(
        tmp_path,
        rollout={"temperature": 0.9},
        environment={"overrides": {"github": {"temperature": 1.3}}},
    )
    await run.train()
    records = read_trajectories(run.dir().trajectories / "step-000001-train-train.jsonl.gz")
    used = {(str(r["rollout_id"]).split("/")[4].split("-")[0], r["temperature"]) for r in records}
    assert used == {("booking", 0.9), ("github", 1.3)}
    metrics = run.events(StepCompleted)[0].metrics
    if metrics["policy/num_sequences"]:
        assert metrics["policy/rollout_train_logprobs_abs_diff_max"] < 1e-4


async def test_a_model_without_tokenizer_or_with_anothers_is_refused(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    tokenizer = tmp_path / "model" / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace("<|im_end|>", "<|another|>"))
    with pytest.raises(SpecError, match="cannot chat"):
        run.build()
    tokenizer.unlink()
    with pytest.raises(ModelUnavailable, match=r"tokenizer\.json"):
        run.build()


async def test_more_rollouts_at_once_than_the_memory_holds_is_a_clear_refusal(
    tmp_path: Path,
) -> None:
    run = a_run(
        tmp_path,
        environment={"max_concurrent_rollouts": 4096},
        rollout={"max_sequence_length": 1_000_000},
    )
    write_tiny_model(tmp_path / "model", positions=1_000_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (64 << 30, hard))
    try:
        with pytest.raises(SpecError, match=r"lower environment\.max_concurrent_rollouts"):
            run.build()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


async def test_a_machine_with_a_gpu_is_for_experiments_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda _: "NVIDIA H100 80GB HBM3")
    with pytest.raises(SpecError, match=r"set experimental to true to try it,.* or hide the GPU"):
        ShortRun(tmp_path).build()
    with pytest.raises(SpecError, match="trains on the processor, and this machine has a GPU"):
        ShortRun(tmp_path, experimental=True).build()
    refuse_gpu(ShortRun(tmp_path, experimental=True).spec, has_gpu=True)
    refuse_gpu(ShortRun(tmp_path).spec, has_gpu=False)


def test_settings_of_the_tiny_model_are_refused_for_a_large_one_on_a_gpu(tmp_path: Path) -> None:
    spec = ShortRun(tmp_path, experimental=True).spec
    refuse_unsuited(spec, TINY)
    with pytest.raises(SpecError, match=r"bfloat16.*; learner\.policy_dtype.*; optimizer"):
        refuse_unsuited(spec, KNOWN["Qwen3-8B"])


@pytest.mark.parametrize("place", ["auto", "inline"])
def test_without_ray_the_workers_share_the_process_unless_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    # As the import system remembers a module that is not to be found.
    monkeypatch.setitem(sys.modules, "ray", None)
    assert is_inline(make_spec(placement={"type": place}))
    with pytest.raises(SpecError, match="is ray, but Ray is not installed"):
        is_inline(make_spec(placement={"type": "ray"}))


def test_with_ray_only_who_asks_for_it_shares_the_process() -> None:
    pytest.importorskip("ray", reason="Ray is not installed here")
    places = {
        each: is_inline(make_spec(placement={"type": each})) for each in ("auto", "inline", "ray")
    }
    assert places == {"auto": False, "inline": True, "ray": False}
