"""Rollout requests, finished rollouts, and the port that runs them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from hillclimb.environment.task import Task
from trainer.rollouts.operation import EnvOperation, RolloutSpan
from trainer.types import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRequest:
    """Rollouts that belong together: those of one training step, one evaluation, one probe."""

    step: int
    split: Literal["train", "eval"]
    decoding: str
    n_samples_per_prompt: int
    temperatures: Mapping[str, float]
    """Sampling temperature by environment key."""
    top_p: float = 1.0
    """Nucleus sampling: tokens are drawn from the top this much of the probability mass."""
    begin_until: float | None = None
    """Time after which no rollout starts (seconds since the epoch); None: no limit."""
    engine: int = 0
    """Number of the copy of the engine that samples them."""
    returns_routes: bool = False
    """Record the experts by which the engine computes every token (`learner.routing_replay`)."""

    @property
    def is_over(self) -> bool:
        """True if it is too late to start a rollout."""
        return self.begin_until is not None and time.time() >= self.begin_until


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A finished rollout: its trajectory, and the turns, time and tries that it took."""

    trajectory: Trajectory
    num_turns: int
    duration_s: float
    """From the first try to the end (seconds)."""
    infra_errors: tuple[str, ...]
    """Codes of its infra errors, over all tries."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """Metrics of its environments over all tries
    (`hillclimb.environment.base.ReportsMetrics`)."""
    operations: tuple[EnvOperation, ...] = ()
    """The operations on the environment over all tries, in order."""
    num_tools: int = 0
    """Tools that the environment offered (count)."""
    began_at: float | None = None
    """When it began (seconds since the epoch); None: it was not started."""
    spans: tuple[RolloutSpan, ...] = ()
    """What it did from when to when, over all tries."""
    worker: int = 0
    """Number of the rollout worker."""
    engine: int = 0
    """Number of the engine that sampled its last try."""


class RolloutRunner(Protocol):
    """Port that runs rollouts, in this process or in others; calls may be concurrent."""

    async def run_rollout(self, task: Task, sample_index: int, request: RolloutRequest) -> Rollout:
        """Run one sample of `task` to its end; errors of its environment are in the result.

        Raises:
            TrainerError: the engine failed.
        """
        ...
