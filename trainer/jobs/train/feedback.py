"""Feeds a step's outcomes back to the task sampler and journals its conclusions."""

from __future__ import annotations

from hillclimb.protocol.events import CurriculumReweighted, RunWarning
from hillclimb.protocol.outcomes import Groups
from trainer.attempt.sinks.journal import EventJournal
from trainer.inputs.tasks.sampler import TaskSampler


def feed_back(
    sampler: TaskSampler, journal: EventJournal, step: int, groups: Groups
) -> dict[str, float]:
    """Let the sampler observe a step's outcomes, emit its conclusions, return its metrics."""
    observed = sampler.observe(step, groups)
    if (change := observed.reweighting) is not None:
        journal.emit(
            CurriculumReweighted(
                step=step,
                old_shares=change.old_shares,
                new_shares=change.new_shares,
                signals=change.signals,
                reason=change.reason,
            )
        )
    if observed.unsampled:
        journal.emit(
            RunWarning(
                step=step,
                code="environment_never_sampled",
                message=(
                    f"no task of {', '.join(observed.unsampled)} has been drawn in {step} steps:"
                    " set data.sampling to hybrid or raise schedule.train_batch_size"
                ),
            )
        )
    return sampler.metrics()
