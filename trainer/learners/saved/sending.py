"""A rank's part in handing the policy to engines without a file: `trainer.weights.pieces`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import torch

from trainer.errors import LearnerError
from trainer.learners import export
from trainer.learners.sharding import Ranks
from trainer.weights.channel import Channel
from trainer.weights.lending import lent
from trainer.weights.manifest import Manifest, marks
from trainer.weights.pieces import Piece, Pieces, cut, in_pieces


class Sender:
    """Every method is called on all ranks alike: gathering a piece takes all of them."""

    def __init__(
        self, parameters: Mapping[str, torch.nn.Parameter], dtype: torch.dtype, ranks: Ranks
    ) -> None:
        self._parameters, self._dtype, self._ranks = parameters, dtype, ranks
        self._channel: Channel | None = None
        self._lent: torch.Tensor | None = None
        self._sent = Manifest(0, {})

    def pieces(self, version: int) -> Pieces:
        """Say what there is to send."""
        self._sent = Manifest(version, {})
        return Pieces(version, in_pieces(export.shapes(self._parameters, self._dtype)))

    def meet(self, address: str, size: int) -> None:
        """Let rank 0 meet the engines' processes.

        Raises:
            LearnerError: they were not there in time.
        """
        if self._ranks.rank == 0:
            with _faults_named():
                self._channel = Channel(address, 0, size, self._ranks.device)

    def send(self, piece: Piece) -> None:
        """Let rank 0 broadcast the piece.

        Raises:
            LearnerError: one of the others is gone.
        """
        whole = self._flat(piece)
        if self._channel is not None:
            with _faults_named():
                self._channel.broadcast(whole)

    def lend(self, piece: Piece) -> bytes:
        """Return what gives the piece to a process beside this one (`trainer.weights.lending`)."""
        self._lent = self._flat(piece)
        return lent(self._lent)

    def take_back(self) -> None:
        """Forget what was lent."""
        self._lent = None

    def sent(self) -> Manifest:
        """Return what was broadcast or lent since `pieces`; rank 0 knows."""
        return self._sent

    def _flat(self, piece: Piece) -> torch.Tensor:
        whole = export.flat(self._parameters, [tensor.name for tensor in piece], self._dtype)
        if self._ranks.rank == 0:
            found = {**self._sent.marks, **marks(cut(whole, piece))}
            self._sent = replace(self._sent, marks=found)
        return whole


@contextmanager
def _faults_named() -> Iterator[None]:
    try:
        yield
    except RuntimeError as fault:
        raise LearnerError(f"the weights were not broadcast: {fault}") from fault
