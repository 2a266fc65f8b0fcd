"""Tokens of a trajectory: which turn each belongs to, and the numbers that belong to it."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from hillclimb.protocol.payloads.results.rollouts import StoredTokenValues, StoredTrajectory
from hillclimb.stats.trajectories.tokens import RolloutTokens, tokens_of
from tests.hillclimb.stats.trajectories.stored_tokens import learned, trajectory

TEXTS = [" Hi", "ca", b"\xc3", b"\xa9", "\n", "<|im_start|>", "<|im_end|>", "ok"]


def tokens(values: str | None = learned("r"), **changes: Any) -> RolloutTokens:
    stored = StoredTrajectory.model_validate(trajectory(**changes))
    learner = None if values is None else StoredTokenValues.model_validate_json(values)
    return tokens_of(stored, learner, TEXTS)


def test_each_token_has_the_numbers_that_belong_to_it() -> None:
    facts = list(tokens().facts(0, 8))
    assert [each.position for each in facts] == list(range(8))
    assert [each.turn for each in facts] == [0, 0, 1, 1, 1, 1, 2, 2]
    assert [each.text for each in facts[:4]] == ["<|im_start|>", " Hi", "ca", b"\xc3"]
    assert [each.gap for each in facts] == [None, None, 0.5, -0.25, None, None, 2.0**-10, 0.0]
    assert [each.entropy for each in facts] == [None, None, 1.5, 0.0, None, None, 2.0, 0.25]
    assert [each.weight_version for each in facts] == [None, None, 3, 3, None, None, 4, 4]
    # -0.5 + 0.5 and -1.0 - 0.25.
    assert [each.learner_logprob for each in facts[1:4]] == [None, 0.0, -1.25]


def test_rounding_makes_no_token_more_probable_than_certain() -> None:
    (token,) = tokens(logprobs=[-0.0, -1.0, -0.25, -2.0]).facts(2, 3)
    assert (token.engine_logprob, token.gap, token.learner_logprob) == (0.0, 0.5, 0.0)


def test_a_turn_has_its_answer_and_its_figures() -> None:
    prompt, first, second = tokens().in_turns()
    assert (prompt.turn, prompt.start, prompt.end, prompt.num_drawn) == (0, 0, 2, 0)
    assert (prompt.mean_abs_gap, prompt.max_abs_gap, prompt.weight_versions) == (None, None, ())
    assert (first.turn, first.start, first.end, first.num_drawn) == (1, 2, 6, 2)
    # The means of 0.5 and 0.25, and of 1.5 and 0.
    assert (first.mean_abs_gap, first.max_abs_gap, first.mean_entropy) == (0.375, 0.5, 0.75)
    assert (second.turn, second.mean_entropy, second.weight_versions) == (2, 1.125, (4,))


def test_the_largest_gaps_come_first_whatever_their_sign() -> None:
    largest = tokens().largest_gaps(3)
    assert [(each.position, each.gap) for each in largest] == [
        (2, 0.5),
        (3, -0.25),
        (6, 2.0**-10),
    ]
    assert tokens(values=None).largest_gaps(3) == []


def test_without_the_learner_the_engine_s_numbers_remain() -> None:
    (token,) = tokens(values=None).facts(2, 3)
    assert (token.engine_logprob, token.weight_version, token.is_drawn) == (-0.5, 3, True)
    assert (token.gap, token.entropy, token.learner_logprob) == (None, None, None)


def test_a_file_of_before_counts_runs_of_drawn_tokens_as_turns() -> None:
    assert [each.start for each in tokens(turn_tokens=[]).in_turns()] == [0, 2, 6]


def test_a_turn_that_drew_nothing_keeps_its_number() -> None:
    counts = [{"num_tokens": number, "num_thinking_tokens": 0} for number in (2, 0, 2)]
    assert [each.turn for each in tokens(turn_tokens=counts).in_turns()] == [0, 1, 3]


def test_two_turns_without_an_answer_between_are_two() -> None:
    counts = [{"num_tokens": number, "num_thinking_tokens": 0} for number in (1, 3)]
    assert [each.start for each in tokens(turn_tokens=counts).in_turns()] == [0, 2, 3]


def test_a_trajectory_without_a_token_has_no_turn() -> None:
    nothing = {"token_ids": [], "action_mask": [], "logprobs": [], "weight_versions": []}
    assert tokens(values=None, turn_tokens=[], **nothing).in_turns() == []


def test_an_id_beyond_the_vocabulary_has_no_text() -> None:
    (token,) = tokens(token_ids=[5, 0, 1, 2, 3, 4, 7, 999]).facts(7, 8)
    assert token.text is None


@pytest.mark.parametrize(
    "values",
    [
        learned("r", gaps=base64.b64encode(struct.pack("<3e", 1, 2, 3)).decode()),
        learned("r", gaps=base64.b64encode(struct.pack("<4e", 1, 2, 3, float("inf"))).decode()),
        learned("r", entropies="not base64!"),
        learned("r", entropies=""),
    ],
    ids=["too few", "infinite", "no base64", "empty"],
)
def test_values_that_do_not_fit_are_refused(values: str) -> None:
    with pytest.raises(ValueError, match=r"numbers|finite"):
        tokens(values)


@pytest.mark.parametrize("mask", [[0, 0, 1], [0, 0, 2, 0, 0, 0, 1, 1]])
def test_a_mask_that_does_not_fit_is_refused(mask: list[int]) -> None:
    with pytest.raises(ValueError, match="mask"):
        tokens(values=None, action_mask=mask)
