"""The trainer's own command, made to leave in a chosen way while rollouts hold instances.

`SIGTERM` and `SIGKILL` are sent by itself, once, as soon as a few rollouts of the first step have
ended and an instance of another one runs; `failure` is a gradient step that fails; `not at all`
trains to the end.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

from trainer.__main__ import main
from trainer.envs.fleet.instances.instances import FleetInstances
from trainer.errors import NonFiniteUpdate
from trainer.learners.inline import InlineLearner
from trainer.rollouts.worker import RolloutWorker

NUM_ENDED = 2


def send(number: signal.Signals) -> None:
    roll, make, delete = RolloutWorker.run_rollout, FleetInstances.make, FleetInstances.delete
    num_ended, running, is_sent = 0, set[str](), False

    def send_if_time() -> None:
        nonlocal is_sent
        # Between two rollouts there may be no instance for a moment, and nothing would be left.
        if num_ended >= NUM_ENDED and running and not is_sent:
            is_sent = True
            os.kill(os.getpid(), number)

    async def rolled(self: RolloutWorker, task: Any, sample_index: int, request: Any) -> Any:
        nonlocal num_ended
        rollout = await roll(self, task, sample_index, request)
        num_ended += 1
        send_if_time()
        return rollout

    async def made(self: FleetInstances, request: Any, retry: Any, limiter: Any) -> Any:
        instance = await make(self, request, retry, limiter)
        running.add(instance.id)
        send_if_time()
        return instance

    async def deleted(self: FleetInstances, instance_id: str) -> None:
        running.discard(instance_id)
        await delete(self, instance_id)

    RolloutWorker.run_rollout = rolled  # type: ignore[method-assign]
    FleetInstances.make = made  # type: ignore[method-assign]
    FleetInstances.delete = deleted  # type: ignore[method-assign]


def fail() -> None:
    async def step(self: InlineLearner, batch: Any) -> dict[str, float]:
        raise NonFiniteUpdate("arranged by a test")

    InlineLearner.step = step  # type: ignore[method-assign]


def run(arguments: Sequence[str]) -> int:
    """Arrange how to leave, given first, and run the command."""
    how, *command = arguments
    if how == "failure":
        fail()
    elif how != "not at all":
        send(signal.Signals[how])
    return main(command)
