"""What goes to the server is what our own learner would compute with, value by value."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tinker import types

from hillclimb.spec.training.algorithm import AlgorithmSpec, CispoSpec
from tests.trainer.fixtures.tiny import VOCAB
from tests.trainer.learners.recorded import batch
from trainer.algo.loss.objective import policy_streams
from trainer.algo.loss.reduction import token_weights
from trainer.algo.sequences import TrainingSequence
from trainer.errors import LearnerError
from trainer.learners.packing.packing import micro_batches
from trainer.workers.tinker.datum import DatumOptions, data_of, loss_of, scored

SEQUENCES = batch().mini_batches[0]
REDUCTIONS = ("token_mean", "sequence_mean", "seq_mean_token_sum_norm")


def data(
    sequences: tuple[TrainingSequence, ...], *, is_averaged: bool = False, **algorithm: object
) -> list[types.Datum]:
    options = DatumOptions(
        algorithm=AlgorithmSpec.model_validate(algorithm),
        max_sequence_length=200,
        vocab_size=VOCAB,
        is_averaged=is_averaged,
    )
    return data_of(sequences, options)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_advantages_are_those_of_our_learner_with_each_tokens_share_of_the_loss(
    reduction: str,
) -> None:
    spec = AlgorithmSpec.model_validate({"loss_reduction": reduction})
    weights = token_weights(SEQUENCES, spec, max_sequence_length=200)
    ours: dict[int, list[float]] = {}
    streams = policy_streams(SEQUENCES, weights)
    for micro in micro_batches(SEQUENCES, streams, max_tokens=10_000, device=torch.device("cpu")):
        folded = micro.actions.advantages_A * micro.actions.weights_A
        for target, value in zip(micro.targets_A.tolist(), folded.tolist(), strict=True):
            ours.setdefault(target, []).append(value)
    theirs: dict[int, list[float]] = {}
    sent = data(SEQUENCES, loss_reduction=reduction)
    for datum, sequence in zip(sent, SEQUENCES, strict=True):
        inputs = datum.loss_fn_inputs
        rows = zip(inputs["target_tokens"].data, inputs["advantages"].data, strict=True)
        for (target, value), drawn in zip(rows, sequence.action_mask[1:], strict=True):
            assert drawn or value == 0.0
            if drawn:
                theirs.setdefault(int(target), []).append(value)
    assert {key: sorted(each) for key, each in ours.items()}.keys() == theirs.keys()
    for target, values in ours.items():
        torch.testing.assert_close(
            torch.tensor(sorted(values)), torch.tensor(sorted(theirs[target])), atol=1e-6, rtol=0
        )


def test_tokens_are_shifted_by_one_and_log_probs_go_with_the_token_they_are_of() -> None:
    datum = data(SEQUENCES[:1])[0]
    first = SEQUENCES[0]
    assert tuple(datum.model_input.to_ints()) == first.token_ids[:-1]
    assert tuple(datum.loss_fn_inputs["target_tokens"].data) == first.token_ids[1:]
    assert datum.loss_fn_inputs["logprobs"].data == pytest.approx(first.logprobs[1:], abs=1e-6)


def test_for_a_server_that_averages_each_token_still_has_its_share() -> None:
    summed, averaged = data(SEQUENCES), data(SEQUENCES, is_averaged=True)
    for one, other in zip(summed, averaged, strict=True):
        length = one.model_input.length
        mean = torch.tensor(other.loss_fn_inputs["advantages"].data) / length / len(SEQUENCES)
        torch.testing.assert_close(mean, torch.tensor(one.loss_fn_inputs["advantages"].data))


def test_clips_become_absolute_bounds_of_the_ratio() -> None:
    regular = loss_of(AlgorithmSpec(eps_clip_low=0.1, eps_clip_high=0.3))
    assert regular.name == "ppo"
    assert regular.config == pytest.approx({"clip_low_threshold": 0.9, "clip_high_threshold": 1.3})
    bounds = CispoSpec(cispo_eps_clip_low=0.4, cispo_eps_clip_high=2.0)
    cispo = loss_of(AlgorithmSpec(policy_loss_type="cispo", cispo=bounds))
    assert cispo.name == "cispo"
    assert cispo.config == pytest.approx({"clip_low_threshold": 0.6, "clip_high_threshold": 3.0})


def test_a_datum_that_asks_for_log_probs_weighs_nothing() -> None:
    datum = scored((4, 5, 6))
    assert datum.model_input.to_ints() == [4, 5]
    assert datum.loss_fn_inputs["target_tokens"].data == [5, 6]
    assert datum.loss_fn_inputs["weights"].data == [0.0, 0.0]


FIRST = SEQUENCES[0]
STRANGE = {
    "shorter log-probs": ({"logprobs": FIRST.logprobs[:-1]}, "a sequence of tokens, mask"),
    "a longer mask": ({"action_mask": (*FIRST.action_mask, True)}, "a sequence of tokens, mask"),
    "a token that is none": (
        {"token_ids": (*FIRST.token_ids[:-1], VOCAB)},
        "outside the model's vocabulary of 64",
    ),
    "another temperature": ({"temperature": 0.7}, "drawn at temperature 0.7"),
    "no number": ({"logprobs": (*FIRST.logprobs[:-1], float("nan"))}, "NaN or infinite"),
    "a probability above 1": ({"logprobs": (*FIRST.logprobs[:-1], 0.5)}, "is positive"),
    "an advantage that is none": ({"advantage": float("inf")}, "an advantage is no number"),
    "a first token drawn": (
        {"action_mask": (True, *FIRST.action_mask[1:])},
        "without a prompt before it",
    ),
}


@pytest.mark.parametrize("case", STRANGE)
def test_what_a_server_would_take_in_silence_is_refused(case: str) -> None:
    change, said = STRANGE[case]
    with pytest.raises(LearnerError, match=said):
        data((replace(FIRST, **change),))
