"""Every sequence is computed once, whole, and the ranks share the work."""

from __future__ import annotations

import random

import pytest
import torch

from trainer.algo.loss.objective import policy_streams
from trainer.algo.sequences import TrainingSequence
from trainer.learners.packing.packing import micro_batches
from trainer.learners.packing.partition import partition

CPU = torch.device("cpu")


def rollouts(seed: int, *, num_prompts: int = 5, most: int = 8) -> list[TrainingSequence]:
    rng = random.Random(seed)
    made = []
    for prompt in range(num_prompts):
        head = (prompt, *(rng.randrange(50) for _ in range(rng.randint(3, 30))))
        for _ in range(rng.randint(1, most)):
            tail = tuple(rng.randrange(50) for _ in range(rng.randint(1, 60)))
            mask = (False,) * len(head) + (True,) * len(tail)
            made.append(
                TrainingSequence(
                    token_ids=head + tail,
                    action_mask=mask,
                    logprobs=(-1.0,) * len(mask),
                    prompt_length=len(head),
                    advantage=1.0,
                    temperature=1.0,
                )
            )
    rng.shuffle(made)
    return made


def tokens(sequences: list[TrainingSequence], members: list[int]) -> int:
    prompt = sequences[members[0]].prompt_length
    return prompt + sum(len(sequences[each].token_ids) - 1 - prompt for each in members)


def lone(*sizes: int) -> list[TrainingSequence]:
    """Rollouts of one prompt each, with so many packed tokens."""
    return [family(at, 1, size) for at, size in enumerate(sizes)]


def family(prompt: int, prompt_length: int, packed: int) -> TrainingSequence:
    """A rollout of this prompt, with so many packed tokens; its last one is not computed."""
    length = packed + 1
    return TrainingSequence(
        token_ids=(prompt,) * prompt_length + (9,) * (length - prompt_length),
        action_mask=(False,) * prompt_length + (True,) * (length - prompt_length),
        logprobs=(0.0,) * length,
        prompt_length=prompt_length,
        advantage=1.0,
        temperature=1.0,
    )


@pytest.mark.parametrize(
    ("max_tokens", "packs"),
    [
        (10, [[[0], [1], [2]]]),
        (9, [[[0], [1]], [[2]]]),
        (6, [[[0], [1]], [[2]]]),
        (5, [[[0]], [[1]], [[2]]]),
        (3, [[[0]], [[1]], [[2]]]),
    ],
)
def test_a_pack_is_filled_to_the_last_token(max_tokens: int, packs: list[list[list[int]]]) -> None:
    assert partition(lone(3, 3, 4), num_ranks=1, max_tokens=max_tokens) == [packs]


@pytest.mark.parametrize(
    ("max_tokens", "packs"),
    [
        (5, [[[0, 2, 1]]]),
        (4, [[[0, 2]], [[1]]]),
        (3, [[[0, 2]], [[1]]]),
        (2, [[[0]], [[2]], [[1]]]),
    ],
)
def test_a_prompt_is_repeated_where_its_rollouts_do_not_fit(
    max_tokens: int, packs: list[list[list[int]]]
) -> None:
    """A prompt of one token; its rollouts add 1, 2 and 1, shortest first: 2, 3 and 5 in all."""
    sequences = [family(0, 1, 2), family(0, 1, 3), family(0, 1, 2)]
    assert partition(sequences, num_ranks=1, max_tokens=max_tokens) == [packs]


def test_the_largest_groups_are_dealt_first_and_each_rank_begins_with_its_smallest() -> None:
    """5 to the first rank; 4 and then 3 to the second one; the other 3 to the first: 8 and 7."""
    sequences = lone(5, 4, 3, 3)
    assert partition(sequences, num_ranks=2, max_tokens=8) == [[[[2], [0]]], [[[3], [1]]]]
    assert partition(sequences, num_ranks=2, max_tokens=7) == [[[[2]], [[0]]], [[[3], [1]]]]


@pytest.mark.parametrize(
    ("num_ranks", "max_tokens", "shares"),
    [
        (1, 5, [[[[0, 1, 2, 3]]]]),
        (2, 5, [[[[2, 3]]], [[[0, 1]]]]),
        (3, 5, [[[[0], [3]]], [[[2]]], [[[1]]]]),
        (2, 2, [[[[1]], [[3]]], [[[0]], [[2]]]]),
    ],
)
def test_a_prompt_is_cut_into_the_share_of_a_rank_rounded_up(
    num_ranks: int, max_tokens: int, shares: list[list[list[list[int]]]]
) -> None:
    """A prompt and four rollouts of one token each: 5 in all, so 3 for each of two ranks."""
    sequences = [family(0, 1, 2)] * 4
    found = partition(sequences, num_ranks=num_ranks, max_tokens=max_tokens)
    assert found == shares


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("max_tokens", [1, 100, 100_000])
def test_each_sequence_is_computed_exactly_once(num_ranks: int, max_tokens: int) -> None:
    for seed in range(10):
        sequences = rollouts(seed)
        shares = partition(sequences, num_ranks=num_ranks, max_tokens=max_tokens)
        assert len(shares) == num_ranks
        seen = [i for share in shares for pack in share for members in pack for i in members]
        assert sorted(seen) == list(range(len(sequences)))


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_a_pack_holds_at_most_max_tokens_unless_one_sequence_has_more(num_ranks: int) -> None:
    for seed in range(10):
        sequences = rollouts(seed)
        for share in partition(sequences, num_ranks=num_ranks, max_tokens=70):
            for pack in share:
                size = sum(tokens(sequences, members) for members in pack)
                assert size <= 70 or (len(pack) == 1 and len(pack[0]) == 1)


def test_members_of_a_family_share_their_prompt() -> None:
    sequences = rollouts(3)
    for share in partition(sequences, num_ranks=2, max_tokens=1000):
        for pack in share:
            for members in pack:
                heads = {sequences[i].token_ids[: sequences[i].prompt_length] for i in members}
                assert len(heads) == 1


def test_ranks_get_nearly_the_same_number_of_tokens() -> None:
    for seed in range(10):
        sequences = rollouts(seed, num_prompts=20)
        loads = [
            sum(tokens(sequences, members) for pack in share for members in pack)
            for share in partition(sequences, num_ranks=4, max_tokens=4096)
        ]
        assert max(loads) < 1.25 * min(loads)


def test_a_long_sequence_is_dealt_by_what_its_attention_costs() -> None:
    """Of Qwen3-8B one sequence of 65,536 tokens costs twice as much as eight of 8,192."""
    sequences = lone(65_536, *[8192] * 16)
    costs = {"tokens": 0.0, "flops": 1 / 24_000}
    shares = {
        name: [
            sorted(index for pack in share for members in pack for index in members)
            for share in partition(sequences, num_ranks=2, max_tokens=65_536, pair_cost=cost)
        ]
        for name, cost in costs.items()
    }
    assert [len(share) for share in shares["tokens"]] == [5, 12]
    # 156 thousand tokens' worth against 153 thousand.
    assert [len(share) for share in shares["flops"]] == [1, 16]


def test_a_branch_attends_to_its_prompt_and_not_to_its_siblings() -> None:
    """Both families have 12 tokens. The long prompt has 78 pairs, the other one 51."""
    sequences = [family(0, 10, 12), *[family(1, 3, 6)] * 3]
    by_pairs = [
        partition(sequences, num_ranks=2, max_tokens=cut, pair_cost=1e6) for cut in (12, 12_000)
    ]
    assert by_pairs == [[[[[0]]], [[[1, 2, 3]]]]] * 2


def test_one_family_alone_is_shared_rather_than_left_to_one_rank() -> None:
    sequences = rollouts(1, num_prompts=1, most=8)
    shares = partition(sequences, num_ranks=2, max_tokens=4096)
    assert all(shares)


@pytest.mark.parametrize("num_ranks", [2, 5])
def test_every_rank_runs_the_same_number_of_micro_batches(num_ranks: int) -> None:
    for sequences in (rollouts(4), rollouts(5)[:1]):
        streams = policy_streams(sequences, [1.0 / len(sequences)] * len(sequences))
        packed = [
            micro_batches(sequences, streams, max_tokens=80, ranks=(rank, num_ranks), device=CPU)
            for rank in range(num_ranks)
        ]
        assert len({len(each) for each in packed}) == 1
        working = [micro for each in packed for micro in each if not micro.is_empty]
        assert sum(len(micro.targets_A) for micro in working) == sum(
            sequence.num_actions for sequence in sequences
        )


def test_actions_know_their_sequence_within_the_micro_batch() -> None:
    sequences = rollouts(6)
    streams = policy_streams(sequences, [1.0] * len(sequences))
    (micro,) = micro_batches(sequences, streams, max_tokens=100_000, device=CPU)
    counts = torch.bincount(micro.actions.sequences_A, minlength=len(sequences))
    assert micro.actions.sequences_A.dtype == torch.int64
    assert sorted(counts.tolist()) == sorted(each.num_actions for each in sequences)
