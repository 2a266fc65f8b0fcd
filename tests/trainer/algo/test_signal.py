"""What the rollouts had to teach, by hand."""

from __future__ import annotations

import pytest

from hillclimb.protocol.outcomes import StopReason
from hillclimb.spec.training.algorithm import AlgorithmSpec
from tests.trainer.fixtures.tiny import group, task, trajectory
from trainer.algo.batch import BatchPlan, build_batch, score_groups
from trainer.algo.sequences import Batch
from trainer.algo.signal import why_nothing_is_learned
from trainer.types import Group

PLAN = BatchPlan(mini_batch_size=2, temperatures={"booking": 1.0}, seed=0)


def metrics(groups: list[Group], **algorithm: bool) -> dict[str, float]:
    spec = AlgorithmSpec(grpo_norm_by_std=False, **algorithm)
    return dict(build_batch(score_groups(groups, spec, seed=0), spec, PLAN).metrics)


def test_advantages_are_weighed_by_tokens_and_scores_are_not() -> None:
    of = task()
    long = trajectory(1.0, of=of, response=(5,) * 6)
    short = trajectory(0.0, of=of, sample_index=1, response=(5, 6))
    found = metrics([Group(task=of, trajectories=(long, short)), group([1.0, 1.0], key="b")])
    # advantages +0.5 over 6 tokens, -0.5 over 2, and 0 over the 4 of the group without contrast
    assert found["loss/avg_raw_advantages"] == pytest.approx((3.0 - 1.0) / 12)
    assert found["loss/avg_raw_advantages_abs"] == pytest.approx(4.0 / 12)
    assert found["loss/avg_final_rewards"] == pytest.approx(0.75)
    assert found["policy/num_sequences"] == 2.0


def test_rollouts_without_a_grade_count_for_nothing() -> None:
    assert metrics([group([1.0, 0.0])]) == metrics([group([1.0, 0.0, None])])


def test_nothing_graded_has_no_means() -> None:
    assert metrics([group([None, None])]) == {
        "rollouts/truncated_overlong": 0.0,
        "policy/num_sequences": 0.0,
    }


def test_the_scores_are_those_that_are_learned_from() -> None:
    groups = [group([1.0, 1.0, 0.0, 0.0], key=f"task-{index}") for index in range(3)]
    plain, dealt = metrics(groups), metrics(groups, shuffle_rewards=True)
    assert plain["loss/avg_final_rewards"] == dealt["loss/avg_final_rewards"] == 0.5
    assert plain["loss/avg_raw_advantages_abs"] != dealt["loss/avg_raw_advantages_abs"]


@pytest.mark.parametrize(("use_kl_loss", "num_filtered"), [(False, 0.0), (True, 1.0)])
def test_what_the_divergence_would_have_held_counts_as_filtered(
    use_kl_loss: bool, num_filtered: float
) -> None:
    of = task()
    cut_off, stops = StopReason.MAX_GENERATE_LENGTH, StopReason.DONE
    rollouts = (
        trajectory(0.5 * at, of=of, sample_index=at, stop=cut_off if at == 1 else stops)
        for at in range(3)
    )
    found = metrics(
        [Group(task=of, trajectories=tuple(rollouts))],
        use_kl_loss=use_kl_loss,
        apply_overlong_filtering=True,
    )
    assert found["loss/num_overlong_filtered"] == num_filtered
    assert found["policy/num_sequences"] == 2.0


def cut_off_where_it_scored() -> Group:
    of = task()
    stops = (StopReason.MAX_GENERATE_LENGTH, StopReason.MAX_INPUT_LENGTH)
    rollouts = (trajectory(float(at), of=of, sample_index=at, stop=stops[at]) for at in range(2))
    return Group(task=of, trajectories=tuple(rollouts))


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        ([group([1.0, 1.0]), group([0.0, 0.0, None])], "the rollouts of every group scored alike"),
        ([group([1.0, None]), group([None, None])], "no group has two graded rollouts"),
        ([cut_off_where_it_scored()], "a length limit cut off all 2 rollouts that had some"),
    ],
)
def test_a_step_without_anything_to_learn_says_why(groups: list[Group], sentence: str) -> None:
    spec = AlgorithmSpec(apply_overlong_filtering=True)
    batch = build_batch(score_groups(groups, spec, seed=0), spec, PLAN)
    assert batch.num_sequences == 0
    assert why_nothing_is_learned(groups, batch).startswith(sentence)


def test_without_the_filter_nothing_was_filtered() -> None:
    alike = [group([1.0, 1.0])]
    assert why_nothing_is_learned(alike, Batch(mini_batches=())) == (
        "the rollouts of every group scored alike: nothing was learned in this step"
    )
