"""Minifleet as an environment provider."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from hillclimb.environment.base import ToolSpec
from hillclimb.environment.task import Task
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.env import MinifleetEnv
from hillclimb.minifleet.faults import FaultInjector, Faults
from trainer.errors import SpecError


@dataclass(slots=True, kw_only=True)
class MinifleetProvider:
    """Provider of in-process episodes of the miniature apps.

    Args:
        env_keys: the apps served, in this order (default: all).
        faults: faults injected per app; apps not named have none.
        seed: of the fault draws. The n-th episode of a task always gets the same faults, and a
            retry, being the next episode, gets new ones.

    Raises:
        SpecError: a key names no miniature app, or faults name an app that is not served.
    """

    env_keys: tuple[str, ...] = tuple(APPS)
    faults: Mapping[str, Faults] = field(default_factory=dict)
    seed: int = 0
    _episodes: Counter[str] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        unknown = [key for key in self.env_keys if key not in APPS]
        if unknown:
            raise SpecError(f"minifleet has no {', '.join(unknown)}; it has {', '.join(APPS)}")
        unserved = [key for key in self.faults if key not in self.env_keys]
        if unserved:
            raise SpecError(f"faults for apps that are not served: {', '.join(unserved)}")

    def tools_of(self, env_key: str) -> tuple[ToolSpec, ...]:
        """Return the tools of a served app, without an episode."""
        return tuple(tool.spec for tool in APPS[env_key].tools)

    def make(self, task: Task) -> MinifleetEnv:
        """Return a fresh episode.

        Raises:
            SpecError: the task's app is not served.
        """
        if task.env_key not in self.env_keys:
            raise SpecError(f"{task.env_key} is not among the served environments")
        faults, injector = self.faults.get(task.env_key), None
        if faults:
            number = self._episodes[task.key]
            self._episodes[task.key] += 1
            injector = FaultInjector(faults, f"{self.seed}/{task.key}/{number}")
        return MinifleetEnv(APPS[task.env_key], task, injector)
