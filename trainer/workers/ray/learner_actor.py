"""Ray actor with one rank of the learner."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import ray
import torch

from hillclimb.process.lazy_imports import gc_paused_import
from trainer.algo.sequences import Batch, SequenceValues
from trainer.attempt.storage import raise_storage_full
from trainer.weights.broadcast import free_address
from trainer.weights.chunks import WeightChunk, WeightChunks
from trainer.weights.digests import WeightDigests
from trainer.workers.factory import WorkerFactory
from trainer.workers.ray.shared_disk import has_probe

if TYPE_CHECKING:
    # Imported when the rank starts, with the collector paused (`hillclimb.process.lazy_imports`).
    from trainer.learners.rank import LearnerRank

MAX_RANK_THREADS = 16
"""Threads of a rank beside a GPU: AdamW over offloaded weights is bound by memory, not by cores."""
ALLOCATOR = "PYTORCH_ALLOC_CONF"
"""Variable with the settings of torch's allocator, read when the process first uses its GPU."""


def rank_threads(num_ranks: int, *, has_gpu: bool, num_cores: int) -> int:
    """Return the threads of a rank (count).

    Beside a GPU they update offloaded weights and add their gradients, and nothing else computes
    there; on a machine of CPUs all processes share the cores, and a rank has one.
    """
    return max(1, min(MAX_RANK_THREADS, num_cores // num_ranks)) if has_gpu else 1


def allocator_settings(transport: str) -> dict[str, str]:
    """Return the variables for the GPU allocator of a rank.

    Passes of ever new lengths leave gaps between its blocks; with segments that can grow it closes
    them. Such segments have no IPC handle that an engine could open.
    """
    return {} if transport == "ipc" else {ALLOCATOR: "expandable_segments:True"}


class LearnerActor:
    """One rank of the learner; a save may run beside another call (two at a time).

    Never restarted: its optimizer state would be lost, so a death ends the attempt.
    """

    def __init__(self, factory: WorkerFactory, rank: int, size: int) -> None:
        has_gpu = torch.cuda.is_available()
        cores = os.cpu_count() or 1
        torch.set_num_threads(rank_threads(size, has_gpu=has_gpu, num_cores=cores))
        if has_gpu:
            for name, value in allocator_settings(factory.spec.engine.weight_transport).items():
                os.environ.setdefault(name, value)
        self._factory = factory
        self._rank_number, self._num_ranks = rank, size
        self._rank: LearnerRank | None = None
        self._finish: Callable[[], None] | None = None
        self._saved_in = Path()

    def shares_disk(self, nonce: str) -> bool:
        """See `EngineActor.shares_disk`."""
        return has_probe(self._factory.attempt_dir, nonce)

    def address(self) -> str:
        """Return a free `HOST:PORT` of this rank's machine, as the cluster knows it."""
        return free_address(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]

    def import_learner(self) -> None:
        """Import what `start` needs; touches no GPU."""
        with gc_paused_import():
            importlib.import_module("trainer.learners.rank")

    def start(self, address: str) -> int:
        """Load the model, join the other ranks, and return the number of parameters."""
        with gc_paused_import():
            from trainer.learners.model.sharding import RankGroup  # noqa: PLC0415 - see hillclimb.process.lazy_imports
        world = RankGroup(
            rank=self._rank_number,
            size=self._num_ranks,
            init_method=f"tcp://{address}",
            device=_device(),
        )
        self._rank = self._factory.make_rank(world)
        return self._rank.num_parameters

    def step(self, batch: Batch) -> tuple[dict[str, float], int]:
        """Return the metrics and the new version; see `LearnerRank.step`."""
        metrics = self.rank.step(batch)
        return metrics, self.rank.version

    def take_token_values(self) -> tuple[SequenceValues, ...]:
        """Return those of this rank's sequences; see `LearnerRank.take_token_values`."""
        return self.rank.take_token_values()

    def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """See `LearnerRank.logprobs`."""
        return self.rank.logprobs(token_ids)

    def write_weights(self, path: Path) -> WeightDigests:
        """See `LearnerRank.write_weights`; a full disk is reported as `StorageFull`."""
        with raise_storage_full(path.parent):
            return self.rank.write_weights(path)

    def write_adapter(self, directory: Path) -> WeightDigests:
        """See `LearnerRank.write_adapter`."""
        with raise_storage_full(directory.parent):
            return self.rank.write_adapter(directory)

    def chunks(self) -> WeightChunks:
        """See `Sender.chunks`."""
        return self.rank.sender.chunks(self.rank.version)

    def init_group(self, address: str, size: int) -> None:
        """See `Sender.init_group`."""
        self.rank.sender.init_group(address, size)

    def send(self, chunk: WeightChunk) -> None:
        """See `Sender.send`."""
        self.rank.sender.send(chunk)

    def export_ipc_handles(self, chunk: WeightChunk) -> bytes:
        """See `Sender.export_ipc_handles`."""
        return self.rank.sender.export_ipc_handles(chunk)

    def release_ipc_handles(self) -> None:
        """See `Sender.release_ipc_handles`."""
        self.rank.sender.release_ipc_handles()

    def digests(self) -> WeightDigests:
        """See `Sender.digests`."""
        return self.rank.sender.digests()

    def park(self) -> None:
        """See `LearnerRank.park`."""
        self.rank.park()

    def unpark(self) -> None:
        """See `LearnerRank.unpark`."""
        self.rank.unpark()

    def begin_save(self, directory: Path) -> None:
        """Copy the state to save; `finish_save` writes it."""
        self._saved_in = directory
        with raise_storage_full(directory):
            self._finish = self.rank.begin_save(directory)

    def finish_save(self) -> None:
        """Write the copy of `begin_save`."""
        finish, self._finish = self._finish, None
        if finish is not None:
            with raise_storage_full(self._saved_in):
                finish()

    def load(self, directory: Path) -> int:
        """Resume from a checkpoint and return its version."""
        self.rank.load(directory)
        return self.rank.version

    @property
    def rank(self) -> LearnerRank:
        """The rank that does the work."""
        if self._rank is None:
            raise RuntimeError("the rank was not started")
        return self._rank


def _device() -> str:
    return "cuda:0" if torch.cuda.is_available() else "cpu"
