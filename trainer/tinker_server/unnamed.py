"""Unnamed sampler weights, one set per sampling session: how long they stay.

A client does not say when it is done with a sampling session, and may use one long after others: as
the reference of a KL term, or for an evaluation beside the training. Its weights therefore stay
until its session ends; where they take too much of the disk, the least recently used go first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from trainer.tinker_server.disk import SAMPLER_WEIGHTS, Disk, SavedState
from trainer.tinker_server.errors import RequestRefused

TTL_S = 24 * 3600
"""Lifetime after the last use (seconds): the server that is started again knows no session."""
_PREFIX = "session:"
"""Clients' own names have no colon."""


def is_named(saved: SavedState) -> bool:
    """Tell whether a client has given a checkpoint its name."""
    return not saved.name.startswith(_PREFIX)


class UnnamedWeights:
    """Saves them, and deletes the least recently used ones beyond a number of bytes.

    To be used in one event loop.
    """

    def __init__(self, disk: Disk, *, max_bytes: int) -> None:
        self._disk = disk
        self._max_bytes = max_bytes
        self._sizes: OrderedDict[str, int] = OrderedDict()
        """Bytes by path, the least recently used first."""
        saved = [each for each in disk.all_checkpoints() if not is_named(each)]
        self._sizes.update((each.path, each.size_bytes) for each in saved)

    async def save(self, model_id: str, number: int, write: Callable[[Path], None]) -> SavedState:
        """Save the weights of a model's sampling session; `write` fills their directory."""
        saved = await asyncio.to_thread(
            self._disk.save,
            model_id,
            SAMPLER_WEIGHTS,
            f"{_PREFIX}{number}",
            write,
            ttl_s=TTL_S,
            overwrite=True,
        )
        self._sizes[saved.path] = saved.size_bytes
        self._sizes.move_to_end(saved.path)
        while len(self._sizes) > 1 and sum(self._sizes.values()) > self._max_bytes:
            self._delete(next(iter(self._sizes)))
        return saved

    def use(self, saved: SavedState) -> None:
        """Note that weights are sampled from; named ones are none of ours."""
        if saved.path in self._sizes:
            self._sizes.move_to_end(saved.path)
            self._disk.prolong(saved, TTL_S)

    def end(self, session_id: str) -> None:
        """Delete those of a session that has ended."""
        for path in [each for each in self._sizes if each.startswith(f"tinker://{session_id}:")]:
            self._delete(path)

    def _delete(self, path: str) -> None:
        del self._sizes[path]
        try:
            self._disk.delete(self._disk.find(path))
        except RequestRefused:
            return  # Its client has deleted it, or its time was over.
