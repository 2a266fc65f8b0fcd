"""The schedule of a run: the steps after which it evaluates and saves."""

from __future__ import annotations

from dataclasses import dataclass

from hillclimb.spec.run import RunSpec
from hillclimb.spec.sections import LEARNING_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The steps of a run, from 1 to `total`."""

    total: int
    eval_interval: int
    """0: no evaluations between the first and the last step."""
    checkpoint_interval: int

    @classmethod
    def of(cls, spec: RunSpec, *, start: int = 0) -> Schedule:
        """Return a spec's schedule; a run without training steps ends where it starts."""
        return cls(
            total=spec.schedule.total_steps if spec.kind in LEARNING_KINDS else start,
            eval_interval=spec.eval.interval,
            checkpoint_interval=spec.checkpoints.interval,
        )

    def evaluates_after(self, step: int) -> bool:
        """Return True if an evaluation follows a step (apart from the one before training)."""
        return step == self.total or (self.eval_interval > 0 and step % self.eval_interval == 0)

    def saves_after(self, step: int) -> bool:
        """Return True if a checkpoint follows a step."""
        return step == self.total or step % self.checkpoint_interval == 0

    def evals_after(self, step: int) -> int:
        """Return the number of evaluations after later steps."""
        return sum(self.evaluates_after(later) for later in range(step + 1, self.total + 1))
