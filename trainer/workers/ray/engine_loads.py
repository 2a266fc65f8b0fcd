"""Choice of an engine for a group of rollouts, by the work that each engine has."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

MAX_GROUPS = 4096
"""Groups that are remembered. Of an evaluation that stops early some never run all rollouts; the
oldest group makes place, and a rollout of it that does come is placed anew."""


@dataclass(slots=True)
class _Group:
    engine: int
    open: int
    """Rollouts that have not ended, those to come included."""


class EngineLoads:
    """Rollouts by engine: the first one of a group goes where least work is, its siblings follow.

    They share a prompt, which one engine caches once. A group counts as all its rollouts at once.
    Only the trainer's process sees every rollout, so it decides for all rollout workers.
    """

    def __init__(self, num_engines: int) -> None:
        self._loads = [0] * num_engines
        self._groups: OrderedDict[Hashable, _Group] = OrderedDict()

    @property
    def loads(self) -> tuple[int, ...]:
        """Rollouts of each engine that have not ended."""
        return tuple(self._loads)

    @contextmanager
    def place(self, group: Hashable, num_rollouts: int) -> Iterator[int]:
        """Return the number of the engine for one of the group's rollouts, which is the block."""
        placed = self._groups.get(group)
        if placed is None:
            placed = _Group(self._loads.index(min(self._loads)), num_rollouts)
            self._loads[placed.engine] += num_rollouts
            self._groups[group] = placed
            if len(self._groups) > MAX_GROUPS:
                self._forget(next(iter(self._groups)))
        try:
            yield placed.engine
        finally:
            self._end(group, placed)

    def _end(self, group: Hashable, placed: _Group) -> None:
        # A group that was forgotten has given back its share already.
        if self._groups.get(group) is not placed:
            return
        placed.open -= 1
        self._loads[placed.engine] -= 1
        if not placed.open:
            del self._groups[group]

    def _forget(self, group: Hashable) -> None:
        placed = self._groups.pop(group)
        self._loads[placed.engine] -= placed.open
