import asyncio
from pathlib import Path
from statistics import fmean

import pytest
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from hillclimb.protocol.events import (
    CheckpointSaved,
    EnvDegraded,
    EvalCompleted,
    PhaseStarted,
    RunWarning,
    StepCompleted,
    TrainerStarted,
    TrainerStarting,
)
from hillclimb.protocol.outcomes import OutcomeRow
from tests.trainer.fixtures.scripted import CountingEnv, CountingProvider
from tests.trainer.fixtures.short_run import UNEVALUATED, ShortRun
from trainer.attempt.stop_signal import StopRequested
from trainer.errors import CheckpointError, EnvironmentOutage
from trainer.jobs.train.checkpoints import find_latest, read_saved
from trainer.rollouts.records.dump import read_trajectories

FIRST_OF_STEP_3 = 2 * 16 + 2 * 2 * 8 + 1
"""Rollouts of two steps and of two evaluations under two decodings, and one more."""


TIMES = ("duration_s", "reset_s", "call_s", "verification_s")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> ShortRun:
    """A run trained without interruption."""
    run = ShortRun(tmp_path_factory.mktemp("whole"))
    asyncio.run(run.train())
    return run


def without_times(rows: tuple[OutcomeRow, ...]) -> list[OutcomeRow]:
    return [
        row.model_copy(
            update=dict.fromkeys(TIMES, 0.0) | {"rollout_id": row.rollout_id.split("/", 1)[1]}
        )
        for row in rows
    ]


def test_a_run_says_what_it_does_in_order(whole: ShortRun) -> None:
    (started,) = whole.events(TrainerStarted)
    assert (started.total_steps, started.resumed_from_step) == (4, None)
    assert (started.num_train_tasks, started.num_eval_tasks) == (60, 8)
    assert [event.step for event in whole.events(StepCompleted)] == [1, 2, 3, 4]
    assert [(event.step, event.decoding) for event in whole.events(EvalCompleted)] == [
        (step, decoding) for step in (0, 2, 4) for decoding in ("sampled", "greedy")
    ]
    assert [(e.step, e.final) for e in whole.events(CheckpointSaved)] == [(2, False), (4, True)]
    everything = whole.events(object)
    inline = ["model", "tasks", "weights", "engines", "environments"]
    starting = whole.events(TrainerStarting)
    assert [event.phase for event in starting if event.seconds is None] == inline
    ended = [(event.phase, event.seconds) for event in starting if event.seconds is not None]
    assert [(each.phase, each.seconds) for each in started.startup] == ended
    assert [phase for phase, _ in ended] == inline
    assert [event.trainer_seq for event in everything] == list(range(1, len(everything) + 1))
    assert {event.phase for event in whole.events(PhaseStarted)} == {
        "eval",
        "rollout",
        "train",
        "sync",
        "checkpoint",
    }


@pytest.mark.invariant("the policy moves towards what is rewarded")
async def test_a_policy_rewarded_for_saying_done_learns_to_say_it(tmp_path: Path) -> None:
    """Against the same run with a learning rate at which nothing is learned."""

    async def final_rate(name: str, lr: float) -> float:
        run = ShortRun(
            tmp_path / name,
            run_id="run_same",
            optimizer={"lr": lr},
            environment={"max_turns": 1},
            schedule={"total_steps": 8},
            eval=UNEVALUATED,
            checkpoints={"interval": 100},
        )
        await run.train()
        rates = [e.metrics["reward/avg_pass_at_1"] for e in run.events(StepCompleted)]
        return fmean(rates[-3:])

    frozen, trained = await final_rate("frozen", 1e-9), await final_rate("trained", 0.01)
    assert trained > frozen + 0.25


def test_a_step_reports_under_the_names_of_the_field(whole: ShortRun) -> None:
    metrics = whole.events(StepCompleted)[0].metrics
    expected = {
        "reward/avg_pass_at_4",
        "reward/avg_raw_reward",
        "reward/booking/pass_at_4",
        "reward/booking/variance_per_prompt",
        "reward/booking/signal_ratio",
        "environment/booking/avg_turns",
        "generate/avg_num_tokens",
        "policy/grad_norm",
        "policy/canary_logprobs_abs_diff_mean",
        "timing/step",
        "timing/generate",
        "timing/policy_train",
        "timing/sync_weights",
        "trainer/global_step",
        "trainer/tokens_per_second",
    }
    assert expected <= metrics.keys()
    after_eval = whole.events(StepCompleted)[2].metrics
    assert {"timing/eval", "timing/save_checkpoints"} <= after_eval.keys()


def test_every_row_points_at_its_line_in_the_store(whole: ShortRun, tmp_path: Path) -> None:
    for event in (whole.events(StepCompleted)[0], whole.events(EvalCompleted)[0]):
        row = event.outcomes[-1]
        key = f"runs/{whole.run_id}/attempt-1/{row.trajectory}"
        whole.store.get_file(key, tmp_path / "t.gz")
        assert read_trajectories(tmp_path / "t.gz")[row.trajectory_line]["rollout_id"] == (
            row.rollout_id
        )


def test_every_task_of_a_step_has_all_its_samples(whole: ShortRun) -> None:
    for event in whole.events(StepCompleted):
        rows = event.outcomes
        assert len(rows) == 4 * 4
        assert len({row.rollout_id for row in rows}) == len(rows)


def test_at_the_end_every_checkpoint_is_in_the_store_and_no_copy_is_left(whole: ShortRun) -> None:
    keys = [f"runs/{whole.run_id}/checkpoints/global_step_{n}/attempt-1" for n in (2, 4)]
    for key in keys:
        for file in read_saved(whole.store, key).manifest.files:
            assert whole.store.exists(f"{key}/{file.path}")
    assert list(whole.dir().run_dir.rglob("checkpoints/*")) == []


def test_plain_transformers_loads_the_exported_policy(whole: ShortRun) -> None:
    model = AutoModelForCausalLM.from_pretrained(whole.policy(4))
    weights = load_file(whole.policy(4) / "model.safetensors")
    assert all(bool((model.state_dict()[name] == weights[name]).all()) for name in weights)
    assert model.lm_head.weight is model.model.embed_tokens.weight


async def test_stopping_and_resuming_gives_the_same_run_bit_for_bit(
    whole: ShortRun, tmp_path: Path
) -> None:
    run = ShortRun(tmp_path, run_id=whole.run_id, checkpoints={"interval": 100})
    num_rollouts = 0

    def env(_: int) -> CountingEnv:
        nonlocal num_rollouts
        num_rollouts += 1
        if num_rollouts == FIRST_OF_STEP_3:
            run.stop.request_stop()
        return CountingEnv(goal=0)

    provider = CountingProvider(env)
    with pytest.raises(StopRequested):
        await run.finish(run.build(1, provider=provider))
    assert all(env.num_closed == 1 for env in provider.envs)
    key = find_latest(run.store, run.run_id)
    assert key == f"runs/{run.run_id}/checkpoints/global_step_2/attempt-1"

    await run.train(2, resume_from=key)
    assert run.events(TrainerStarted, 2)[0].resumed_from_step == 2
    assert [event.step for event in run.events(StepCompleted, 2)] == [3, 4]
    assert [event.step for event in run.events(EvalCompleted, 2)] == [4, 4]
    for there, here in zip(
        whole.events(StepCompleted)[2:], run.events(StepCompleted, 2), strict=True
    ):
        assert without_times(there.outcomes) == without_times(here.outcomes)
    expected = load_file(whole.policy(4) / "model.safetensors")
    found = load_file(run.policy(4, 2) / "model.safetensors")
    assert expected.keys() == found.keys()
    assert all(bool((expected[name] == found[name]).all()) for name in expected)
    parent = read_saved(run.store, f"runs/{run.run_id}/checkpoints/global_step_4/attempt-2")
    assert (parent.manifest.parent, parent.manifest.final) == (key, True)


async def test_another_run_goes_on_from_a_checkpoint_and_takes_its_own_baseline(
    whole: ShortRun, tmp_path: Path
) -> None:
    run = ShortRun(tmp_path, run_id="run_child", eval={"interval": 0})
    run.store = whole.store
    key = f"runs/{whole.run_id}/checkpoints/global_step_2/attempt-1"
    await run.train(resume_from=key)
    assert [event.step for event in run.events(StepCompleted)] == [3, 4]
    assert [event.step for event in run.events(EvalCompleted)] == [2, 2, 4, 4]


async def test_a_restarted_order_draws_other_tasks_under_the_weights_of_the_checkpoint(
    whole: ShortRun, tmp_path: Path
) -> None:
    """More tasks, a larger batch and a lower rate; without `restart` the trainer refuses."""
    key = f"runs/{whole.run_id}/checkpoints/global_step_2/attempt-1"
    source = {"run_id": "run_0123456789", "step": 2, "attempt": 1}
    sections = {
        "data": {"train_tasks_per_env": 50},
        "schedule": {"train_batch_size": 6},
        "optimizer": {"lr": 0.002},
        "checkpoints": {"interval": 1},
        "eval": UNEVALUATED,
    }
    run = ShortRun(
        tmp_path,
        "run_larger",
        **sections,
        lineage={"resumed_from": source, "data_order": "restart"},
    )
    run.store = whole.store
    await run.train(resume_from=key)
    assert run.events(TrainerStarted)[0].num_train_tasks == 100
    steps = run.events(StepCompleted)
    assert [event.step for event in steps] == [3, 4]
    assert {len(event.outcomes) for event in steps} == {24}
    assert {event.metrics["policy/policy_lr"] for event in steps} == {0.002}
    # Its own checkpoint continues its own order: the step repeats.
    own = f"runs/{run.run_id}/checkpoints/global_step_3/attempt-1"
    await run.train(2, resume_from=own)
    (again,) = run.events(StepCompleted, 2)
    assert without_times(again.outcomes) == without_times(steps[1].outcomes)

    refused = ShortRun(tmp_path, "run_refused", data={"train_tasks_per_env": 50})
    refused.store = whole.store
    with pytest.raises(CheckpointError, match="another set of tasks"):
        refused.build(resume_from=key)


async def test_a_checkpoint_beyond_the_last_step_is_refused(
    whole: ShortRun, tmp_path: Path
) -> None:
    run = ShortRun(tmp_path, schedule={"total_steps": 1})
    run.store = whole.store
    with pytest.raises(CheckpointError, match="beyond"):
        run.build(resume_from=f"runs/{whole.run_id}/checkpoints/global_step_2/attempt-1")


async def test_an_outage_ends_the_run_after_saving_the_last_step(tmp_path: Path) -> None:
    """The 16 rollouts of the first step work, then no environment answers."""
    provider = CountingProvider(lambda number: CountingEnv(goal=0, unreachable=number >= 16))
    run = ShortRun(
        tmp_path,
        eval=UNEVALUATED,
        environment={"max_infra_retries": 0},
        checkpoints={"interval": 100},
    )
    with pytest.raises(EnvironmentOutage, match="100%"):
        await run.train(provider=provider)
    assert [event.step for event in run.events(StepCompleted)] == [1]
    assert [event.step for event in run.events(CheckpointSaved)] == [1]
    degraded = run.events(EnvDegraded)
    assert {event.env_key for event in degraded} == {"booking", "github"}
    assert degraded[0].reasons == {"unexpected_ConnectionError": 8}


async def test_a_step_in_which_all_score_alike_changes_nothing_and_says_so(
    tmp_path: Path,
) -> None:
    run = ShortRun(tmp_path, schedule={"total_steps": 1}, eval=UNEVALUATED)
    before = load_file(run.root / "model" / "model.safetensors")
    trainer = run.build(provider=CountingProvider(lambda _: CountingEnv(goal=7)))
    assert trainer.summary() == "trained 1 step"
    await run.finish(trainer)
    after = load_file(run.policy(1) / "model.safetensors")
    assert [event.code for event in run.events(RunWarning)] == ["no_signal"]
    assert all(bool((before[name] == after[name]).all()) for name in before)


async def test_interval_evaluations_may_use_fewer_decodings(tmp_path: Path) -> None:
    run = ShortRun(
        tmp_path,
        schedule={"total_steps": 2},
        eval={"interval": 1, "interval_decodings": ["greedy"]},
    )
    await run.train()
    assert [(event.step, event.decoding) for event in run.events(EvalCompleted)] == [
        (0, "sampled"),
        (0, "greedy"),
        (1, "greedy"),
        (2, "sampled"),
        (2, "greedy"),
    ]
