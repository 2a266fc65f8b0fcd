"""Two processes that share the policy learn what one learns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hillclimb.spec.training.learner import LearnerSpec
from tests.trainer.fixtures.families import family_model
from tests.trainer.fixtures.tiny import random_ids, tiny_model
from tests.trainer.learners.ranks.two_ranks import (
    ADAPTED,
    COMPARED,
    KEEPING,
    NUM_BATCHES,
    NUM_COMPARED,
    OPTIONS,
    new_rank,
    numbered,
    run_two_ranks,
    train,
)
from tests.trainer.learners.recorded import batch
from tests.trainer.learners.update.test_moments import learner
from trainer.errors import CheckpointError
from trainer.learners.model.models import LearnerOptions
from trainer.learners.rank import LearnerRank

# Whichever comes first waits for the processes of all.
pytestmark = pytest.mark.invariant("one rank and two end at the same weights")

SPENT = (
    "timing/fwd_logprobs_values_reward",
    "policy/tokens_per_second",
    "policy/peak_memory_gib",
    "policy/flops",
)
"""Figures of what an update cost: sequences that share a prompt in one pass compute it once."""


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Sum as each of the two processes does: with more threads float32 sums in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which one rank has saved, and then two have played."""
    path = tmp_path_factory.mktemp("ranks")
    one = new_rank()
    with threads(1):
        metrics = train(one)
    torch.save((metrics, one.logprobs(random_ids(30, seed=5))), path / "one.pt")
    one.write_weights(path / "one.safetensors")
    one.save(path / "of_one")
    new_rank(options=ADAPTED).save(path / "adapted_of_one")
    tiny_model().save_pretrained(path / "model")
    compact = learner("int8")
    compact.step(batch())
    compact.save(path / "compact_of_one")
    run_two_ranks(path)
    return path


def distance(path: Path, first: str, second: str) -> float:
    """Norm of the difference of two sets of weights over the norm of the first."""
    a, b = (load_file(path / f"{name}.safetensors") for name in (first, second))
    assert a.keys() == b.keys()
    total = sum(tensor.square().sum() for tensor in a.values())
    return float((sum((a[n] - b[n]).square().sum() for n in a) / total).sqrt())


def test_twenty_recorded_batches_give_one_and_two_ranks_the_same_weights(played: Path) -> None:
    assert distance(played, "one", "weights") < 1e-5
    _, expected = torch.load(played / "one.pt")
    found = torch.load(played / "logprobs.pt")
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)


def test_every_metric_of_every_step_agrees(played: Path) -> None:
    expected, _ = torch.load(played / "one.pt")
    found = json.loads((played / "metrics.json").read_text())
    assert len(found) == NUM_BATCHES
    for step, (one, two) in enumerate(zip(expected, found, strict=True)):
        assert one.keys() == two.keys()
        for name in one.keys() - set(SPENT):
            assert two[name] == pytest.approx(one[name], rel=1e-5, abs=1e-6), (step, name)


def test_two_ranks_go_on_from_what_one_saved(played: Path) -> None:
    assert distance(played, "uninterrupted", "of_one_resumed") < 1e-5


def test_two_ranks_go_on_bit_for_bit_from_what_two_saved(played: Path) -> None:
    assert distance(played, "uninterrupted", "of_two_resumed") == 0.0


def test_one_rank_goes_on_from_what_two_saved(played: Path) -> None:
    one = LearnerRank(tiny_model(seed=9), OPTIONS)
    one.load(played / "of_two")
    assert one.version == NUM_BATCHES
    one.step(batch())
    one.write_weights(played / "one_resumed.safetensors")
    assert distance(played, "uninterrupted", "one_resumed") < 1e-5


def test_a_non_finite_gradient_on_one_rank_stops_both(played: Path) -> None:
    assert (played / "refused-0").exists()
    assert (played / "refused-1").exists()


def test_bfloat16_with_recomputed_activations_agrees_with_one_rank(played: Path) -> None:
    spec = LearnerSpec(max_micro_tokens=90, policy_dtype="bfloat16")
    one = new_rank(options=LearnerOptions(learner=spec)).step(batch())
    two = json.loads((played / "bfloat16.json").read_text())
    assert two["policy/grad_norm"] == pytest.approx(one["policy/grad_norm"], rel=0.02)
    assert two["policy/num_action_tokens"] == one["policy/num_action_tokens"]


def test_adapters_on_two_ranks_learn_what_those_on_one_do(played: Path) -> None:
    one = new_rank(options=ADAPTED)
    for _ in range(3):
        one.step(batch())
    one.write_weights(played / "adapted_by_one.safetensors")
    one.write_adapter(played / "adapter_of_one")
    assert distance(played, "adapted_by_one", "adapted") < 1e-5
    name = "adapter_model.safetensors"
    factors = load_file(played / "adapter" / name)
    for key, expected in load_file(played / "adapter_of_one" / name).items():
        torch.testing.assert_close(factors[key], expected, atol=1e-5, rtol=1e-4)


def test_what_adapters_were_saved_beside_is_known_on_any_number_of_ranks(played: Path) -> None:
    # Two ranks went on from what one had saved, on the same model, and refused another one.
    assert (played / "refused-start-0").exists()
    assert (played / "refused-start-1").exists()
    with pytest.raises(CheckpointError, match=r"model\.source"):
        LearnerRank(tiny_model(seed=9), ADAPTED).load(played / "adapted_of_two")
    one = new_rank(options=ADAPTED)
    one.load(played / "adapted_of_two")
    assert one.version == 3


def test_a_loss_over_sequences_and_other_policies_is_that_of_one_rank(played: Path) -> None:
    one = new_rank(options=COMPARED)
    expected = train(one, NUM_COMPARED)
    one.write_weights(played / "compared_by_one.safetensors")
    assert distance(played, "compared_by_one", "compared") < 1e-5
    found = json.loads((played / "compared.json").read_text())
    for step, (two, alone) in enumerate(zip(found, expected, strict=True)):
        for name in alone.keys() - set(SPENT):
            assert two[name] == pytest.approx(alone[name], rel=1e-4, abs=1e-5), (step, name)
    assert "policy/product_sequence_mask_masked_ratio" in expected[0]
    assert expected[-1]["loss/avg_kl"] > 0.0


def test_moments_of_eight_bits_go_on_on_another_number_of_ranks(played: Path) -> None:
    assert distance(played, "compact", "compact_resumed") == 0.0
    one = learner("int8")
    for source, steps in (("compact_of_one", 2), ("compact_of_two", 1)):
        one.load(played / source)
        for _ in range(steps):
            one.step(batch())
        one.write_weights(played / "compact_alone.safetensors")
        assert distance(played, "compact", "compact_alone") < 1e-5


def test_ranks_that_read_their_parts_learn_what_ranks_with_the_whole_do(played: Path) -> None:
    assert distance(played, "compared", "compared_in_parts") == 0.0


def test_the_values_of_a_token_are_on_one_rank_and_those_of_one_alone(played: Path) -> None:
    one = new_rank(options=KEEPING)
    one.step(numbered(batch()))
    alone = {each.rollout_id: each for each in one.take_token_values()}
    shares = [torch.load(played / f"values-{rank}.pt", weights_only=False) for rank in range(2)]
    assert all(shares)
    both = {each.rollout_id: each for share in shares for each in share}
    assert len(both) == sum(map(len, shares)) == len(alone)
    for name, each in both.items():
        own = alone[name]
        for mine, expected in ((each.gaps, own.gaps), (each.entropies, own.entropies)):
            torch.testing.assert_close(
                torch.frombuffer(bytearray(mine), dtype=torch.float16),
                torch.frombuffer(bytearray(expected), dtype=torch.float16),
                atol=1e-3,
                rtol=1e-2,
            )


def test_experts_on_two_ranks_learn_what_those_on_one_do(played: Path) -> None:
    one = LearnerRank(family_model("qwen3_moe"), OPTIONS)
    with threads(1):
        train(one, NUM_COMPARED)
    one.write_weights(played / "experts_of_one.safetensors")
    assert distance(played, "experts_of_one", "experts") < 1e-5
