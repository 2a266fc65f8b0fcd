"""The order in which a run meets its training tasks."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from trainer.errors import CheckpointError, DataError
from trainer.types import Task


class TaskSampler:
    """Draws the tasks of each step, balanced over environments, each task once per epoch.

    Every environment gives `prompts_per_step // environments` tasks a step; what is left over goes
    to different environments in turn. An environment's epoch is its own: a small one comes round
    sooner. The order is a function of the seed, so the state is two numbers.

    Raises:
        DataError: no tasks, equal keys, or fewer tasks in an environment than a step may take.
    """

    def __init__(self, tasks: Sequence[Task], prompts_per_step: int, seed: int) -> None:
        if not tasks or prompts_per_step < 1:
            raise DataError("a sampler needs at least one task and one prompt per step")
        if len({task.key for task in tasks}) != len(tasks):
            raise DataError("task keys must be unique")
        self._pools: dict[str, list[Task]] = {}
        for task in tasks:
            self._pools.setdefault(task.env_key, []).append(task)
        self._most = -(-prompts_per_step // len(self._pools))
        small = [key for key, pool in self._pools.items() if len(pool) < self._most]
        if small:
            raise DataError(f"{', '.join(small)}: fewer than {self._most} tasks, one step's share")
        self._prompts_per_step = prompts_per_step
        self._seed = seed
        self._step = 0
        keys = "\n".join(task.key for task in tasks)
        self._digest = hashlib.sha256(keys.encode()).hexdigest()
        self._queues: dict[str, list[Task]] = {key: [] for key in self._pools}
        self._epochs: dict[str, int] = dict.fromkeys(self._pools, 0)

    def next_step(self) -> tuple[Task, ...]:
        """Return the next step's `prompts_per_step` tasks, no two the same where pools allow it."""
        drawn: list[Task] = []
        for env_key, count in self._shares().items():
            queue = self._queues[env_key]
            if len(queue) < count:
                queue = self._queues[env_key] = queue + self._next_epoch(env_key, last=queue)
            drawn += queue[:count]
            del queue[:count]
        self._step += 1
        return tuple(drawn)

    def state(self) -> dict[str, JsonValue]:
        """Return the position as JSON; `from_state` continues with the exact next step."""
        return {
            "step": self._step,
            "seed": self._seed,
            "prompts_per_step": self._prompts_per_step,
            "tasks_sha256": self._digest,
        }

    @classmethod
    def from_state(
        cls, tasks: Sequence[Task], state: Mapping[str, JsonValue], *, prompts_per_step: int
    ) -> TaskSampler:
        """Return a sampler that continues after the step at which `state` was taken.

        Raises:
            CheckpointError: the state is malformed, or belongs to other tasks or to steps of
                another size: its position means nothing there.
        """
        step, seed, size = (state.get(key) for key in ("step", "seed", "prompts_per_step"))
        if not isinstance(step, int) or not isinstance(seed, int) or not isinstance(size, int):
            raise CheckpointError("sampler state is malformed")
        if size != prompts_per_step:
            raise CheckpointError(
                f"the checkpoint's steps have {size} prompts: set schedule.train_batch_size to"
                f" {size} ({prompts_per_step} asked for)"
            )
        sampler = cls(tasks, size, seed)
        if sampler._digest != state.get("tasks_sha256"):
            raise CheckpointError("sampler state belongs to another set of tasks")
        for _ in range(step):
            sampler.next_step()
        return sampler

    def _shares(self) -> dict[str, int]:
        keys = list(self._pools)
        each, left = divmod(self._prompts_per_step, len(keys))
        first = self._step * left
        bonus = {keys[(first + turn) % len(keys)] for turn in range(left)}
        return {key: each + (key in bonus) for key in keys}

    def _next_epoch(self, env_key: str, last: list[Task]) -> list[Task]:
        """A new order in which the leftovers of the old epoch, drawn in this step, come late."""
        rng = random.Random(f"{self._seed}/{env_key}/{self._epochs[env_key]}")
        self._epochs[env_key] += 1
        order = rng.sample(self._pools[env_key], len(self._pools[env_key]))
        waiting = {task.key for task in last}
        return [task for task in order if task.key not in waiting] + [
            task for task in order if task.key in waiting
        ]
