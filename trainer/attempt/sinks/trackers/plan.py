"""Plan of tracking an attempt: one run per attempt, linked to those of the other attempts."""

from __future__ import annotations

from dataclasses import dataclass

from hillclimb.protocol.rundir import AttemptDir, attempt_name
from hillclimb.spec.run import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingPlan:
    """Id, group and config of an attempt's run at a tracker."""

    spec: RunSpec
    attempt_dir: AttemptDir
    resume_from: str | None
    """Blob key of the checkpoint that the attempt resumes from."""

    @property
    def run_id(self) -> str:
        """The id of the attempt's run, which stays the same when the attempt restarts."""
        return _run_name(self.attempt_dir.run_dir.name, self.attempt_dir.attempt)

    @property
    def group(self) -> str:
        """Group of the W&B runs of all attempts of a run."""
        return self.spec.tracking.wandb.group or self.attempt_dir.run_dir.name

    def config(self) -> dict[str, object]:
        """Return the resolved spec, and the attempt's place among the run's attempts."""
        run_id, attempt = self.attempt_dir.run_dir.name, self.attempt_dir.attempt
        lineage = {
            "run_id": run_id,
            "attempt": attempt,
            "previous_attempt": _run_name(run_id, attempt - 1) if attempt > 1 else None,
            "resume_from": self.resume_from,
        }
        return {"hillclimb": lineage, "spec": self.spec.model_dump(mode="json")}


def _run_name(run_id: str, attempt: int) -> str:
    return f"{run_id}-{attempt_name(attempt)}"
