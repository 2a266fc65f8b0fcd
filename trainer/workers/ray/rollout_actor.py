"""Ray actor with one rollout worker. Its process does without torch: it computes nothing.

Importing torch takes most of the start of such a process, and there may be dozens on a machine.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from hillclimb.environment.task import Task
from trainer.engines.base import Engine
from trainer.rollouts.request import Rollout, RolloutRequest
from trainer.workers.factory import WorkerFactory
from trainer.workers.ray.replies import Reply

if TYPE_CHECKING:
    # Imported by `make_rollout_worker`, with the collector paused.
    from trainer.rollouts.worker import RolloutWorker


class RolloutActor:
    """A rollout worker that samples from engines in other processes."""

    def __init__(self, factory: WorkerFactory, engine: Engine, number: int) -> None:
        self._incarnation = uuid.uuid4().hex
        self._rollout_worker: RolloutWorker = factory.make_rollout_worker(engine, worker=number)

    async def ready(self) -> None:
        """Return once tokenizer and environments are loaded."""

    async def run_rollout(
        self, task: Task, sample_index: int, request: RolloutRequest
    ) -> Reply[Rollout]:
        """See `RolloutRunner.run_rollout`."""
        rollout = await self._rollout_worker.run_rollout(task, sample_index, request)
        return Reply(rollout, self._incarnation)

    async def close(self) -> None:
        """See `RolloutWorker.close`."""
        await self._rollout_worker.close()
