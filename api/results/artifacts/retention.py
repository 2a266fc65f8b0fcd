"""Parts of a run that the operator's retention has removed, and the requests that need them."""

from __future__ import annotations

from api.results.artifacts.errors import ArtifactRemoved
from api.tables import Run


def require_trajectories(run: Run) -> None:
    """Raise ArtifactRemoved if the files of the run's rollouts were removed."""
    if run.trajectories_removed_at is not None:
        raise ArtifactRemoved(
            f"The rollouts of run {run.id} were removed on {run.trajectories_removed_at:%Y-%m-%d},"
            " because it had ended longer ago than HILLCLIMB_KEEP_TRAJECTORIES_DAYS allows. Its"
            " outcomes, scores and figures are all there."
        )
