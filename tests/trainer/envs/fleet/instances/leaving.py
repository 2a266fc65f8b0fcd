"""The trainer's own command, made to leave in a chosen way while rollouts hold instances.

`SIGTERM` and `SIGKILL` are sent by itself when a few rollouts of the first step have ended and the
others are under way; `failure` is a gradient step that fails; `not at all` trains to the end.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

from trainer.__main__ import main
from trainer.errors import NonFiniteUpdate
from trainer.learners.inline import InlineLearner
from trainer.rollouts.worker import RolloutWorker

NUM_ENDED = 2


def send(number: signal.Signals) -> None:
    roll, num_ended = RolloutWorker.run_rollout, 0

    async def rolled(self: RolloutWorker, task: Any, sample_index: int, request: Any) -> Any:
        nonlocal num_ended
        rollout = await roll(self, task, sample_index, request)
        num_ended += 1
        if num_ended == NUM_ENDED:
            os.kill(os.getpid(), number)
        return rollout

    RolloutWorker.run_rollout = rolled  # type: ignore[method-assign]


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
