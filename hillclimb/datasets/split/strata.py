"""Draws eval tasks so that each kind of task is among them as it is among all tasks.

The parts are those of the method of largest remainders: of n eval tasks a kind with a share s gets
n*s, rounded down or up, and those with the largest remainders are rounded up. Where the kinds of
some eval tasks are given (an earlier version's), the others make up for them as far as they can.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trainer.contract.datasets.rows import TaskRow

StratumField = Literal["difficulty", "task_modality"]
Stratum = tuple[str, ...]


def strata_of(rows: Iterable[TaskRow], fields: Sequence[StratumField]) -> dict[str, Stratum]:
    """Return the kind of each task by key; a task without a difficulty is of a kind of its own."""
    return {row.key: tuple(str(getattr(row, name)) for name in fields) for row in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The tasks of one environment, of which some are drawn for evaluation."""

    tasks: Sequence[str]
    """Keys of all of them."""
    free: Sequence[str]
    """Keys of those that may be drawn, the first ones first."""
    kinds: Mapping[str, Stratum]
    """Kind of each task, by key."""

    def draw(self, number: int, *, beside: Iterable[str]) -> list[str]:
        """Return `number` of the free tasks (all, if there are fewer) to go beside given ones."""
        number = max(0, min(number, len(self.free)))
        sizes = Counter(self.kinds[key] for key in self.tasks)
        taken = Counter(self.kinds[key] for key in beside)
        total = number + sum(taken.values())
        waiting: dict[Stratum, deque[str]] = {kind: deque() for kind in sorted(sizes)}
        for key in self.free:
            waiting[self.kinds[key]].append(key)
        drawn: list[str] = []
        while len(drawn) < number:
            # In whole numbers: how far a kind is below its share, times the number of tasks.
            kind = max(
                (kind for kind, keys in waiting.items() if keys),
                key=lambda kind: total * sizes[kind] - len(self.tasks) * taken[kind],
            )
            taken[kind] += 1
            drawn.append(waiting[kind].popleft())
        return drawn
