"""One environment's tasks, drawn in epochs of its own."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pydantic import JsonValue

from hillclimb.environment.task import Task
from trainer.errors import CheckpointError


class TaskPool:
    """Deals the tasks of one environment: each once per epoch, every epoch in another order.

    The orders are a function of the seed; the position in them, and the tasks left over when
    the epoch began, are the state.
    """

    def __init__(self, env_key: str, tasks: Sequence[Task], seed: int) -> None:
        self._tasks = tuple(tasks)
        self._name = f"{seed}/{env_key}"
        self._begun = 0
        self._position = 0
        self._late: tuple[int, ...] = ()
        self._order: list[int] = []

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def num_drawn(self) -> int:
        """Tasks drawn so far, repeats of later epochs included."""
        return max(self._begun - 1, 0) * len(self) + self._position

    @property
    def num_covered(self) -> int:
        """Tasks drawn at least once."""
        return min(self.num_drawn, len(self))

    def draw(self, count: int) -> list[Task]:
        """Return the next `count` tasks, at most as many as there are, no two the same."""
        indices = self._order[self._position : self._position + count]
        self._position += len(indices)
        if short := count - len(indices):
            self._begin_epoch(late=tuple(indices))
            self._position = short
            indices = indices + self._order[:short]
        return [self._tasks[index] for index in indices]

    def state(self) -> dict[str, JsonValue]:
        """Return the position as JSON; its size is bounded by what one step draws."""
        return {"epoch": self._begun, "position": self._position, "late": list(self._late)}

    def restore(self, state: JsonValue) -> None:
        """Resume from a `state` of a pool of the same tasks and seed; costs one epoch's shuffle.

        Raises:
            CheckpointError: the state is malformed.
        """
        match state:
            case {"epoch": int(begun), "position": int(position), "late": list(late)}:
                indices = tuple(index for index in late if isinstance(index, int))
                is_whole = len(set(indices)) == len(late) and set(indices) <= set(range(len(self)))
                if begun >= 0 and 0 <= position <= (len(self) if begun else 0) and is_whole:
                    self._begun = begun
                    if begun:
                        self._begun -= 1
                        self._begin_epoch(late=indices)
                    self._position = position
                    return
        raise CheckpointError("sampler state is malformed: the position in an environment's tasks")

    def _begin_epoch(self, late: tuple[int, ...]) -> None:
        """Shuffle anew; tasks that this step drew from the old epoch come last: none repeats."""
        rng = random.Random(f"{self._name}/{self._begun}")
        order = rng.sample(range(len(self)), len(self))
        waiting = set(late)
        self._order = [index for index in order if index not in waiting]
        self._order += [index for index in order if index in waiting]
        self._late = late
        self._begun += 1
