"""Ranks whose shards are of unequal size, each a process: what they learn and would send."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from hillclimb.spec.training.learner import LearnerSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.trainer.fixtures.forked import run_ranks
from tests.trainer.fixtures.tiny import tiny_model
from tests.trainer.learners.recorded import batch, sequence
from trainer.algo.sequences import Batch
from trainer.learners.model.models import LearnerOptions
from trainer.learners.model.sharding import RankGroup
from trainer.learners.rank import LearnerRank

LEARNER = LearnerSpec(max_micro_tokens=90, logprob_chunk_tokens=16, activation_checkpointing=True)
OPTIONS = LearnerOptions(optimizer=OptimizerSpec(lr=1e-3), learner=LEARNER, total_steps=2)
DEADLINE_S = 120.0


def batches() -> tuple[Batch, Batch]:
    """A step in which every rank has work, and one of a single rollout: the others have none."""
    lonely = sequence(prompt=0, sample=40, length=20, advantage=1.0)
    return batch(), Batch(mini_batches=((lonely,),))


def learn(path: Path, name: str, world: RankGroup | None = None) -> None:
    """Take both steps; rank 0 writes weights, metrics, and whether the chunks are the file's."""
    rank = LearnerRank(tiny_model(), OPTIONS, world)
    metrics = [rank.step(each) for each in batches()]
    shards = {each: len(part.to_local()) for each, part in rank._models.parameters.items()}
    written = rank.write_weights(path / f"{name}.safetensors")
    chunks = rank.sender.chunks(rank.version)
    for chunk in chunks.chunks:
        rank.sender.send(chunk)
    sent = rank.sender.digests()
    (path / f"{name}-shards-{rank._ranks.rank}.json").write_text(json.dumps(shards))
    if rank._ranks.rank == 0:
        found = {"metrics": metrics, "is_sent_whole": sent.digests == written.digests}
        (path / f"{name}.json").write_text(json.dumps(found))


def learn_together(path: Path, size: int) -> None:
    """Let processes learn together, and return when all have ended well."""
    run_ranks(_learn, (size, str(path)), size=size, deadline_s=DEADLINE_S)


def _learn(index: int, size: int, directory: str) -> None:
    torch.set_num_threads(1)
    world = RankGroup(
        rank=index, size=size, init_method=f"file://{directory}/meeting", timeout_s=DEADLINE_S
    )
    learn(Path(directory), f"of_{size}", world)
    torch.distributed.destroy_process_group()
