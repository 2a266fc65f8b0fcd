"""All labelled conversations."""

from __future__ import annotations

import asyncio
from functools import cache

from tests.hillclimb.stats.trajectories.labelled.conversation import LabelledConversation
from tests.hillclimb.stats.trajectories.labelled.play import play
from tests.hillclimb.stats.trajectories.labelled.scripts.calls import (
    arguments,
    identifiers,
    missing,
    permission,
    repetition,
    silence,
)
from tests.hillclimb.stats.trajectories.labelled.scripts.endings import (
    completion,
    limits,
    premature,
    signals,
)
from tests.hillclimb.stats.trajectories.labelled.scripts.ordinary import failures, successes
from tests.hillclimb.stats.trajectories.labelled.scripts.script import Script
from tests.hillclimb.stats.trajectories.labelled.scripts.thoughts import excessive, repeated

SCRIPTS: tuple[Script, ...] = (
    *silence.SCRIPTS,
    *excessive.SCRIPTS,
    *signals.SCRIPTS,
    *repetition.SCRIPTS,
    *limits.SCRIPTS,
    *repeated.SCRIPTS,
    *identifiers.SCRIPTS,
    *premature.SCRIPTS,
    *arguments.SCRIPTS,
    *permission.SCRIPTS,
    *missing.SCRIPTS,
    *completion.SCRIPTS,
    *successes.SCRIPTS,
    *failures.SCRIPTS,
)


@cache
def labelled_conversations() -> tuple[LabelledConversation, ...]:
    """Play every script as often as it says; not callable where an event loop runs."""
    return asyncio.run(_play_all())


async def _play_all() -> tuple[LabelledConversation, ...]:
    return tuple(
        [await play(script, number) for script in SCRIPTS for number in range(script.times)]
    )
