"""What reaches the learner, and in which mini-batch."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from hillclimb.protocol.outcomes import StopReason
from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.stats.pass_rate import signal_ratio, variance_per_prompt
from tests.trainer.fixtures.tiny import group, task, trajectory
from trainer.algo import batch
from trainer.algo.batch import BatchPlan, build_batch, learned_rollouts, score_groups
from trainer.algo.dynamic import has_reward_spread
from trainer.algo.loss.loss import VARIANTS, Variant
from trainer.algo.loss.reduction import token_weights
from trainer.algo.overlong import is_overlong
from trainer.algo.sequences import Batch, LossCounts
from trainer.algo.streams import Stream
from trainer.types import Group


def build(groups: list[Group], *, mini: int = 2, seed: int = 0, **algorithm: Any) -> Batch:
    spec = AlgorithmSpec(**algorithm)
    plan = BatchPlan(mini_batch_size=mini, temperatures={"booking": 1.0, "reddit": 0.6}, seed=seed)
    return build_batch(score_groups(groups, spec, seed=seed), spec, plan)


def test_faults_and_constant_groups_never_become_sequences() -> None:
    groups = [
        group([1.0, 0.0, None], key="a"),
        group([1.0, 1.0, 1.0], key="b"),
        group([None, None, 0.0], key="c"),
    ]
    batch = build(groups, mini=3)
    assert batch.num_sequences == 2
    assert sorted(item.advantage for item in batch.mini_batches[0]) == pytest.approx(
        [-(0.5**0.5), 0.5**0.5], abs=1e-5
    )


def test_nothing_to_learn_gives_an_empty_batch() -> None:
    assert build([group([0.0, 0.0]), group([1.0, 1.0])]).mini_batches == ()


def test_a_rollout_at_the_group_mean_is_dropped() -> None:
    assert build([group([0.0, 0.5, 1.0])]).num_sequences == 2


def test_groups_stay_whole_and_fill_mini_batches_by_prompt() -> None:
    groups = [group([1.0, 0.0], key=f"task-{index}") for index in range(6)]
    batch = build(groups, mini=2)
    assert [len(mini_batch) for mini_batch in batch.mini_batches] == [4, 4, 4]
    for mini_batch in batch.mini_batches:
        assert sum(item.advantage for item in mini_batch) == pytest.approx(0.0, abs=1e-9)


def test_the_seed_decides_which_prompts_share_a_mini_batch() -> None:
    groups = [
        group([float(index % 2), 1.0 - index % 2, 0.25 * index], key=f"task-{index}")
        for index in range(4)
    ]
    assert build(groups, seed=1) == build(groups, seed=1)
    assert len({str(build(groups, seed=seed)) for seed in range(8)}) > 1


def test_each_environment_brings_its_own_temperature() -> None:
    batch = build([group([1.0, 0.0], env="reddit", key="r")])
    assert {item.temperature for item in batch.mini_batches[0]} == {0.6}


def test_shuffled_rewards_train_on_other_advantages() -> None:
    groups = [group([1.0, 1.0, 0.0, 0.0], key=f"task-{index}") for index in range(3)]
    assert build(groups) != build(groups, shuffle_rewards=True)


def test_the_seed_decides_who_gets_whose_grade() -> None:
    groups = [group([0.1 * index, 1.0, 0.0], key=f"task-{index}") for index in range(8)]
    spec = AlgorithmSpec(shuffle_rewards=True)

    def grades(seed: int) -> list[tuple[float | None, ...]]:
        return [each.rewards_G for each in score_groups(groups, spec, seed=seed)]

    assert grades(1) == grades(1)
    assert grades(1) != grades(2)
    dealt = [grade for of_group in grades(1) for grade in of_group if grade is not None]
    assert sorted(dealt) == sorted([0.1 * index for index in range(8)] + [0.0, 1.0] * 8)


def test_the_tokens_are_those_of_the_trajectory() -> None:
    made = group([1.0, 0.0])
    item = max(build([made]).mini_batches[0], key=lambda sequence: sequence.advantage)
    source = made.trajectories[0]
    assert item.token_ids == source.token_ids
    assert item.action_mask == source.action_mask
    assert item.logprobs == source.logprobs
    assert item.prompt_length == source.prompt_length
    assert item.num_actions == 2
    assert item.weight_versions == source.weight_versions != ()


def cut_off(key: str = "booking-1") -> Group:
    """Scores 1, 0, 0; a length limit ended the second rollout and the turn limit the third."""
    of = task(key)
    stops = (StopReason.DONE, StopReason.MAX_GENERATE_LENGTH, StopReason.MAX_TURNS)
    return Group(
        task=of,
        trajectories=tuple(
            trajectory(reward, of=of, sample_index=index, response=(10 + index, 7), stop=stop)
            for index, (reward, stop) in enumerate(zip((1.0, 0.0, 0.0), stops, strict=True))
        ),
    )


def test_an_overlong_rollout_counts_for_the_baseline_but_not_for_the_loss() -> None:
    kept = build([cut_off()])
    filtered = build([cut_off()], apply_overlong_filtering=True)
    (before,), (after,) = kept.mini_batches, filtered.mini_batches
    assert [item.token_ids[4] for item in before] == [10, 11, 12]
    assert [item.token_ids[4] for item in after] == [10, 12]
    assert [item.advantage for item in after] == [before[0].advantage, before[2].advantage]


@pytest.mark.parametrize(("filters", "learned"), [(False, {0, 1, 2}), (True, {0, 2})])
def test_a_rollout_is_learned_from_if_it_has_a_sequence(filters: bool, learned: set[int]) -> None:
    spec, made = AlgorithmSpec(apply_overlong_filtering=filters), cut_off()
    found = learned_rollouts(score_groups([made], spec, seed=0), spec)
    assert found == {made.trajectories[index].rollout_id for index in learned}
    batch = build([made], apply_overlong_filtering=filters)
    assert found == {item.rollout_id for item in batch.mini_batches[0]}


@pytest.mark.parametrize("limit", [StopReason.MAX_GENERATE_LENGTH, StopReason.MAX_INPUT_LENGTH])
def test_only_limits_in_tokens_are_overlong(limit: StopReason) -> None:
    overlong = {stop for stop in StopReason if is_overlong(trajectory(0.0, of=task(), stop=stop))}
    assert limit in overlong
    assert len(overlong) == 2


def test_overlong_rollouts_are_counted_and_those_filtered_out_too() -> None:
    groups = [cut_off("a"), cut_off("b"), group([1.0, 0.0], key="c")]
    assert build(groups).metrics["rollouts/truncated_overlong"] == 2.0
    assert "loss/num_overlong_filtered" not in build(groups).metrics
    filtered = build(groups, apply_overlong_filtering=True).metrics
    assert filtered["loss/num_overlong_filtered"] == 2.0
    assert filtered["policy/num_sequences"] == 6.0


def test_with_a_divergence_a_rollout_at_the_mean_still_has_a_gradient() -> None:
    mixed, alike = group([0.0, 0.5, 1.0, None]), group([1.0, 1.0], key="b")
    assert build([mixed, alike], mini=2).num_sequences == 2
    assert build([mixed, alike], mini=2, use_kl_loss=True).num_sequences == 3


def test_a_group_of_two_prompts_is_a_defect() -> None:
    of = task()
    first, second = trajectory(1.0, of=of), trajectory(0.0, of=of, sample_index=1)
    other = dataclasses.replace(second, token_ids=(9, *second.token_ids[1:]))
    with pytest.raises(AssertionError, match="2 different prompts"):
        build([Group(task=of, trajectories=(first, other))])


def test_a_rollout_that_never_began_is_no_second_prompt() -> None:
    of = task()
    empty = dataclasses.replace(
        trajectory(None, of=of, sample_index=2),
        token_ids=(), action_mask=(), logprobs=(), weight_versions=(), prompt_length=0,
    )  # fmt: skip
    began = tuple(trajectory(r, of=of, sample_index=i) for i, r in enumerate((1.0, 0.0)))
    assert build([Group(task=of, trajectories=(*began, empty))]).num_sequences == 2


def test_what_has_no_grade_may_have_been_asked_something_else() -> None:
    of = task()
    began = tuple(trajectory(r, of=of, sample_index=i) for i, r in enumerate((1.0, 0.0)))
    odd = trajectory(None, of=of, sample_index=2)
    odd = dataclasses.replace(odd, token_ids=(9, *odd.token_ids[1:]))
    assert build([Group(task=of, trajectories=(*began, odd))]).num_sequences == 2


def test_turns_of_a_prompt_share_its_mini_batch() -> None:
    """Ten prompts of two-turn rollouts: as many optimizer steps as with whole rollouts."""
    groups = [two_turns(group([1.0, 0.0], key=f"task-{index}")) for index in range(10)]
    whole, split = build(groups), build(groups, step_wise=True)
    assert len(whole.mini_batches) == len(split.mini_batches) == 5
    assert [len(part) for part in whole.mini_batches] == [4] * 5
    assert [len(part) for part in split.mini_batches] == [8] * 5


def two_turns(made: Group) -> Group:
    """The same rollouts with an observation of one token and a second turn of two."""
    return Group(
        task=made.task,
        trajectories=tuple(
            dataclasses.replace(
                each,
                token_ids=(*each.token_ids, 30, 31, 32),
                action_mask=(*each.action_mask, False, True, True),
                logprobs=(*each.logprobs, 0.0, -0.5, -0.6),
                weight_versions=(*each.weight_versions, -1, 0, 0),
            )
            for each in made.trajectories
        ),
    )


@pytest.mark.parametrize("rewards", [[0.0, 0.5, 1.0], [0.1, 0.2, 0.3], [0.2, 0.4, 0.6]])
def test_what_a_token_weighs_does_not_depend_on_rounding(rewards: list[float | None]) -> None:
    spec = AlgorithmSpec()
    batch = build([group(rewards)])
    # The rollout at the mean has no gradient: it is no sequence, nor in the denominator.
    assert batch.num_sequences == 2
    weights = token_weights(batch.mini_batches[0], spec, max_sequence_length=10)
    assert weights == [0.25, 0.25]


def test_scores_that_differ_by_rounding_teach_nothing_anywhere() -> None:
    rewards: list[float | None] = [0.1 + 0.2, 0.3, 0.3]
    assert build([group(rewards)]).num_sequences == 0
    assert not has_reward_spread(rewards)
    assert signal_ratio([[0.1 + 0.2, 0.3, 0.3]]) == 0.0
    assert variance_per_prompt([[0.1 + 0.2, 0.3, 0.3]]) == 0.0


def denominators(**algorithm: Any) -> set[float]:
    """1 over what a token weighs, of a mini-batch in which one of three groups teaches something.

    Three rollouts of the second group are graded; the last one has no grade and counts nowhere.
    """
    groups = [group([1.0, 0.0], key="a"), group([1.0, 1.0, 1.0, None], key="b")]
    spec = AlgorithmSpec.model_validate(algorithm)
    (mini_batch,) = build(groups, **algorithm).mini_batches
    return {round(1.0 / each) for each in token_weights(mini_batch, spec, max_sequence_length=10)}


@pytest.mark.parametrize(
    ("reduction", "by_gradient", "by_batch"),
    [
        # Each rollout of the fixture draws two tokens.
        ("token_mean", 2 * 2, 5 * 2),
        ("sequence_mean", 2 * 2, 5 * 2),
        ("seq_mean_token_sum_norm", 2 * 10, 5 * 10),
    ],
)
def test_a_loss_is_divided_by_what_teaches_or_by_all_that_is_graded(
    reduction: str, by_gradient: int, by_batch: int
) -> None:
    assert denominators(loss_reduction=reduction) == {by_gradient}
    assert denominators(loss_reduction=reduction, normalize_by="batch") == {by_batch}


def test_turns_of_rollouts_without_a_gradient_count_as_sequences_too() -> None:
    learned, silent = (two_turns(group(rewards)) for rewards in ([1.0, 0.0], [1.0, 1.0]))
    spec = {"step_wise": True, "loss_reduction": "sequence_mean", "normalize_by": "batch"}
    (mini_batch,) = build([learned, silent], **spec).mini_batches
    assert {each.loss_counts for each in mini_batch} == {LossCounts(8, 16)}


def test_rollouts_that_the_filter_masks_are_in_no_denominator() -> None:
    cut = group([1.0, 1.0], key="b")
    cut = dataclasses.replace(
        cut,
        trajectories=tuple(
            dataclasses.replace(each, stop_reason=StopReason.MAX_GENERATE_LENGTH)
            for each in cut.trajectories
        ),
    )
    counts = [
        build([group([1.0, 0.0], key="a"), cut], normalize_by="batch", **more).mini_batches[0][0]
        for more in ({}, {"apply_overlong_filtering": True})
    ]
    assert [each.loss_counts for each in counts] == [LossCounts(4, 8), LossCounts(2, 4)]


def test_routes_and_what_a_loss_reads_besides_come_from_the_rollout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = group([1.0, 0.0])
    routes = [np.full((6, 2, 1), number, dtype=np.uint8) for number in range(2)]
    routed = tuple(
        dataclasses.replace(each, routes=own)
        for each, own in zip(made.trajectories, routes, strict=True)
    )
    lengths = Stream(name="lengths", alignment="sequence", dtype="int64")
    places = Stream(name="places", alignment="action")
    variant = Variant(
        surrogate=VARIANTS["regular"].surrogate,
        streams={
            lengths: lambda rollout, _: [len(rollout.token_ids)],
            places: lambda rollout, scored: [
                float(scored.group.trajectories.index(rollout))
            ] * len(rollout.token_ids),
        },
    )  # fmt: skip
    monkeypatch.setattr(batch, "variant_of", lambda _: variant)
    ((first, second),) = build([Group(task=made.task, trajectories=routed)]).mini_batches
    assert first.routes is routes[0]
    assert second.routes is routes[1]
    for number, sequence in enumerate((first, second)):
        assert sequence.streams[lengths].tolist() == [6]
        assert sequence.streams[places].tolist() == [float(number)] * 6


def test_a_rollout_of_several_turns_is_one_sequence_unless_it_is_trained_by_turns() -> None:
    learned = two_turns(group([1.0, 0.0]))
    (whole,) = build([learned], normalize_by="batch").mini_batches
    assert {each.loss_counts for each in whole} == {LossCounts(2, 8)}
