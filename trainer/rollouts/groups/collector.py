"""Collector: runs the rollouts of many tasks concurrently, and returns them in a fixed order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from hillclimb.environment.task import Task
from trainer.rollouts.groups.prompt_consistency import with_one_prompt
from trainer.rollouts.groups.until_enough import FirstGroups, StopRule, UntilEnough
from trainer.rollouts.limits.priority_semaphore import PrioritySemaphore
from trainer.rollouts.request import Rollout, RolloutRequest, RolloutRunner
from trainer.types import Group


class Collector:
    """Runs the rollouts of tasks, at most `max_concurrent_rollouts` rollouts at a time.

    An evaluation goes first: training waits for it, and not for rollouts of later steps.
    """

    def __init__(self, rollout_runner: RolloutRunner, *, max_concurrent_rollouts: int) -> None:
        self._runner = rollout_runner
        self._slots = PrioritySemaphore(max_concurrent_rollouts)

    async def collect(
        self,
        tasks: Sequence[Task],
        request: RolloutRequest,
        *,
        on_completed: Callable[[Rollout], None] = lambda _: None,
    ) -> tuple[tuple[Rollout, ...], ...]:
        """Return the rollouts of each task, in the order of `tasks` and of their samples.

        `on_completed` is called with each rollout as it completes, also if this is cancelled later.

        Raises:
            TrainerError: the engine failed; rollouts in flight are cancelled and closed.
        """
        n = request.n_samples_per_prompt
        samples = [(task, index) for task in tasks for index in range(n)]
        rollouts = await self._gather(samples, request, on_completed)
        return tuple(tuple(rollouts[start : start + n]) for start in range(0, len(rollouts), n))

    async def collect_until(
        self, tasks: Sequence[Task], request: RolloutRequest, rule: StopRule
    ) -> FirstGroups:
        """Return the rollouts of the first tasks, as many as the rule says are enough.

        Raises:
            TrainerError: the engine failed; rollouts in flight are cancelled and closed.
        """
        until = UntilEnough(
            tasks=tasks,
            request=request,
            rule=rule,
            runner=self._runner,
            slot=lambda: self._slot(request),
        )
        return await until.collect()

    async def group(self, task: Task, request: RolloutRequest) -> tuple[Rollout, ...]:
        """Return the rollouts of one task, in the order of its samples; raises as `collect`.

        A group shares one baseline, so a rollout with another prompt becomes an infra error.
        """
        samples = [(task, index) for index in range(request.n_samples_per_prompt)]
        return with_one_prompt(await self._gather(samples, request))

    async def _gather(
        self,
        samples: Sequence[tuple[Task, int]],
        request: RolloutRequest,
        on_completed: Callable[[Rollout], None] = lambda _: None,
    ) -> list[Rollout]:
        async def run_rollout(task: Task, sample_index: int) -> Rollout:
            rollout = await self._bounded(task, sample_index, request)
            on_completed(rollout)
            return rollout

        running = [asyncio.create_task(run_rollout(task, index)) for task, index in samples]
        try:
            return await asyncio.gather(*running)
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _bounded(self, task: Task, sample_index: int, request: RolloutRequest) -> Rollout:
        async with self._slot(request):
            return await self._runner.run_rollout(task, sample_index, request)

    def _slot(self, request: RolloutRequest) -> AbstractAsyncContextManager[None]:
        return self._slots.acquire(turn=0 if request.split == "eval" else 1)


def as_groups(rollouts: Sequence[Sequence[Rollout]]) -> tuple[Group, ...]:
    """Return the groups the algorithm learns from, one per task."""
    return tuple(
        Group(
            task=group[0].trajectory.task,
            trajectories=tuple(rollout.trajectory for rollout in group),
        )
        for group in rollouts
    )
