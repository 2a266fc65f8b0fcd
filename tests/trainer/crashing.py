"""The trainer's own command, killed at a chosen place in a chosen step: by SIGKILL, by itself.

`rollouts`: when some of the step's rollouts have ended and the others are under way. `updates`:
between the first and the second optimizer update of the step.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

from trainer.__main__ import main
from trainer.checkpoints import Position
from trainer.learners.rank import LearnerRank
from trainer.rollouts.roller import Roller
from trainer.saving import Saver

NUM_ENDED = 5
"""Rollouts of the step that end before the crash."""


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crash_among_rollouts(step: int) -> None:
    """Die when the step's first few rollouts have ended; checkpoints before it are complete."""
    roll, save, num_ended = Roller.roll, Saver.save, 0

    async def saved(self: Saver, position: Position) -> None:
        await save(self, position)
        await self.drain()

    async def rolled(self: Roller, task: Any, sample_index: int, wave: Any) -> Any:
        nonlocal num_ended
        rollout = await roll(self, task, sample_index, wave)
        num_ended += wave.step == step and wave.split == "train"
        if num_ended == NUM_ENDED:
            _die()
        return rollout

    Saver.save = saved  # type: ignore[method-assign]
    Roller.roll = rolled  # type: ignore[method-assign]


def crash_between_updates(step: int) -> None:
    """Die when the step's first update is done."""
    update = LearnerRank._update

    def updated(self: LearnerRank, packed: Any) -> Any:
        found = update(self, packed)
        if self.version == step - 1:
            _die()
        return found

    LearnerRank._update = updated  # type: ignore[method-assign]


PLACES = {"rollouts": crash_among_rollouts, "updates": crash_between_updates}


def run(arguments: Sequence[str]) -> int:
    """Arrange the crash at a place in a step, both given first, and run the command."""
    place, step, *command = arguments
    PLACES[place](int(step))
    return main(command)
