"""Rollouts of many tasks at once: bounded, and in a fixed order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from trainer.rollouts.one_prompt import with_one_prompt
from trainer.rollouts.places import Places
from trainer.rollouts.wave import Rollout, Rolls, Wave
from trainer.types import Group, Task


class Collector:
    """Rolls out waves of tasks, at most `max_concurrent_rollouts` rollouts at a time.

    An evaluation goes first: training waits for it, and not for rollouts of later steps.
    """

    def __init__(self, rolls: Rolls, *, max_concurrent_rollouts: int) -> None:
        self._rolls = rolls
        self._places = Places(max_concurrent_rollouts)

    async def collect(
        self,
        tasks: Sequence[Task],
        wave: Wave,
        *,
        on_ended: Callable[[Rollout], None] = lambda _: None,
    ) -> tuple[tuple[Rollout, ...], ...]:
        """Return the rollouts of each task, in the order of `tasks` and of their samples.

        `on_ended` gets each as it ends: it has them also where this is cancelled.

        Raises:
            TrainerError: the engine failed; rollouts in flight are cancelled and closed.
        """
        n = wave.n_samples_per_prompt
        done = await self._gather(
            [(task, sample_index) for task in tasks for sample_index in range(n)], wave, on_ended
        )
        return tuple(tuple(done[start : start + n]) for start in range(0, len(done), n))

    async def group(self, task: Task, wave: Wave) -> tuple[Rollout, ...]:
        """Return the rollouts of one task, in the order of its samples; raises as `collect`.

        They are learned from together: one that was asked something else is an infra error.
        """
        samples = [(task, index) for index in range(wave.n_samples_per_prompt)]
        return with_one_prompt(await self._gather(samples, wave))

    async def _gather(
        self,
        samples: Sequence[tuple[Task, int]],
        wave: Wave,
        on_ended: Callable[[Rollout], None] = lambda _: None,
    ) -> list[Rollout]:
        async def roll(task: Task, sample_index: int) -> Rollout:
            rollout = await self._bounded(task, sample_index, wave)
            on_ended(rollout)
            return rollout

        running = [asyncio.create_task(roll(task, index)) for task, index in samples]
        try:
            return await asyncio.gather(*running)
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _bounded(self, task: Task, sample_index: int, wave: Wave) -> Rollout:
        async with self._places.held(turn=0 if wave.split == "eval" else 1):
            return await self._rolls.roll(task, sample_index, wave)


def as_groups(rollouts: Sequence[Sequence[Rollout]]) -> tuple[Group, ...]:
    """Return the groups the algorithm learns from, one per task."""
    return tuple(
        Group(
            task=group[0].trajectory.task,
            trajectories=tuple(rollout.trajectory for rollout in group),
        )
        for group in rollouts
    )
