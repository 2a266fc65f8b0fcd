"""The compute of a run: every token in one report, rejected rollouts by cause."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from hillclimb.environment.base import Grade
from hillclimb.hardware.model.shapes import ModelShape
from hillclimb.hardware.model.speed.flops import forward_flops
from hillclimb.protocol.events import ComputeSpent, EvalCompleted, StepAbandoned, StepCompleted
from hillclimb.protocol.outcomes import OutcomeRow, OutcomeStatus, StopReason
from hillclimb.spec.training.algorithm import AlgorithmSpec
from tests.fixtures.factories import outcome
from tests.trainer.fixtures.scripted import CountingEnv, CountingProvider
from tests.trainer.fixtures.short_run import ShortRun
from tests.trainer.fixtures.tiny import group
from trainer.algo.batch import BatchPlan, build_batch, learned_rollouts, score_groups
from trainer.algo.sequences import Batch
from trainer.attempt.stop_signal import StopRequested
from trainer.engines.base import EngineStats, attended_pairs
from trainer.jobs.rollout_service import RolloutResults
from trainer.jobs.train.compute import ComputeMeter, read_shape
from trainer.rollouts.request import Rollout
from trainer.types import Group

SHAPE = ModelShape(
    num_layers=1,
    hidden_size=4,
    intermediate_size=8,
    num_heads=2,
    num_kv_heads=1,
    head_dim=2,
    vocab_size=10,
    is_tied=True,
)
STATS = EngineStats(
    num_sampled_tokens=100,
    num_prefill_tokens=300,
    num_cached_tokens=50,
    busy_s=1.0,
    num_attended_pairs=4000,
)
REWARDS = ([1.0, 0.0, None], [1.0, 1.0, 1.0], [0.0, 0.0, None])
"""A group that teaches with two rollouts, one without contrast, and one that was replaced."""


def meter(*readings: EngineStats, is_overlapped: bool = False) -> ComputeMeter:
    """A meter whose engines are at these counters, one after the other."""
    left = list(readings)
    return ComputeMeter(
        read=lambda: left.pop(0) if len(left) > 1 else left[0],
        shape=SHAPE,
        is_overlapped=is_overlapped,
    )


def results(groups: list[Group]) -> RolloutResults:
    rollouts = tuple(
        tuple(
            Rollout(trajectory=each, num_turns=1, duration_s=0.0, infra_errors=())
            for each in one.trajectories
        )
        for one in groups
    )
    rows = tuple(
        outcome(
            each.trajectory.rollout_id,
            each.trajectory.reward,
            status=each.trajectory.outcome.status,
            reason=each.trajectory.outcome.reason,
            num_infra_retries=0 if each.trajectory.reward is not None else 2,
        )
        for one in rollouts
        for each in one
    )
    return RolloutResults(groups=rollouts, rows=rows)


def a_step(found: ComputeMeter, metrics: dict[str, float]) -> ComputeSpent:
    groups = [group(rewards, key=f"booking-{i}") for i, rewards in enumerate(REWARDS)]
    algorithm = AlgorithmSpec()
    scored = score_groups(groups[:2], algorithm, seed=1)
    plan = BatchPlan(mini_batch_size=2, temperatures={"booking": 1.0}, seed=1)
    result = results(groups)
    return found.of_step(
        result,
        result.groups[2:],
        learned=learned_rollouts(scored, algorithm),
        batch=build_batch(scored, algorithm, plan),
        metrics=metrics,
    )


def test_a_steps_rollouts_are_counted_by_what_became_of_them() -> None:
    spent = a_step(meter(STATS), {"policy/flops": 7e6})
    assert (spent.num_rollouts, spent.num_learned) == (9, 2)
    # The replaced group counts as replaced, its rollout without a grade included.
    assert (spent.num_resampled, spent.num_ungraded) == (3, 1)
    assert spent.num_lost_tries == 4
    assert (spent.num_sampled_tokens, spent.num_prefill_tokens) == (100, 300)
    assert spent.num_cached_tokens == 50
    lengths = [len(each.token_ids) for each in group([1.0, 0.0]).trajectories]
    assert spent.num_trained_tokens == sum(lengths)
    assert spent.train_flops == 7e6


def test_the_flops_of_rollouts_are_those_of_the_forward_pass() -> None:
    """Layer: 2 x 4 x (4 + 2) + 3 x 4 x 8 + 8 + 4 = 156 parameters, and 4 of the last norm."""
    assert SHAPE.num_parameters == 156 + 40 + 4
    spent = a_step(meter(STATS), {})
    assert spent.rollout_flops == 2 * (160 * 400 + 40 * 100) + 4 * 1 * 4 * 4000
    assert spent.train_flops is None
    unknown = ComputeMeter(read=lambda: STATS, shape=None, is_overlapped=False)
    assert a_step(unknown, {}).rollout_flops is None


def test_a_step_that_learns_nothing_trains_for_nothing() -> None:
    nothing = RolloutResults(groups=(), rows=())
    spent = meter(STATS).of_step(
        nothing, (), learned=frozenset(), batch=Batch(mini_batches=()), metrics={}
    )
    assert (spent.num_trained_tokens, spent.train_flops) == (0, 0.0)


def test_every_token_is_in_one_report() -> None:
    later = replace(STATS, num_sampled_tokens=160, num_prefill_tokens=310)
    found = meter(STATS, later)
    assert a_step(found, {}).num_sampled_tokens == 100
    second = a_step(found, {})
    assert (second.num_sampled_tokens, second.num_prefill_tokens) == (60, 10)
    assert found.remainder() is None


def test_an_evaluation_has_its_part_of_what_went_on_beside_it() -> None:
    """It drew 25 of the 100 tokens; the rest belongs to the next step."""
    rows = eval_rows(10, 15)
    found = meter(STATS, is_overlapped=True)
    evaluation = found.of_eval(rows)
    assert (evaluation.num_rollouts, evaluation.num_ungraded) == (2, 0)
    assert (evaluation.num_sampled_tokens, evaluation.num_prefill_tokens) == (25, 75)
    assert evaluation.train_flops == 0.0
    step = a_step(found, {})
    assert (step.num_sampled_tokens, step.num_prefill_tokens) == (75, 225)
    assert (step.rollout_flops or 0) + (evaluation.rollout_flops or 0) == a_step(
        meter(STATS), {}
    ).rollout_flops


def test_an_evaluation_alone_has_everything_lost_tries_included() -> None:
    unstarted = outcome(
        "late", None, status=OutcomeStatus.UNGRADED, stop_reason=StopReason.NOT_STARTED, reason="x"
    )
    spent = meter(STATS).of_eval((*eval_rows(10, 15), unstarted))
    assert (spent.num_rollouts, spent.num_sampled_tokens) == (2, 100)


def test_pairs_are_those_up_to_each_token() -> None:
    assert attended_pairs(0, 4) == 1 + 2 + 3 + 4
    assert attended_pairs(2, 4) == 3 + 4
    assert attended_pairs(4, 4) == 0


def test_a_forward_pass_is_a_third_of_training() -> None:
    """6 P per token, the head per action, 12 L W per pair: as the learner counts."""
    training = 6.0 * (160 * 30 + 40 * 20) + 12.0 * 4 * 500
    assert 3 * forward_flops(SHAPE, num_tokens=30, num_outputs=20, num_pairs=500) == training


def test_a_directory_without_a_config_has_no_shape(tmp_path: Path) -> None:
    assert read_shape(tmp_path) is None
    (tmp_path / "config.json").write_text("{}")
    assert read_shape(tmp_path) is None


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> ShortRun:
    run = ShortRun(tmp_path_factory.mktemp("whole"), schedule={"total_steps": 2})
    asyncio.run(run.train())
    return run


def test_a_runs_reports_add_up_to_the_tokens_of_its_rollouts(whole: ShortRun) -> None:
    """In this process, without retries, the engine drew exactly the tokens of the rows."""
    events = [*whole.events(StepCompleted), *whole.events(EvalCompleted)]
    for event in events:
        assert event.compute is not None
        assert event.compute.num_sampled_tokens == sum(row.num_tokens for row in event.outcomes)
        assert event.compute.num_rollouts == len(event.outcomes)
        assert (event.compute.rollout_flops or 0) > 0
    for step in whole.events(StepCompleted):
        assert step.compute is not None
        assert step.compute.train_flops == step.metrics["policy/flops"]
        learned = step.metrics["policy/num_sequences"]
        assert step.compute.num_learned == learned
    assert whole.events(StepAbandoned) == []


@pytest.mark.parametrize("during", ["train", "eval"])
async def test_what_a_stop_interrupts_is_reported_as_abandoned(tmp_path: Path, during: str) -> None:
    """The stop comes when the first rollout is graded; the others have drawn tokens too."""
    run = ShortRun(tmp_path, eval={"before_training": during == "eval", "interval": 0})

    class StoppingEnv(CountingEnv):
        async def score(self) -> Grade:
            run.stop.request_stop()
            return await super().score()

    trainer = run.build(1, provider=CountingProvider(lambda _: StoppingEnv(goal=0)))
    with pytest.raises(StopRequested):
        await run.finish(trainer)
    (abandoned,) = run.events(StepAbandoned)
    assert run.events(StepCompleted) == []
    assert (abandoned.step, abandoned.during) == (int(during == "train"), during)
    assert abandoned.compute.num_rollouts == 0
    assert abandoned.compute.num_sampled_tokens > 0
    assert abandoned.compute.train_flops == 0.0


def eval_rows(*tokens: int) -> tuple[OutcomeRow, ...]:
    return tuple(outcome(str(n), split="eval", decoding="sampled", num_tokens=n) for n in tokens)
