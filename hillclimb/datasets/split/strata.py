"""Stratified sampling of eval tasks: each kind of task gets its share of them.

Sizes follow the method of largest remainders: of n eval tasks a kind with share s gets n*s, rounded
down or up, up for the largest remainders. If some eval tasks are fixed (an earlier version's), the
others compensate for their kinds as far as possible.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hillclimb.datasets.format.rows import TaskRow

StratumField = Literal["difficulty", "task_modality"]
Stratum = tuple[str, ...]


def strata_of(rows: Iterable[TaskRow], fields: Sequence[StratumField]) -> dict[str, Stratum]:
    """Return the kind of each task by key; tasks without a difficulty form a separate kind."""
    return {row.key: tuple(str(getattr(row, name)) for name in fields) for row in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class StratumPool:
    """Tasks of one environment, from which eval tasks are drawn."""

    tasks: Sequence[str]
    """Keys of all of them."""
    free: Sequence[str]
    """Keys of the tasks that may be drawn, in order of preference."""
    kinds: Mapping[str, Stratum]
    """Kind of each task, by key."""

    def draw(self, number: int, *, beside: Iterable[str]) -> list[str]:
        """Return `number` free tasks (all, if there are fewer), balanced with those in `beside`."""
        number = max(0, min(number, len(self.free)))
        sizes = Counter(self.kinds[key] for key in self.tasks)
        counts = Counter(self.kinds[key] for key in beside)
        total = number + sum(counts.values())
        waiting: dict[Stratum, deque[str]] = {kind: deque() for kind in sorted(sizes)}
        for key in self.free:
            waiting[self.kinds[key]].append(key)
        keys_drawn: list[str] = []
        while len(keys_drawn) < number:
            # In whole numbers: how far a kind is below its share, times the number of tasks.
            kind = max(
                (kind for kind, keys in waiting.items() if keys),
                key=lambda kind: total * sizes[kind] - len(self.tasks) * counts[kind],
            )
            counts[kind] += 1
            keys_drawn.append(waiting[kind].popleft())
        return keys_drawn
