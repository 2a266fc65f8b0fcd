"""Moments in fewer bits: how exact they are, what they save, and that a run goes on with them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from hillclimb.hardware.memory.learner import LearnerMemory
from hillclimb.hardware.model.shapes import shape_of_config
from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.learner import LearnerSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.trainer.fixtures.tiny import tiny_config
from tests.trainer.learners.recorded import batch, recorded_batches
from trainer.algo.sequences import Batch
from trainer.learners.model.models import LearnerOptions
from trainer.learners.model.sharding import RankGroup
from trainer.learners.rank import LearnerRank
from trainer.learners.update.compact import decode, encode, round_randomly
from trainer.learners.update.moments import SCALE, Moments, local

STORED: tuple[Moments, ...] = ("float32", "bfloat16", "int8")


def wider() -> Qwen3ForCausalLM:
    """A policy whose matrices have 4,096 numbers and more; a row of its MLP has two blocks."""
    torch.manual_seed(0)
    values = tiny_config().to_dict() | {"hidden_size": 64, "intermediate_size": 288}
    return Qwen3ForCausalLM(Qwen3Config(**values))  # type: ignore[no-untyped-call]


def learner(
    moments: Moments, *, imitates: bool = False, world: RankGroup | None = None
) -> LearnerRank:
    options = LearnerOptions(
        learner=LearnerSpec(optimizer_moments=moments, max_micro_tokens=400),
        optimizer=OptimizerSpec(lr=3e-3, betas=(0.9, 0.999)),
        imitates=imitates,
    )
    return LearnerRank(wider(), options, world)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("columns", [64, 256, 300])
def test_a_code_is_close_to_its_number_at_any_magnitude(signed: bool, columns: int) -> None:
    values = torch.randn(8, columns) * 10.0 ** torch.linspace(-6, 2, 8).unsqueeze(1)
    values = values if signed else values.square()
    codes, scales = encode(values, signed=signed)
    assert codes.dtype is torch.uint8
    assert codes.shape == values.shape
    found = decode(codes, scales, signed=signed)
    largest = values.abs().amax(-1, keepdim=True)
    assert float(((found - values).abs() / largest).max()) < 0.01
    big = values.abs() > 0.1 * largest
    assert float(((found - values).abs() / values.abs())[big].max()) < 0.08
    # Small numbers keep their magnitude; a linear scale of 8 bits would have stored zeros.
    small = (values.abs() < 1e-2 * largest) & (values.abs() > 1e-4 * largest)
    assert small.any()
    assert bool((found[small] != 0.0).all())


def test_a_block_of_zeros_stays_zero_and_the_largest_number_is_exact() -> None:
    values = torch.zeros(2, 300)
    values[1, 7], values[1, 299] = -3.3, 0.7
    found = decode(*encode(values, signed=True), signed=True)
    assert torch.equal(found[0], values[0])
    assert found[1, 299] == values[1, 299]
    assert float((found - values).abs().max()) < 0.02 * 3.3


def test_random_rounding_is_right_on_average_and_the_same_for_a_seed() -> None:
    """A decay of a thousandth is lost by rounding to the nearest, and kept on average here."""
    values = torch.full((20_000,), 1.0 - 1e-3)
    assert float(values.bfloat16().float().mean()) == 1.0
    found = round_randomly(values, seed=3)
    assert float(found.float().mean()) == pytest.approx(1.0 - 1e-3, abs=1e-4)
    assert torch.equal(found, round_randomly(values, seed=3))
    assert not torch.equal(found, round_randomly(values, seed=4))
    exact = torch.tensor([0.5, -2.0, 0.0])
    assert torch.equal(round_randomly(exact, seed=5).float(), exact)


@pytest.mark.parametrize("moments", STORED)
def test_the_state_takes_the_estimated_bytes(moments: Moments) -> None:
    rank = learner(moments)
    rank.step(batch())
    matrices = {
        each: state for each, state in rank._optimizer.state.items() if each.numel() >= 4096
    }
    numbers = sum(each.numel() for each in matrices)
    stored = sum(
        local(value).nbytes
        for state in matrices.values()
        for key, value in state.items()
        if key != "step" and not key.endswith(SCALE)
    )
    memory = LearnerMemory(
        shape=shape_of_config(wider().config.to_dict()),
        learner=rank._options.learner,
        algorithm=AlgorithmSpec(),
        num_ranks=1,
        max_sequence_length=64,
        by_chunks=False,
    )
    assert stored == int(memory.moment_bytes) * numbers
    assert numbers > 0.9 * rank.num_parameters


def imitated(moments: Moments) -> float:
    """Loss (nats per token) after 24 steps of imitation of the recorded rollouts."""
    rank = learner(moments, imitates=True)
    recorded = recorded_batches(4)
    for step in range(24):
        rank.step(recorded[step % 4])
    whole = Batch(mini_batches=(sum((part for one in recorded for part in one.mini_batches), ()),))
    return rank.step(whole)["policy/final_loss"]


def test_a_policy_learns_with_few_bits_what_it_learns_with_many() -> None:
    losses = {moments: imitated(moments) for moments in STORED}
    before = learner("float32", imitates=True).step(batch())["policy/final_loss"]
    assert losses["float32"] < 0.7 * before, "it has learned something"
    for moments in STORED[1:]:
        assert losses[moments] == pytest.approx(losses["float32"], rel=0.03), losses


@pytest.mark.parametrize("moments", STORED)
def test_a_run_goes_on_bit_for_bit(tmp_path: Path, moments: Moments) -> None:
    first = learner(moments)
    for _ in range(3):
        first.step(batch())
    first.save(tmp_path)
    second = learner(moments)
    second.load(tmp_path)
    for each in (first, second):
        each.step(batch())
        each.step(batch())
    mine, its = first.weights(), second.weights()
    assert all(torch.equal(mine[name], its[name]) for name in mine)


@pytest.mark.parametrize("source", STORED)
@pytest.mark.parametrize("target", STORED)
def test_a_checkpoint_goes_on_with_moments_stored_otherwise(
    tmp_path: Path, source: Moments, target: Moments
) -> None:
    first = learner(source)
    for _ in range(2):
        first.step(batch())
    first.save(tmp_path)
    second = learner(target)
    second.load(tmp_path)
    for each in (first, second):
        each.step(batch())
    mine, its = first.weights(), second.weights()
    assert max(float((mine[n] - its[n]).abs().max()) for n in mine) < 3e-3, "less than one step"
