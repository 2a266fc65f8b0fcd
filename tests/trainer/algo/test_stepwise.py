"""Turns as sequences of their own: what they hold, and that they teach what the rollout does."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from hillclimb.spec.training.algorithm import AlgorithmSpec
from tests.trainer.fixtures.tiny import VOCAB
from tests.trainer.learners.recorded import batch
from trainer.algo.loss.action_tokens import ActionTokens
from trainer.algo.loss.loss import policy_loss
from trainer.algo.loss.reduction import token_weights
from trainer.algo.sequences import TrainingSequence
from trainer.algo.stepwise import turns_of
from trainer.algo.streams import Stream

WHOLE = TrainingSequence(
    token_ids=(1, 2, 3, 4, 5, 6, 7),
    action_mask=(False, False, True, True, False, True, True),
    logprobs=(0.0, 0.0, -0.1, -0.2, 0.0, -0.3, -0.4),
    prompt_length=2,
    advantage=0.7,
    temperature=0.9,
)


def test_a_turn_has_all_before_it_as_context_and_only_itself_in_the_loss() -> None:
    first, second = turns_of(WHOLE)
    assert first.token_ids == (1, 2, 3, 4)
    assert first.action_mask == (False, False, True, True)
    assert first.logprobs == (0.0, 0.0, -0.1, -0.2)
    assert second.token_ids == WHOLE.token_ids
    assert second.action_mask == (False,) * 5 + (True,) * 2
    assert second.logprobs == (0.0,) * 5 + (-0.3, -0.4)
    for turn in (first, second):
        assert (turn.advantage, turn.temperature, turn.prompt_length) == (0.7, 0.9, 2)


def test_every_drawn_token_is_in_exactly_one_turn() -> None:
    for sequence in batch().mini_batches[0]:
        turns = list(turns_of(sequence))
        assert len(turns) == 2
        assert sum(turn.num_actions for turn in turns) == sequence.num_actions
        for at, acted in enumerate(sequence.action_mask):
            assert sum(turn.action_mask[at : at + 1] == (True,) for turn in turns) == acted


@pytest.mark.parametrize("kind", ["regular", "dual_clip", "cispo"])
def test_by_token_mean_turns_give_the_gradient_of_whole_rollouts(kind: str) -> None:
    """Far off-policy, so that clips hold too."""
    whole = batch().mini_batches[0]
    split = tuple(itertools.chain.from_iterable(map(turns_of, whole)))
    algorithm = AlgorithmSpec.model_validate({"policy_loss_type": kind})
    expected, found = (gradients(each, algorithm) for each in (whole, split))
    assert len(expected) == 5
    assert all(gradient.abs().max() > 1e-5 for gradient in expected.values())
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-15, rtol=1e-10)


class Attends(torch.nn.Module):
    """One layer of causal attention, float64 throughout (transformers' norms are float32)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.embedding = torch.nn.Embedding(VOCAB, 16, dtype=torch.float64)
        self.mixed = torch.nn.Linear(16, 48, dtype=torch.float64)
        self.head = torch.nn.Linear(16, VOCAB, dtype=torch.float64)

    def forward(self, sequence: TrainingSequence) -> torch.Tensor:
        """Log-probs of the drawn tokens."""
        ids = torch.tensor(sequence.token_ids)
        query, key, value = self.mixed(self.embedding(ids[:-1])).chunk(3, dim=-1)
        scores = (query @ key.T).masked_fill(torch.ones(len(query), len(query)).triu(1) > 0, -1e9)
        logits = self.head(scores.softmax(-1) @ value) / sequence.temperature
        logprobs: torch.Tensor = logits.log_softmax(-1).gather(1, ids[1:, None]).squeeze(1)
        return logprobs[torch.tensor(sequence.action_mask[1:])]


def gradients(
    sequences: tuple[TrainingSequence, ...], algorithm: AlgorithmSpec
) -> dict[str, torch.Tensor]:
    model = Attends()
    weights = token_weights(sequences, algorithm, max_sequence_length=64)
    for sequence, weight in zip(sequences, weights, strict=True):
        loss, _ = policy_loss(model(sequence), actions_of(sequence, weight), algorithm)
        torch.autograd.backward(loss)
    named = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {name: gradient for name, gradient in named.items() if gradient is not None}


def actions_of(sequence: TrainingSequence, weight: float) -> ActionTokens:
    num = sequence.num_actions
    drawn = [p for p, acted in zip(sequence.logprobs, sequence.action_mask, strict=True) if acted]
    return ActionTokens(
        behaviour_logprobs_A=torch.tensor(drawn, dtype=torch.float64),
        advantages_A=torch.full((num,), sequence.advantage, dtype=torch.float64),
        weights_A=torch.full((num,), weight, dtype=torch.float64),
        sequences_A=torch.zeros(num, dtype=torch.int64),
    )


def test_a_turn_has_the_versions_of_its_own_tokens_and_of_those_before() -> None:
    sequence = TrainingSequence(
        token_ids=(1, 2, 3, 4, 5),
        action_mask=(False, True, False, True, True),
        logprobs=(0.0, -0.1, 0.0, -0.2, -0.3),
        prompt_length=1,
        advantage=1.0,
        temperature=1.0,
        weight_versions=(-1, 3, -1, 4, 5),
    )
    assert [turn.weight_versions for turn in turns_of(sequence)] == [(-1, 3), (-1, 3, -1, 4, 5)]


def test_a_turn_has_the_rows_of_its_tokens_of_a_loss_s_arrays_and_all_of_the_others() -> None:
    per_token = Stream(name="weights", alignment="action")
    per_rollout = Stream(name="targets", alignment="sequence")
    values = {per_token: np.arange(7.0), per_rollout: np.arange(9.0)}
    first, second = turns_of(replace(WHOLE, streams=values))
    assert first.streams[per_token].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert second.streams[per_token].tolist() == list(range(7))
    for turn in (first, second):
        assert turn.streams[per_rollout].tolist() == list(range(9))
