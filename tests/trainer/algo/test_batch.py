"""What reaches the learner, and in which mini-batch."""

from __future__ import annotations

import pytest

from tests.trainer.tiny import group
from trainer.algo.batch import BatchPlan, build_batch
from trainer.algo.sequences import Batch
from trainer.contract.algorithm import AlgorithmSpec
from trainer.types import Group


def build(groups: list[Group], *, mini: int = 2, seed: int = 0, shuffle: bool = False) -> Batch:
    return build_batch(
        groups,
        algorithm=AlgorithmSpec(shuffle_rewards=shuffle),
        plan=BatchPlan(
            mini_batch_size=mini, temperatures={"booking": 1.0, "reddit": 0.6}, seed=seed
        ),
    )


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
    assert build(groups) != build(groups, shuffle=True)


def test_the_tokens_are_those_of_the_trajectory() -> None:
    made = group([1.0, 0.0])
    item = max(build([made]).mini_batches[0], key=lambda sequence: sequence.advantage)
    source = made.trajectories[0]
    assert item.token_ids == source.token_ids
    assert item.action_mask == source.action_mask
    assert item.logprobs == source.logprobs
    assert item.prompt_length == source.prompt_length
    assert item.num_actions == 2
