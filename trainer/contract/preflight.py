"""The sections of the run kinds that come before training, and train nothing themselves."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trainer.contract.sections import Section


class ProbeSpec(Section):
    """What a run of kind `probe` tries; other kinds only keep it.

    It rolls out training tasks at the temperatures of training and takes no step.
    """

    tasks_per_env: Annotated[int, Field(ge=1, le=5_000)] = 20
    """Training tasks tried per environment, drawn by `data.seed`; all of them where there are
    fewer (count)."""
    n_samples_per_prompt: Annotated[int, Field(ge=2, le=256)] = 8
    """Rollouts per task. Groups up to this size are judged by counting, larger ones by a fitted
    distribution."""
    budget_minutes: Annotated[float, Field(gt=0.0, le=1440.0)] | None = None
    """Minutes in which rollouts are begun. Those in flight then end; those not begun have no
    outcome, and are missing in the coverage. Environments take turns. null: no limit."""
