"""Seconds of a step against sums that are added turn by turn."""

from __future__ import annotations

import pytest

from tests.contract.clusters.rented import candidate, qwen3_8b
from trainer.contract.clusters.estimate import estimate
from trainer.contract.clusters.pace import HIGH, LOW, Assumed, Range
from trainer.contract.clusters.shapes import KNOWN

LENGTH, ROLLOUTS, RANKS, H100_FLOPS = 65_536, 16 * 8, 5, 989e12
PASSES = 4.0
"""Forward, two gradients, and the forward pass once more for activations."""


def pace(*, step_wise: bool, max_turns: int, override: int | None = None) -> Range:
    overrides = {"github": {"max_turns": override}} if override else {}
    spec = qwen3_8b(
        algorithm={"step_wise": step_wise},
        environment={"max_turns": max_turns, "overrides": overrides, "max_concurrent_rollouts": 96},
        data={"env_keys": ["booking", "github"]},
        rollout={"n_samples_per_prompt": 8},
        schedule={"train_batch_size": 16, "mini_batch_size": 16},
    )
    found = estimate(spec, candidate(), 1).step_s
    assert found is not None
    return found


def seconds(end: Assumed, lengths: list[float]) -> float:
    """Of learning from sequences of these lengths, once for each rollout."""
    shape = KNOWN["Qwen3-8B"]
    multiplies = shape.num_parameters - shape.embedding_parameters
    flops = sum(
        2.0 * multiplies * length + 4.0 * shape.num_layers * shape.query_width * length**2 / 2
        for length in lengths
    )
    return ROLLOUTS * PASSES * flops / (RANKS * H100_FLOPS * end.learner_use)


@pytest.mark.parametrize(("max_turns", "override"), [(40, None), (8, 40), (40, 8)])
def test_each_turn_is_learned_from_with_all_that_came_before(
    max_turns: int, override: int | None
) -> None:
    plain = pace(step_wise=False, max_turns=max_turns, override=override)
    turns = pace(step_wise=True, max_turns=max_turns, override=override)
    for end, num_turns, added in (
        (LOW, 10, turns.low - plain.low),
        (HIGH, 40, turns.high - plain.high),
    ):
        whole = end.length_share * LENGTH
        each = [whole * (i + 1) / num_turns for i in range(num_turns)]
        assert added == pytest.approx(seconds(end, each) - seconds(end, [whole]), rel=1e-9)


def test_a_rollout_of_one_turn_costs_the_same_either_way() -> None:
    assert pace(step_wise=True, max_turns=1) == pace(step_wise=False, max_turns=1)
