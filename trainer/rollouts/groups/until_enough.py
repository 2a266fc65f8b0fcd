"""Requests that end once the rollouts of their first tasks are enough."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from hillclimb.environment.task import Task
from trainer.rollouts.request import Rollout, RolloutRequest, RolloutRunner


class StopRule(Protocol):
    """Rule that says how many of the first tasks of a request are enough."""

    @property
    def num_enough(self) -> int | None:
        """Number of the first tasks that are enough, all of which have ended; None: not yet."""
        ...

    def add(self, index: int, rollouts: Sequence[Rollout]) -> None:
        """Note the rollouts of the task at `index`: all of them have ended, in any order."""
        ...

    def is_foreseeable(self, num_begun: int) -> bool:
        """Return True if the first `num_begun` tasks will be enough however they end.

        All of their rollouts have begun, and one of them at least has not ended.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstGroups:
    """The rollouts of the first tasks of a request."""

    groups: tuple[tuple[Rollout, ...], ...]
    num_discarded: int
    """Rollouts of later tasks that had begun; whether they ended or not, `groups` lacks them."""


@dataclass(slots=True, kw_only=True)
class UntilEnough:
    """The rollouts of one request, which begin in the order of the tasks.

    None begins while the rule foresees its decision. A rollout holds its slot until the rule has
    heard of it, so the next one does not slip in between.
    """

    tasks: Sequence[Task]
    request: RolloutRequest
    rule: StopRule
    runner: RolloutRunner
    slot: Callable[[], AbstractAsyncContextManager[None]]
    _num_begun: int = 0
    _groups: dict[int, dict[int, Rollout]] = field(default_factory=dict)
    _may_begin: asyncio.Event = field(default_factory=asyncio.Event)
    _is_enough: asyncio.Event = field(default_factory=asyncio.Event)

    async def collect(self) -> FirstGroups:
        """Return the rollouts of as many first tasks as are enough, and cancel the others.

        Raises:
            TrainerError: the engine failed; rollouts in flight are cancelled and closed.
        """
        size = self.request.n_samples_per_prompt
        self._may_begin.set()
        running = [
            asyncio.create_task(self._run(index, sample))
            for index in range(len(self.tasks))
            for sample in range(size)
        ]
        enough = asyncio.create_task(self._is_enough.wait())
        everything = asyncio.gather(*running)
        try:
            await asyncio.wait((everything, enough), return_when=asyncio.FIRST_COMPLETED)
            if everything.done():
                everything.result()
        finally:
            enough.cancel()
            for each in running:
                each.cancel()
            await asyncio.gather(enough, everything, *running, return_exceptions=True)
        number = self.rule.num_enough or len(self.tasks)
        return FirstGroups(
            groups=tuple(self._group(index) for index in range(number)),
            num_discarded=self._num_begun - size * number,
        )

    async def _run(self, index: int, sample_index: int) -> None:
        async with self.slot():
            await self._may_begin.wait()
            self._num_begun += 1
            rollout = await self.runner.run_rollout(self.tasks[index], sample_index, self.request)
            group = self._groups.setdefault(index, {})
            group[sample_index] = rollout
            if len(group) == self.request.n_samples_per_prompt:
                self._hear(index)

    def _hear(self, index: int) -> None:
        """Tell the rule of a task, and let rollouts begin or wait as it says."""
        self.rule.add(index, self._group(index))
        if self.rule.num_enough is not None:
            self._is_enough.set()
        size = self.request.n_samples_per_prompt
        if self._is_enough.is_set() or self.rule.is_foreseeable(self._num_begun // size):
            self._may_begin.clear()
        else:
            self._may_begin.set()

    def _group(self, index: int) -> tuple[Rollout, ...]:
        return tuple(rollout for _, rollout in sorted(self._groups[index].items()))
