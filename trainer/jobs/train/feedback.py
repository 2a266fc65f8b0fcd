"""From a finished step back to the sampler: what it concludes goes into the journal."""

from __future__ import annotations

from trainer.contract.events import CurriculumReweighted, RunWarning
from trainer.contract.outcomes import Groups
from trainer.data.sampler import TaskSampler
from trainer.sinks.journal import Journal


def feed_back(
    sampler: TaskSampler, journal: Journal, step: int, groups: Groups
) -> dict[str, float]:
    """Let the sampler observe a step's rollouts, report its conclusions, return its metrics."""
    seen = sampler.observe(step, groups)
    if (change := seen.reweighting) is not None:
        journal.emit(
            CurriculumReweighted,
            step=step,
            old_shares=change.old_shares,
            new_shares=change.new_shares,
            signals=change.signals,
            reason=change.reason,
        )
    if seen.unsampled:
        journal.emit(
            RunWarning,
            step=step,
            code="environment_never_sampled",
            message=(
                f"no task of {', '.join(seen.unsampled)} has been drawn in {step} steps: set"
                " data.sampling to hybrid or raise schedule.train_batch_size"
            ),
        )
    return sampler.metrics()
