"""Processes that share sequences, for `test_group.py`: one start per world for all its claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from hillclimb.spec.training.algorithm import AlgorithmSpec, OffPolicyCorrectionSpec
from hillclimb.spec.training.learner import LearnerSpec, LoraSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.trainer.fixtures.families import family_model
from tests.trainer.fixtures.forked import run_ranks
from tests.trainer.fixtures.tiny import random_ids, tiny_model
from tests.trainer.learners.recorded import batch, recorded_batches, sequence
from trainer.algo.sequences import Batch
from trainer.learners.model.models import LearnerOptions
from trainer.learners.model.sharding import RankGroup, reshard
from trainer.learners.rank import LearnerRank
from trainer.learners.update.summary import Update

DEADLINE_S = 120.0
SPEC = LearnerSpec(max_micro_tokens=60, logprob_chunk_tokens=16)
CORRECTED = OffPolicyCorrectionSpec(tis_ratio_type="sequence", sequence_mask_metric="product")
REFERENCE = {"use_kl_loss": True, "kl_loss_coef": 0.1}
RECOMPUTED = {"activation_checkpointing": True, "keep_activations": "attention"}
CASES: Mapping[str, LearnerOptions] = {
    name: LearnerOptions(learner=spec, algorithm=AlgorithmSpec.model_validate(algorithm))
    for name, spec, algorithm in (
        ("regular", SPEC, {}),
        ("dual clip", SPEC, {"policy_loss_type": "dual_clip"}),
        ("cispo", SPEC, {"policy_loss_type": "cispo", "loss_reduction": "sequence_mean"}),
        (
            "whole sequences and a reference", SPEC,
            {
                "policy_loss_type": "gspo", "loss_reduction": "sequence_mean",
                "eps_clip_low": 3e-4, "eps_clip_high": 4e-4,
                "off_policy_correction": CORRECTED, **REFERENCE,
            },
        ),
        ("adapters", SPEC.model_copy(update={"lora": LoraSpec(rank=4, alpha=8)}), REFERENCE),
        ("recomputed", SPEC.model_copy(update=RECOMPUTED), {}),
    )
}  # fmt: skip
NUM_STEPS = 6
TRAINED = LearnerOptions(
    optimizer=OptimizerSpec(lr=1e-3), learner=SPEC, total_steps=NUM_STEPS, keeps_token_values=True
)

REPLAYED = replace(
    TRAINED,
    # An expert of few tokens has gradients of the size of rounding, which Adam would make steps of.
    optimizer=OptimizerSpec(lr=1e-3, eps=1e-3),
    learner=SPEC.model_copy(update={"routing_replay": True}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """How many processes, and in which groups each of them plays in turn."""

    num_ranks: int
    sizes: tuple[int, ...]


WORLDS = (World(num_ranks=2, sizes=(2,)), World(num_ranks=4, sizes=(4, 2)))


def families() -> Batch:
    """Three prompts with branches of 8 to 38 tokens, one branch of a single token among them."""
    (sequences,) = batch(temperature=0.8).mini_batches
    named = [replace(one, rollout_id=str(index)) for index, one in enumerate(sequences)]
    whole = sequence(prompt=1, sample=30, length=8, advantage=1.5, temperature=0.8)
    end = whole.prompt_length + 1
    short = replace(
        whole,
        token_ids=whole.token_ids[:end],
        action_mask=whole.action_mask[:end],
        logprobs=whole.logprobs[:end],
        rollout_id="short",
    )
    return Batch(mini_batches=((*named, short),))


def pass_over(rank: LearnerRank) -> dict[str, Any]:
    """Log-probs by rollout, loss, statistics and gradients of the families, as all ranks see them.

    The policy is moved first, away from the one that drew the tokens and from the reference.
    """
    rank.step(batch())
    (sequences,) = families().mini_batches
    packed = [rank._with_other_policies(micro) for micro in rank._pack(sequences)]
    logprobs: dict[str, list[float]] = {}
    rank._optimizer.zero_grad(set_to_none=True)
    total = Update()
    for micro in packed:
        with torch.no_grad():
            found, entropies = rank._models.policy(micro)
        reshard(rank._models.policy)
        for index, one in enumerate(micro.sequences):
            own = micro.actions.sequences_A == index
            logprobs[one.rollout_id] = torch.stack((found, entropies))[:, own].tolist()
        total += rank._backward(micro)
    gathered = rank._ranks.gather(logprobs)
    return {
        "logprobs": {name: each for one in gathered for name, each in one.items()},
        "update": sum(rank._ranks.gather(total), Update()),
        "gradients": {name: each.grad.full_tensor() for name, each in rank._models.trained.items()},
    }


def rank_of(options: LearnerOptions, size: int = 1, world: RankGroup | None = None) -> LearnerRank:
    learner = options.learner.model_copy(update={"context_parallel_size": size})
    return LearnerRank(tiny_model(), replace(options, learner=learner), world)


def train(rank: LearnerRank, count: int = NUM_STEPS) -> list[dict[str, float]]:
    """Learn from recorded batches, some of which have one rollout: a filler for a group."""
    return [rank.step(each) for each in recorded_batches(count)]


def train_experts(size: int = 1, world: RankGroup | None = None) -> tuple[LearnerRank, Any]:
    """Learn by experts that follow from a token's place: each rank needs those of its own part."""
    learner = REPLAYED.learner.model_copy(update={"context_parallel_size": size})
    model = family_model("qwen3_moe", num_attention_heads=4)
    rank = LearnerRank(model, replace(REPLAYED, learner=learner), world)
    return rank, [rank.step(_routed(each, rank)) for each in recorded_batches(2)]


def _routed(batch: Batch, rank: LearnerRank) -> Batch:
    config: Any = rank._models.config
    chosen = np.arange(config.num_experts_per_tok)

    def routes(length: int) -> np.ndarray[Any, Any]:
        places = np.arange(length)[:, None, None] + np.arange(config.num_hidden_layers)[:, None]
        return ((places + chosen) % config.num_experts).astype(np.uint8)

    return Batch(
        mini_batches=tuple(
            tuple(replace(one, routes=routes(len(one.token_ids))) for one in sequences)
            for sequences in batch.mini_batches
        )
    )


def run(world: World, directory: Path) -> None:
    """Let the processes play, and return when all have ended well."""
    directory.mkdir()
    run_ranks(_play, (world, str(directory)), size=world.num_ranks, deadline_s=DEADLINE_S)


def _play(index: int, world: World, directory: str) -> None:
    torch.set_num_threads(1)
    path = Path(directory)
    group = RankGroup(
        rank=index, size=world.num_ranks, init_method=f"file://{path}/meeting",
        timeout_s=DEADLINE_S,
    )  # fmt: skip
    for size in world.sizes:
        for play in (_compute, _learn, _go_on, _learn_experts):
            play(group, size, path)
    dist.destroy_process_group()


def _compute(world: RankGroup, size: int, path: Path) -> None:
    found = {name: pass_over(rank_of(options, size, world)) for name, options in CASES.items()}
    if world.rank == 0:
        torch.save(found, path / f"passes-{size}.pt")


def _learn(world: RankGroup, size: int, path: Path) -> None:
    rank = rank_of(TRAINED, size, world)
    metrics = train(rank)
    values = rank._ranks.gather(rank.take_token_values())
    logprobs = rank.logprobs(random_ids(30, seed=5))
    rank.write_weights(path / f"trained-{size}.safetensors")
    rank.save(path / f"saved-{size}")
    rank.step(families())
    rank.write_weights(path / f"uninterrupted-{size}.safetensors")
    if world.rank == 0:
        torch.save((metrics, values, logprobs), path / f"trained-{size}.pt")


def _go_on(world: RankGroup, size: int, path: Path) -> None:
    """Resume what the same groups saved, and what one rank saved alone."""
    for name, source in (("own", path / f"saved-{size}"), ("one", path.parent / "saved-1")):
        rank = rank_of(TRAINED, size, world)
        rank.load(source)
        rank.step(families())
        rank.write_weights(path / f"resumed-{name}-{size}.safetensors")


def _learn_experts(world: RankGroup, size: int, path: Path) -> None:
    rank, metrics = train_experts(size, world)
    rank.write_weights(path / f"experts-{size}.safetensors")
    if world.rank == 0:
        torch.save(metrics, path / f"experts-{size}.pt")
