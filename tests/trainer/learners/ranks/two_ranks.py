"""What each of two processes does in `test_two_ranks.py`: one start for all the claims."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import torch

from hillclimb.spec.training.algorithm import AlgorithmSpec, OffPolicyCorrectionSpec
from hillclimb.spec.training.learner import LearnerSpec, LoraSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.trainer.fixtures.families import family_model
from tests.trainer.fixtures.forked import run_ranks
from tests.trainer.fixtures.tiny import random_ids, tiny_model
from tests.trainer.learners.recorded import batch, recorded_batches, sequence
from tests.trainer.learners.update.test_moments import learner
from trainer.algo.sequences import Batch
from trainer.errors import CheckpointError, NonFiniteUpdate
from trainer.inputs.model.directory import unread_policy
from trainer.learners.model.models import LearnerOptions
from trainer.learners.model.sharding import RankGroup
from trainer.learners.rank import LearnerRank

NUM_BATCHES = 20
OPTIONS = LearnerOptions(
    optimizer=OptimizerSpec(lr=1e-3, lr_scheduler="cosine"),
    learner=LearnerSpec(max_micro_tokens=90, logprob_chunk_tokens=16),
    lr_warmup_steps=3,
    total_steps=NUM_BATCHES,
)
ADAPTED = LearnerOptions(
    optimizer=OptimizerSpec(lr=1e-2),
    learner=LearnerSpec(max_micro_tokens=90, lora=LoraSpec(rank=4, alpha=8)),
)
COMPARED = LearnerOptions(
    algorithm=AlgorithmSpec(
        policy_loss_type="gspo",
        loss_reduction="sequence_mean",
        use_kl_loss=True,
        kl_loss_coef=0.1,
        off_policy_correction=OffPolicyCorrectionSpec(
            tis_ratio_type="sequence", sequence_mask_metric="product"
        ),
    ),
    optimizer=OptimizerSpec(lr=1e-3),
    learner=LearnerSpec(max_micro_tokens=90, logprob_chunk_tokens=16),
)
"""A loss that looks at whole sequences and at two other policies."""
NUM_COMPARED = 5
KEEPING = LearnerOptions(learner=LearnerSpec(max_micro_tokens=90), keeps_token_values=True)
DEADLINE_S = 120.0


def run_two_ranks(directory: Path) -> None:
    """Let two processes play, and return when both have ended well."""
    run_ranks(_play, (str(directory),), size=2, deadline_s=DEADLINE_S)


def new_rank(world: RankGroup | None = None, options: LearnerOptions = OPTIONS) -> LearnerRank:
    return LearnerRank(tiny_model(), options, world)


def train(rank: LearnerRank, count: int = NUM_BATCHES) -> list[dict[str, float]]:
    """Learn from the recorded batches; return the metrics of every step."""
    return [rank.step(each) for each in recorded_batches(count)]


def _play(index: int, directory: str) -> None:
    torch.set_num_threads(1)
    path = Path(directory)
    world = RankGroup(
        rank=index, size=2, init_method=f"file://{path}/meeting", timeout_s=DEADLINE_S
    )
    _agree(world, path)
    _resume(world, path)
    _refuse(world, path)
    _compute_alike(world, path)
    _adapt(world, path)
    _compare(world, path)
    _keep_values(world, path)
    _learn_experts(world, path)
    _go_on_compactly(world, path)
    _read_in_parts(world, path)
    torch.distributed.destroy_process_group()


def _agree(world: RankGroup, path: Path) -> None:
    rank = new_rank(world)
    metrics = train(rank)
    logprobs = rank.logprobs(random_ids(30, seed=5))
    assert rank.write_weights(path / "weights.safetensors").version == NUM_BATCHES
    finish = rank.begin_save(path / "of_two")
    # Both write while both train: their communication must not mix.
    rank.step(batch())
    finish()
    rank.write_weights(path / "uninterrupted.safetensors")
    if world.rank == 0:
        (path / "metrics.json").write_text(json.dumps(metrics))
        torch.save(logprobs, path / "logprobs.pt")


def _resume(world: RankGroup, path: Path) -> None:
    """Two ranks go on from what one rank saved, and from what two saved."""
    for source in ("of_one", "of_two"):
        rank = LearnerRank(tiny_model(seed=9), OPTIONS, world)
        rank.load(path / source)
        assert rank.version == NUM_BATCHES
        rank.step(batch())
        rank.write_weights(path / f"{source}_resumed.safetensors")


def _refuse(world: RankGroup, path: Path) -> None:
    """One poisoned rollout, which one rank alone computes, stops both."""
    rank = new_rank(world)
    poisoned = sequence(prompt=0, sample=0, length=8, advantage=math.nan)
    sound = sequence(prompt=1, sample=1, length=30, advantage=1.0)
    try:
        rank.step(Batch(mini_batches=((poisoned, sound),)))
    except NonFiniteUpdate:
        (path / f"refused-{world.rank}").touch()


def _compute_alike(world: RankGroup, path: Path) -> None:
    """Activation checkpointing with bfloat16, whose weights of record stay float32."""
    spec = LearnerSpec(max_micro_tokens=90, policy_dtype="bfloat16", activation_checkpointing=True)
    rank = new_rank(world, LearnerOptions(learner=spec))
    metrics = rank.step(batch())
    if world.rank == 0:
        (path / "bfloat16.json").write_text(json.dumps(metrics))


def _adapt(world: RankGroup, path: Path) -> None:
    """Adapters are sharded too, their whole is written, and they know what they stand beside."""
    rank = new_rank(world, ADAPTED)
    rank.load(path / "adapted_of_one")
    for _ in range(3):
        rank.step(batch())
    rank.write_adapter(path / "adapter")
    rank.write_weights(path / "adapted.safetensors")
    rank.save(path / "adapted_of_two")
    try:
        LearnerRank(tiny_model(seed=9), ADAPTED, world).load(path / "adapted_of_one")
    except CheckpointError:
        (path / f"refused-start-{world.rank}").touch()


def _compare(world: RankGroup, path: Path) -> None:
    """The frozen reference is sharded as well, and sequences are summed on the rank they are on."""
    rank = new_rank(world, COMPARED)
    metrics = train(rank, NUM_COMPARED)
    rank.write_weights(path / "compared.safetensors")
    if world.rank == 0:
        (path / "compared.json").write_text(json.dumps(metrics))


def _go_on_compactly(world: RankGroup, path: Path) -> None:
    """Moments of 8 bits, as one rank stored them and as these two do."""
    rank = learner("int8", world=world)
    rank.load(path / "compact_of_one")
    rank.step(batch())
    rank.save(path / "compact_of_two")
    rank.step(batch())
    rank.write_weights(path / "compact.safetensors")
    rank = learner("int8", world=world)
    rank.load(path / "compact_of_two")
    rank.step(batch())
    rank.write_weights(path / "compact_resumed.safetensors")


def _read_in_parts(world: RankGroup, path: Path) -> None:
    """Policy and reference, of which each rank reads its rows."""
    unread = unread_policy(path / "model")
    assert unread is not None
    rank = LearnerRank(unread[0], COMPARED, world, files=unread[1])
    train(rank, NUM_COMPARED)
    rank.write_weights(path / "compared_in_parts.safetensors")


def numbered(each: Batch) -> Batch:
    """The batch with a name for each rollout."""
    parts = tuple(
        tuple(replace(one, rollout_id=str(index)) for index, one in enumerate(part))
        for part in each.mini_batches
    )
    return Batch(mini_batches=parts)


def _keep_values(world: RankGroup, path: Path) -> None:
    """Each rank keeps the values of the rollouts that are its share."""
    rank = new_rank(world, KEEPING)
    rank.step(numbered(batch()))
    torch.save(rank.take_token_values(), path / f"values-{world.rank}.pt")


def _learn_experts(world: RankGroup, path: Path) -> None:
    """Experts are cut over the ranks by number, and gathered layer by layer."""
    rank = LearnerRank(family_model("qwen3_moe"), OPTIONS, world)
    train(rank, NUM_COMPARED)
    rank.write_weights(path / "experts.safetensors")
