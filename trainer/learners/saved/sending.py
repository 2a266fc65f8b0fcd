"""A rank's part in a weight sync without a file: `trainer.weights.chunks`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import torch

from trainer.errors import LearnerError
from trainer.learners.model import export
from trainer.learners.model.sharding import Ranks
from trainer.weights.broadcast import WeightBroadcastGroup
from trainer.weights.chunks import WeightChunk, WeightChunks, chunk_weights, split_chunk
from trainer.weights.digests import WeightDigests, tensor_digests
from trainer.weights.ipc import export_ipc_handle


class Sender:
    """Sends weight chunks; called on all ranks alike, since all take part in gathering a chunk."""

    def __init__(
        self,
        parameters: Mapping[str, torch.nn.Parameter],
        precision: export.Precision,
        ranks: Ranks,
    ) -> None:
        self._parameters, self._precision, self._ranks = parameters, precision, ranks
        self._group: WeightBroadcastGroup | None = None
        self._exported: torch.Tensor | None = None
        self._digests = WeightDigests(0, {})

    def chunks(self, version: int) -> WeightChunks:
        """Return the chunks to send, and reset the digests."""
        self._digests = WeightDigests(version, {})
        shapes = export.shapes(self._parameters, self._precision)
        return WeightChunks(version, chunk_weights(shapes))

    def init_group(self, address: str, size: int) -> None:
        """Join the engines' broadcast group, on rank 0.

        Raises:
            LearnerError: not all members joined in time.
        """
        if self._ranks.rank == 0:
            with _faults_named():
                self._group = WeightBroadcastGroup(address, 0, size, self._ranks.device)

    def send(self, chunk: WeightChunk) -> None:
        """Gather the chunk and broadcast it from rank 0.

        Raises:
            LearnerError: another member has exited.
        """
        flat = self._flat(chunk)
        if self._group is not None:
            with _faults_named():
                self._group.broadcast(flat)

    def export_ipc_handles(self, chunk: WeightChunk) -> bytes:
        """Gather the chunk and return its IPC handle (`trainer.weights.ipc`).

        The tensor is referenced until the next call or the release: its memory is the handle's.
        """
        self._exported = self._flat(chunk)
        return export_ipc_handle(self._exported)

    def release_ipc_handles(self) -> None:
        """Free the memory behind the last handle."""
        self._exported = None

    def digests(self) -> WeightDigests:
        """Return the digests of all chunks sent since `chunks`; complete on rank 0 only."""
        return self._digests

    def _flat(self, chunk: WeightChunk) -> torch.Tensor:
        dtype: torch.dtype = getattr(torch, chunk[0].dtype)
        flat = export.flat(self._parameters, [tensor.name for tensor in chunk], dtype)
        if self._ranks.rank == 0:
            digests = {**self._digests.digests, **tensor_digests(split_chunk(flat, chunk))}
            self._digests = replace(self._digests, digests=digests)
        return flat


@contextmanager
def _faults_named() -> Iterator[None]:
    try:
        yield
    except RuntimeError as fault:
        raise LearnerError(f"the weights were not broadcast: {fault}") from fault
