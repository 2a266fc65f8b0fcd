"""Prompts per environment: whole numbers that follow the weights, with a floor and a ceiling."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from trainer.errors import CheckpointError
from trainer.inputs.tasks.shares import Shares

PLENTY = 10**6


def counts_of(shares: Shares, steps: int) -> list[list[int]]:
    return [shares.next_counts() for _ in range(steps)]


def sums(counts: list[list[int]]) -> list[int]:
    return [sum(column) for column in zip(*counts, strict=True)]


def test_equal_weights_take_even_turns() -> None:
    shares = Shares([1, 1, 1], prompts=5, sizes=[PLENTY] * 3, minimum=0)
    assert counts_of(shares, 4) == [[2, 2, 1], [2, 1, 2], [1, 2, 2], [2, 2, 1]]


def test_weights_are_met_exactly_over_every_full_round() -> None:
    weights = [10, 20, 70]
    shares = Shares(weights, prompts=3, sizes=[PLENTY] * 3, minimum=0)
    for _ in range(5):
        assert sums(counts_of(shares, 100)) == [30, 60, 210]


def test_a_tiny_environment_is_drawn_at_a_regular_interval() -> None:
    shares = Shares([1, 399], prompts=4, sizes=[PLENTY] * 2, minimum=0)
    at = [step for step, count in enumerate(counts_of(shares, 1000)) if count[0]]
    assert {later - earlier for earlier, later in pairwise(at)} == {100}


@given(
    weights=st.lists(st.integers(1, 10_000), min_size=1, max_size=30),
    prompts=st.integers(1, 60),
)
@settings(max_examples=60, deadline=None)
def test_running_sums_stay_within_a_few_prompts_of_the_weights(
    weights: list[int], prompts: int
) -> None:
    shares = Shares(weights, prompts=prompts, sizes=[PLENTY] * len(weights), minimum=0)
    given_out = [0] * len(weights)
    for step in range(1, 61):
        counts = shares.next_counts()
        assert sum(counts) == prompts
        given_out = [have + more for have, more in zip(given_out, counts, strict=True)]
        for have, weight in zip(given_out, weights, strict=True):
            due = Fraction(step * prompts * weight, sum(weights))
            assert -1 < due - have < 4


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_every_step_respects_minimum_and_sizes(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=8))
    prompts = data.draw(st.integers(1, sum(sizes)))
    weights = data.draw(st.lists(st.integers(1, 99), min_size=len(sizes), max_size=len(sizes)))
    minimum = data.draw(st.integers(0, 4))
    shares = Shares(weights, prompts=prompts, sizes=sizes, minimum=minimum)
    least = [min(minimum, size) for size in sizes]
    for counts in counts_of(shares, 30):
        assert sum(counts) == prompts
        assert all(count <= size for count, size in zip(counts, sizes, strict=True))
        if sum(least) <= prompts:
            assert all(count >= low for count, low in zip(counts, least, strict=True))


def test_the_minimum_comes_first_and_the_rest_goes_by_weight() -> None:
    shares = Shares([1, 1, 8], prompts=13, sizes=[PLENTY] * 3, minimum=1)
    assert counts_of(shares, 2) == [[2, 2, 9], [2, 2, 9]]


def test_environments_take_turns_where_the_minimum_does_not_fit() -> None:
    shares = Shares([5, 1, 1, 1, 1], prompts=3, sizes=[PLENTY] * 5, minimum=1)
    counts = counts_of(shares, 5)
    assert counts[:2] == [[1, 1, 1, 0, 0], [1, 0, 0, 1, 1]]
    assert sums(counts) == [3] * 5


def test_what_a_small_environment_cannot_give_goes_to_the_others_by_weight() -> None:
    shares = Shares([90, 5, 5], prompts=10, sizes=[2, PLENTY, PLENTY], minimum=0)
    assert counts_of(shares, 3) == [[2, 4, 4]] * 3


def test_what_a_small_environment_could_not_give_is_not_owed_later() -> None:
    shares = Shares([80, 20], prompts=10, sizes=[4, PLENTY], minimum=0)
    assert sums(counts_of(shares, 100)) == [400, 600]
    shares.reweight([20, 80])
    assert counts_of(shares, 3) == [[2, 8]] * 3


def test_other_weights_count_from_the_next_step_on_and_credit_is_kept() -> None:
    shares = Shares([9, 1], prompts=1, sizes=[PLENTY] * 2, minimum=0)
    assert sums(counts_of(shares, 4)) == [4, 0]  # the second has earned 0.4
    shares.reweight([5, 5])
    assert counts_of(shares, 1) == [[0, 1]]


@pytest.mark.parametrize("weights", [[0, 10], [5, 6]])
def test_weights_that_are_not_shares_of_the_same_whole_are_refused(weights: list[int]) -> None:
    shares = Shares([5, 5], prompts=1, sizes=[PLENTY] * 2, minimum=0)
    with pytest.raises(ValueError, match="keep their sum"):
        shares.reweight(weights)


@pytest.mark.parametrize("steps", [0, 1, 5, 17])
@pytest.mark.parametrize("minimum", [0, 1, 3])
def test_restored_shares_go_on_exactly(steps: int, minimum: int) -> None:
    arguments = {"prompts": 7, "sizes": [3, 40, 9], "minimum": minimum}
    shares = Shares([3, 40, 9], **arguments)  # type: ignore[arg-type]
    counts_of(shares, steps)
    resumed = Shares([3, 40, 9], **arguments)  # type: ignore[arg-type]
    resumed.restore(json.loads(json.dumps(shares.state())))
    assert counts_of(resumed, 30) == counts_of(shares, 30)


@pytest.mark.parametrize(
    "state",
    [
        None,
        {"turn": 0},
        {"turn": 0, "credits": [1]},
        {"turn": 0, "credits": [1, 1]},
        {"turn": 0, "credits": [0.5, -0.5]},
        {"turn": -1, "credits": [0, 0]},
    ],
    ids=str,
)
def test_a_malformed_state_is_refused(state: JsonValue) -> None:
    with pytest.raises(CheckpointError, match="malformed"):
        Shares([1, 1], prompts=1, sizes=[5, 5], minimum=0).restore(state)
