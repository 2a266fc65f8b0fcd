"""The trainer's own command in which something hangs for ever, where no cancellation reaches it.

`learner`: a thread, in the learner's step. `event loop`: the event loop itself, in a rollout.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import trainer.watchdog as watchdog_module
from trainer.__main__ import main
from trainer.learners.rank import LearnerRank
from trainer.rollouts.roller import Roller


def _hang(*_: object) -> None:
    threading.Event().wait()


def hang_the_learner() -> None:
    """Hang in the thread that takes the learner's step."""
    LearnerRank.step = _hang  # type: ignore[assignment, method-assign]


def hang_the_event_loop() -> None:
    """Hang in the first rollout; who watches over the event loop notices soon."""
    Roller.roll = _hang  # type: ignore[assignment, method-assign]
    watchdog_module.GRACE_S = 0.2


HANGS = {"learner": hang_the_learner, "event loop": hang_the_event_loop}


def run(arguments: Sequence[str]) -> int:
    """Arrange for what is named first to hang and run the command."""
    what, *command = arguments
    HANGS[what]()
    return main(command)
