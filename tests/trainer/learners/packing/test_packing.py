"""The packed stream, token by token."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from trainer.algo.loss.objective import policy_streams
from trainer.algo.sequences import TrainingSequence
from trainer.learners.packing.packing import MicroBatch, PrefixGroup, micro_batches, pack_single

CPU = torch.device("cpu")


def sequence(
    prompt: tuple[int, ...], branch: tuple[int, ...], drawn: tuple[bool, ...], number: int
) -> TrainingSequence:
    """Its figures are those of no other number."""
    length = len(prompt) + len(branch)
    return TrainingSequence(
        token_ids=prompt + branch,
        action_mask=(False,) * len(prompt) + drawn,
        logprobs=tuple(-(number + at / 8) for at in range(length)),
        prompt_length=len(prompt),
        advantage=0.5 + number,
        temperature=0.25 * number,
        weight_versions=tuple(at % 2 for at in range(length)),
    )


# Packed tokens: 2 + 1 + 2 of the first prompt, 1 + 1 of the second one.
LONG = sequence((1, 2), (3, 4, 5), (True, False, True), 1)
SHORT = sequence((1, 2), (6, 7), (True, True), 2)
OTHER = sequence((8,), (9, 10), (True, True), 3)
ALL = (LONG, SHORT, OTHER)
ALONE = policy_streams([OTHER], [1.0])


def pack(*, max_tokens: int = 7, device: torch.device = CPU) -> list[MicroBatch]:
    return micro_batches(
        ALL, policy_streams(ALL, [0.1, 0.2, 0.3]), max_tokens=max_tokens, device=device
    )


def test_a_prompt_is_stored_once_and_every_branch_goes_on_from_its_end() -> None:
    (micro,) = pack()
    assert micro.sequences == (OTHER, SHORT, LONG)
    assert micro.token_ids_N.tolist() == [8, 9, 1, 2, 6, 3, 4]
    assert micro.positions_N.tolist() == [0, 1, 0, 1, 2, 2, 3]
    assert micro.prefix_groups == (
        PrefixGroup(prompt_length=1, branch_lengths=(1,)),
        PrefixGroup(prompt_length=2, branch_lengths=(1, 2)),
    )
    assert [each.num_tokens for each in micro.prefix_groups] == [2, 5]
    assert not micro.is_empty


def test_an_action_is_predicted_by_the_token_before_it_in_its_own_sequence() -> None:
    (micro,) = pack()
    assert micro.targets_A.tolist() == [9, 10, 6, 7, 3, 5]
    # 6 and 3 are both the first of their branch: they follow the 2 that ends the prompt.
    assert micro.sources_A.tolist() == [0, 1, 3, 4, 3, 6]


def test_an_action_brings_the_figures_of_its_sequence() -> None:
    (micro,) = pack()
    actions = micro.actions
    assert micro.temperatures_A.tolist() == [0.75, 0.75, 0.5, 0.5, 0.25, 0.25]
    assert actions.advantages_A.tolist() == [3.5, 3.5, 2.5, 2.5, 1.5, 1.5]
    assert actions.weights_A.tolist() == pytest.approx([0.3, 0.3, 0.2, 0.2, 0.1, 0.1])
    assert actions.behaviour_logprobs_A.tolist() == [-3.125, -3.25, -2.25, -2.375, -1.25, -1.5]
    assert actions.sequences_A.tolist() == [0, 0, 1, 1, 2, 2]
    assert actions.proximal_logprobs_A is actions.reference_logprobs_A is None


def test_a_token_is_current_where_the_weights_of_the_step_drew_it() -> None:
    """The version of the first step is 0."""
    found = [
        micro.actions.is_current_A.tolist()
        for micro in (
            pack()[0],
            micro_batches(ALL, policy_streams(ALL, [1.0] * 3, version=1), max_tokens=7, device=CPU)[
                0
            ],
        )
        if micro.actions.is_current_A is not None
    ]
    assert found == [
        [False, True, True, False, True, True],
        [True, False, False, True, False, False],
    ]


def test_what_does_not_fit_starts_a_micro_batch_with_positions_and_sequences_of_its_own() -> None:
    first, second = pack(max_tokens=6)
    assert first.token_ids_N.tolist() == [8, 9]
    assert second.token_ids_N.tolist() == [1, 2, 6, 3, 4]
    assert second.sources_A.tolist() == [1, 2, 1, 4]
    assert second.actions.sequences_A.tolist() == [0, 0, 1, 1]


def test_a_rank_packs_its_share_and_one_without_work_gets_fillers() -> None:
    found = [
        micro_batches([OTHER], ALONE, max_tokens=7, ranks=(rank, 2), device=CPU) for rank in (0, 1)
    ]
    ((working,), (filler,)) = found
    assert (working.is_empty, filler.is_empty) == (False, True)
    assert working.targets_A.tolist() == [9, 10]
    assert filler.token_ids_N.tolist() == filler.targets_A.tolist() == [0]
    assert filler.actions.weights_A.tolist() == [0.0]


def test_one_sequence_alone_is_scored_from_its_second_token_on() -> None:
    micro = pack_single((5, 6, 7), device=CPU)
    assert micro.token_ids_N.tolist() == [5, 6]
    assert micro.targets_A.tolist() == [6, 7]
    assert micro.positions_N.tolist() == micro.sources_A.tolist() == [0, 1]
    assert micro.prefix_groups == (PrefixGroup(prompt_length=2, branch_lengths=()),)
    assert micro.temperatures_A.tolist() == [1.0, 1.0]
    actions = micro.actions
    for zeros in (actions.behaviour_logprobs_A, actions.advantages_A, actions.weights_A):
        assert zeros.tolist() == [0.0, 0.0]
    assert actions.sequences_A.tolist() == [0, 0]
    assert actions.sequences_A.dtype == torch.int64
    assert not micro.is_empty


@pytest.mark.parametrize("kind", ["cpu", "meta"])
def test_all_lies_on_the_device_that_was_asked_for(kind: str) -> None:
    device = torch.device(kind)
    packed = micro_batches([OTHER], ALONE, max_tokens=7, ranks=(0, 2), device=device)
    filler = micro_batches([OTHER], ALONE, max_tokens=7, ranks=(1, 2), device=device)
    for micro in packed + filler:
        columns = [getattr(micro, each.name) for each in dataclasses.fields(micro)]
        columns += [getattr(micro.actions, each.name) for each in dataclasses.fields(micro.actions)]
        tensors = [each for each in columns if isinstance(each, torch.Tensor)]
        assert len(tensors) >= 9
        assert {each.device.type for each in tensors} == {kind}


def with_routes(given: TrainingSequence, *, spare: int) -> TrainingSequence:
    """Two layers, one expert of a token: numbers that tell sequence, token and layer."""
    number, length = int(4 * given.temperature), len(given.token_ids) - 1 + spare
    rows = [[[10 * number + at], [100 + 10 * number + at]] for at in range(length)]
    return dataclasses.replace(given, routes=np.array(rows, dtype=np.uint8))


def test_routes_lie_beside_the_tokens_that_were_computed_by_them() -> None:
    # Engines know the experts of a rollout's last token too, if they had to compute it.
    routed = [with_routes(each, spare=spare) for spare, each in enumerate((LONG, SHORT, OTHER))]
    streams = policy_streams(routed, [0.1, 0.2, 0.3])
    (micro,) = micro_batches(routed, streams, max_tokens=7, device=CPU)
    assert micro.token_ids_N.tolist() == [8, 9, 1, 2, 6, 3, 4]
    assert micro.routes_NLK is not None
    # The prompt that two rollouts share is computed by the experts of the first of them.
    assert micro.routes_NLK[:, 0, 0].tolist() == [30, 31, 20, 21, 22, 12, 13]
    assert micro.routes_NLK[:, 1, 0].tolist() == [130, 131, 120, 121, 122, 112, 113]
    (mixed,) = micro_batches([*routed[:2], OTHER], streams, max_tokens=7, device=CPU)
    assert mixed.routes_NLK is None
