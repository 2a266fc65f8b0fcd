"""A script: a scripted policy with a name, and how often it is played."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.hillclimb.stats.trajectories.labelled.agent.agent import Agent
from tests.hillclimb.stats.trajectories.labelled.agent.setting import Setting

Play = Callable[[Agent], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A policy that shows a pattern, nearly shows it, or does neither (`ordinary`)."""

    family: str
    kind: str
    play: Play
    is_near_miss: bool = False
    times: int = 4
    setting: Setting = field(default_factory=Setting)
