"""The share of a token in the loss, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.spec.training.algorithm import AlgorithmSpec
from tests.trainer.algo.loss.slow import training_sequence
from trainer.algo.loss.reduction import token_weights
from trainer.algo.sequences import LossCounts

Reduction = Literal["token_mean", "sequence_mean", "seq_mean_token_sum_norm"]


def weights(
    lengths: list[int],
    reduction: Reduction,
    *,
    max_length: int = 10,
    counts: LossCounts | None = None,
) -> list[float]:
    return token_weights(
        [replace(training_sequence(length), loss_counts=counts) for length in lengths],
        AlgorithmSpec(loss_reduction=reduction),
        max_sequence_length=max_length,
    )


def test_each_reduction_of_one_short_and_one_longer_rollout() -> None:
    assert weights([1, 3], "token_mean") == [1 / 4, 1 / 4]
    assert weights([1, 3], "sequence_mean") == [1 / 2, 1 / 6]
    assert weights([1, 3], "seq_mean_token_sum_norm") == [1 / 20, 1 / 20]


def test_rollouts_without_a_gradient_count_where_the_sequences_say_so() -> None:
    counts = LossCounts(num_sequences=5, num_actions=16)
    assert weights([1, 3], "token_mean", counts=counts) == [1 / 16, 1 / 16]
    assert weights([1, 3], "sequence_mean", counts=counts) == [1 / 5, 1 / 15]
    assert weights([1, 3], "seq_mean_token_sum_norm", counts=counts) == [1 / 50, 1 / 50]


def test_no_rollouts_have_no_weights() -> None:
    assert weights([], "sequence_mean") == []


def test_dr_grpo_divides_by_the_longest_rollout_allowed_and_not_by_the_longest_there_is() -> None:
    assert weights([1, 3], "seq_mean_token_sum_norm", max_length=100) == [1 / 200, 1 / 200]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_means_sum_to_one_over_the_mini_batch(lengths: list[int]) -> None:
    for reduction in ("token_mean", "sequence_mean"):
        shares = weights(lengths, reduction)  # type: ignore[arg-type]
        total = sum(share * length for share, length in zip(shares, lengths, strict=True))
        assert total == pytest.approx(1.0)


@given(st.lists(st.integers(1, 10), min_size=1, max_size=20))
def test_the_sum_norm_gives_what_the_share_of_the_length_limit_used_up_is(
    lengths: list[int],
) -> None:
    shares = weights(lengths, "seq_mean_token_sum_norm")
    total = sum(share * length for share, length in zip(shares, lengths, strict=True))
    assert total == pytest.approx(sum(lengths) / len(lengths) / 10)
