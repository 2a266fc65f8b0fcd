"""Advantages against hand-computed numbers and the standard library's statistics."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.algo.advantage import STD_EPS, group_advantages, shuffled_rewards

# In millionths: what differs by less than 1e-9 is equal
# (`tests/hillclimb/stats/test_reward_spread.py`).
SCORES = st.floats(0.0, 1.0).map(lambda score: round(score, 6))
REWARDS = st.lists(st.none() | SCORES, min_size=1, max_size=12)


def test_one_success_in_four_by_hand() -> None:
    # mean 1/4; unbiased variance (9/16 + 3 * 1/16) / 3 = 1/4; deviation 1/2
    assert group_advantages([1.0, 0.0, 0.0, 0.0], norm_by_std=True) == pytest.approx(
        (1.5, -0.5, -0.5, -0.5), abs=1e-5
    )


def test_dr_grpo_is_reward_minus_mean() -> None:
    found = group_advantages([1.0, 0.0, 0.0, 0.0], norm_by_std=False)
    assert found == (0.75, -0.25, -0.25, -0.25)


def test_a_missing_grade_is_no_zero() -> None:
    with_fault = group_advantages([1.0, None, 0.0, 0.0], norm_by_std=True)
    without = group_advantages([1.0, 0.0, 0.0], norm_by_std=True)
    assert with_fault == (without[0], 0.0, without[1], without[2])


@pytest.mark.parametrize(
    "rewards", [[1.0, 1.0, 1.0], [0.0, 0.0], [1.0], [1.0, None, None], [None, None], []]
)
def test_a_group_without_contrast_teaches_nothing(rewards: list[float | None]) -> None:
    assert group_advantages(rewards, norm_by_std=True) == (0.0,) * len(rewards)


@given(REWARDS, st.booleans())
def test_advantages_equal_the_slow_reference(rewards: list[float | None], norm: bool) -> None:
    found = group_advantages(rewards, norm_by_std=norm)
    graded = [reward for reward in rewards if reward is not None]
    for reward, advantage in zip(rewards, found, strict=True):
        if reward is None or len(set(graded)) < 2:
            assert advantage == 0.0
            continue
        scale = statistics.stdev(graded) + STD_EPS if norm else 1.0
        deviation = reward - statistics.fmean(graded)
        assert advantage == pytest.approx(deviation / scale, rel=1e-9, abs=1e-9)
        assert (advantage == 0.0) == (abs(deviation) < 1e-9)


@given(st.lists(REWARDS, min_size=1, max_size=5), st.integers(0, 2**31))
def test_shuffling_keeps_every_grade_and_every_gap(
    rewards: list[list[float | None]], seed: int
) -> None:
    dealt = shuffled_rewards(rewards, seed=seed)
    flat = [reward for group in rewards for reward in group]
    flat_dealt = [reward for group in dealt for reward in group]
    assert [len(group) for group in dealt] == [len(group) for group in rewards]
    assert [reward is None for reward in flat_dealt] == [reward is None for reward in flat]
    assert sorted(r for r in flat_dealt if r is not None) == sorted(
        r for r in flat if r is not None
    )
    assert dealt == shuffled_rewards(rewards, seed=seed)


def test_shuffling_moves_grades_between_groups() -> None:
    rewards = [[1.0] * 8, [0.0] * 8]
    assert shuffled_rewards(rewards, seed=0) != [tuple(group) for group in rewards]
