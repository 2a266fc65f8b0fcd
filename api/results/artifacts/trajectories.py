"""Rollouts of a run: lists from the outcomes table, trajectories from the blob store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, select, tuple_
from sqlalchemy.orm import Session

from api.results.artifacts.errors import ArtifactNotFound
from api.results.evals.failures import cause_of
from api.tables import OutcomeRecord, Run
from hillclimb.blobs.archive.gzip_file import TRAJECTORIES_LIMIT, GzipUnreadable, stored_lines
from hillclimb.blobs.base import BlobMissing, BlobStore
from hillclimb.protocol.outcomes import OutcomeStatus
from hillclimb.protocol.payloads.results.rollouts import StoredTrajectory
from hillclimb.protocol.rundir import attempt_name, run_key

Position = tuple[int, str]
"""The end of a page: step and rollout id of its last row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryFilters:
    """Filters of a list of rollouts; null does not filter."""

    env: str | None = None
    step: int | None = None
    split: str | None = None
    decoding: str | None = None
    status: str | None = None
    task_key: str | None = None
    failed: bool | None = None
    """True: graded rollouts below the run's pass threshold; false: those at or above it."""
    pattern: str | None = None
    """Name of a failure pattern that the rollout shows, as found when it ended."""


def list_outcomes(
    session: Session,
    run: Run,
    filters: TrajectoryFilters,
    *,
    after: Position | None,
    limit: int,
) -> Sequence[OutcomeRecord]:
    """Return up to `limit` outcomes after the position, newest step first."""
    query = select(OutcomeRecord).where(*matching(run, filters))
    if after is not None:
        query = query.where(tuple_(OutcomeRecord.step, OutcomeRecord.rollout_id) < after)
    query = query.order_by(OutcomeRecord.step.desc(), OutcomeRecord.rollout_id.desc())
    return session.scalars(query.limit(limit)).all()


def matching(run: Run, filters: TrajectoryFilters) -> list[ColumnElement[bool]]:
    """Return the conditions on `OutcomeRecord` of the run's rollouts that the filters select."""
    columns = {
        OutcomeRecord.env_key: filters.env,
        OutcomeRecord.step: filters.step,
        OutcomeRecord.split: filters.split,
        OutcomeRecord.decoding: filters.decoding,
        OutcomeRecord.status: filters.status,
        OutcomeRecord.task_key: filters.task_key,
    }
    conditions = [OutcomeRecord.run_id == run.id]
    conditions += [column == value for column, value in columns.items() if value is not None]
    if filters.failed is not None:
        threshold = pass_threshold(run)
        score = OutcomeRecord.score
        conditions.append(OutcomeRecord.status == OutcomeStatus.GRADED)
        conditions.append(score < threshold if filters.failed else score >= threshold)
    if filters.pattern is not None:
        conditions.append(OutcomeRecord.patterns.contains([filters.pattern]))
    return conditions


def find_outcome(session: Session, run_id: str, rollout_id: str) -> OutcomeRecord:
    """Return one outcome; raises ArtifactNotFound."""
    record = session.get(OutcomeRecord, (run_id, rollout_id))
    if record is None:
        raise ArtifactNotFound(f"Run {run_id} has no rollout {rollout_id!r}.")
    return record


def read_trajectory(store: BlobStore, outcome: OutcomeRecord) -> StoredTrajectory:
    """Return the stored trajectory of an outcome, as the trainer wrote it.

    Raises:
        ArtifactNotFound: its file is not in the store (not yet, or no longer), is damaged, or is
            beyond `TRAJECTORIES_LIMIT`.
    """
    key = run_key(outcome.run_id, attempt_name(outcome.attempt), outcome.trajectory)
    missing = ArtifactNotFound(f"The trajectory of {outcome.rollout_id} is not in the store.")
    try:
        lines = stored_lines(store, key, TRAJECTORIES_LIMIT)
        line = next(islice(lines, outcome.trajectory_line, None), None)
        if line is None:
            raise missing
        return StoredTrajectory.model_validate(json.loads(line))
    except BlobMissing as error:
        raise missing from error
    except GzipUnreadable as error:
        raise ArtifactNotFound(f"The file of {outcome.rollout_id} {error}.") from error
    except ValueError as error:
        raise ArtifactNotFound(f"The file of {outcome.rollout_id} is damaged.") from error


def outcome_facts(outcome: OutcomeRecord, *, threshold: float) -> dict[str, Any]:
    """Return an outcome as JSON, with `passed` and, for a failed one, its `cause`."""
    columns = OutcomeRecord.__table__.columns.keys()
    facts = {name: getattr(outcome, name) for name in columns}
    passed = None if outcome.score is None else outcome.score >= threshold
    cause = None
    if passed is False:
        cause = cause_of(outcome.stop_reason, has_repeated_calls=outcome.num_repeated_calls > 0)
    return facts | {"object": "trajectory", "passed": passed, "cause": cause}


def pass_threshold(run: Run) -> float:
    """Return the lowest score with which a rollout of the run passes."""
    return float(run.spec["eval"]["pass_threshold"])
