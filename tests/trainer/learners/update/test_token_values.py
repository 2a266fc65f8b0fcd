"""The values of each token that a rank keeps, against transformers' own forward pass."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import Qwen3ForCausalLM

from hillclimb.spec.training.algorithm import AlgorithmSpec, OffPolicyCorrectionSpec
from hillclimb.spec.training.learner import LearnerSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.trainer.fixtures.tiny import reference_logprobs, tiny_model
from tests.trainer.learners.recorded import batch
from trainer.algo.sequences import Batch, SequenceValues, TrainingSequence
from trainer.algo.stepwise import turns_of
from trainer.learners.model.models import LearnerOptions
from trainer.learners.rank import LearnerRank

RESOLUTION = 2.0**-10
"""Of float16, relative."""


def named(each: Batch) -> Batch:
    """The batch with a name for each rollout."""
    parts = tuple(
        tuple(replace(one, rollout_id=f"r{index}") for index, one in enumerate(part))
        for part in each.mini_batches
    )
    return Batch(mini_batches=parts)


def off_policy(each: Batch) -> Batch:
    """The batch as an engine that is off by 0.25 nats would have sampled it."""
    parts = tuple(
        tuple(
            replace(
                one,
                logprobs=tuple(
                    value + 0.25 if drawn else 0.0
                    for value, drawn in zip(one.logprobs, one.action_mask, strict=True)
                ),
            )
            for one in part
        )
        for part in each.mini_batches
    )
    return Batch(mini_batches=parts)


def rank(*, keeps: bool = True, **options: Any) -> LearnerRank:
    given = {"optimizer": OptimizerSpec(lr=1e-2), "learner": LearnerSpec(max_micro_tokens=90)}
    return LearnerRank(tiny_model(), LearnerOptions(keeps_token_values=keeps, **given | options))


def numbers(data: bytes | None) -> list[float]:
    assert data is not None
    return list(struct.unpack(f"<{len(data) // 2}e", data))


def by_rollout(values: tuple[SequenceValues, ...]) -> Mapping[str, SequenceValues]:
    assert len({each.rollout_id for each in values}) == len(values)
    return {each.rollout_id: each for each in values}


def entropies(model: Qwen3ForCausalLM, sequence: TrainingSequence) -> list[float]:
    """Entropy of the distribution that each action was drawn from."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([sequence.token_ids])).logits[0]
    all_entropies = torch.distributions.Categorical(logits=logits).entropy().tolist()
    return [all_entropies[at - 1] for at, drawn in enumerate(sequence.action_mask) if drawn]


def test_gaps_and_entropies_are_those_of_each_token() -> None:
    learner, given = rank(), off_policy(named(batch()))
    learner.step(given)
    values = by_rollout(learner.take_token_values())
    assert values.keys() == {f"r{index}" for index in range(7)}
    for sequence in given.mini_batches[0]:
        own = values[sequence.rollout_id]
        assert own.length == len(sequence.token_ids)
        assert numbers(own.gaps) == pytest.approx([-0.25] * sequence.num_actions, abs=1e-3)
        expected = entropies(tiny_model(), sequence)
        assert numbers(own.entropies) == pytest.approx(expected, rel=RESOLUTION, abs=1e-4)


def test_values_are_taken_once_and_are_those_of_the_last_step() -> None:
    learner = rank()
    learner.step(named(batch()))
    learner.step(named(batch()))
    assert len(learner.take_token_values()) == 7
    assert learner.take_token_values() == ()


def test_a_rank_keeps_none_without_the_option_and_learns_the_same() -> None:
    keeping, plain = rank(), rank(keeps=False)
    for each in (keeping, plain):
        each.step(named(batch()))
    assert plain.take_token_values() == ()
    weights = plain.weights()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in keeping.weights().items())


def two_mini_batches() -> Batch:
    (part,) = named(batch()).mini_batches
    return Batch(mini_batches=(part[:3], part[3:]))


def test_the_second_mini_batch_is_scored_after_an_update() -> None:
    learner = rank()
    learner.step(two_mini_batches())
    values = by_rollout(learner.take_token_values())
    assert {name: each.num_updates for name, each in values.items()} == {
        f"r{index}": int(index >= 3) for index in range(7)
    }
    largest = {name: max(map(abs, numbers(each.gaps))) for name, each in values.items()}
    assert all(largest[f"r{index}"] < 1e-3 for index in range(3))
    assert all(largest[f"r{index}"] > 1e-2 for index in range(3, 7))


def test_a_loss_that_scores_by_the_first_policy_gives_the_gaps_of_that_one() -> None:
    correction = OffPolicyCorrectionSpec(tis_ratio_type="token")
    learner = rank(algorithm=AlgorithmSpec(off_policy_correction=correction))
    learner.step(two_mini_batches())
    for each in learner.take_token_values():
        assert each.num_updates == 0
        assert max(map(abs, numbers(each.gaps))) < 1e-3


def test_turns_of_a_rollout_differ_by_their_length() -> None:
    (part,) = named(batch()).mini_batches
    learner = rank()
    learner.step(Batch(mini_batches=(tuple(turn for each in part for turn in turns_of(each)),)))
    values = learner.take_token_values()
    first = part[0]
    own = sorted((each for each in values if each.rollout_id == "r0"), key=lambda one: one.length)
    assert [each.length for each in own] == [first.prompt_length + 3, len(first.token_ids)]
    assert [len(each.gaps) for each in own] == [2 * 3, 2 * (first.num_actions - 3)]


def test_the_log_probs_are_those_at_the_sampling_temperature() -> None:
    given = named(batch(temperature=0.7))
    learner = rank()
    learner.step(given)
    values = by_rollout(learner.take_token_values())
    sequence = given.mini_batches[0][2]
    assert max(map(abs, numbers(values["r2"].gaps))) < 1e-3
    plain = reference_logprobs(tiny_model(), list(sequence.token_ids)).tolist()
    drawn = [at for at, is_drawn in enumerate(sequence.action_mask) if is_drawn]
    assert max(abs(plain[at - 1] - sequence.logprobs[at]) for at in drawn) > 0.1
