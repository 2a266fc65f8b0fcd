"""Rescoring of a run: its stored rollouts, graded again by the present verifier.

The new grades are stored beside the outcomes, by the version of their verifier; a repeat replaces
them by the same.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import func, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.results.artifacts.retention import require_trajectories
from api.results.errors import NotRescorable
from api.results.rescoring.files import fetch_files
from api.results.rescoring.process import replay_all
from api.runs import store as runs
from api.runs.stored_spec import spec_of
from api.tables import OutcomeRecord, RescoredOutcome, Run
from api.tables.database import Database
from hillclimb.blobs.base import BlobStore
from hillclimb.protocol.outcomes import OutcomeStatus
from hillclimb.protocol.rundir import attempt_name, run_key

MAX_ROLLOUTS = 20_000
"""Rollouts of one request."""
ROWS_PER_STATEMENT = 5_000
FLEET = (
    "the worlds of provider {provider} cannot be replayed: its verifier reads the end state of an"
    " instance, which is gone. Another threshold needs no replay (`threshold`), and"
    " `verifier_execution_id` of an outcome names what the platform recorded"
)
OTHER_STYLE = (
    "under prompt.style: skyrl the style decides which calls reach the environment and what a grade"
    " is worth: its rollouts are not replayed"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RescoringScope:
    """The rollouts to rescore."""

    split: Literal["train", "eval"] = "eval"
    step: int | None = None
    """Only this step; null: all steps."""


def rescore(
    database: Database,
    blobs: BlobStore,
    project_id: str,
    run_id: str,
    scope: RescoringScope,
    *,
    now: datetime,
) -> dict[str, Any]:
    """Replay the rollouts of a run and store their new grades; return the facts of the rescoring.

    Raises:
        RunNotFound: the project has no such run.
        ArtifactRemoved: retention has removed the rollouts.
        NotRescorable: its worlds cannot be replayed, or the scope has no rollout or too many.
        RescoringBusy: other rollouts are being replayed.
        SpecOutdated: the run's stored spec is of another version.
    """
    with database.transaction() as session:
        run = runs.get_run(session, project_id, run_id)
        require_trajectories(run)
        grades_unfinished = _require_replayable(run)
        files = _rollouts(session, run_id, scope)
    # Outside of the session: reading the store may use the network, and replaying takes seconds.
    with tempfile.TemporaryDirectory(prefix="hillclimb-rescoring-") as name:
        folder = Path(name)
        job = {"grades_unfinished": grades_unfinished, "files": fetch_files(blobs, files, folder)}
        replayed = replay_all(folder, job)
    with database.transaction() as session:
        _store(session, run_id, replayed, now)
        (facts,) = list_rescorings(session, run_id, verifier=replayed["verifier"])
        return facts


def list_rescorings(
    session: Session, run_id: str, *, verifier: str | None = None
) -> list[dict[str, Any]]:
    """Return the run's rescorings by version of the verifier, newest first."""
    new, old = RescoredOutcome, OutcomeRecord
    is_graded = new.status == OutcomeStatus.GRADED
    query = (
        select(
            new.verifier,
            func.max(new.rescored_at).label("rescored_at"),
            func.count().label("num_rollouts"),
            func.count().filter(is_graded).label("num_graded"),
            func.count().filter(is_graded, old.score.is_distinct_from(new.score)),
        )
        .join(old, (old.run_id == new.run_id) & (old.rollout_id == new.rollout_id))
        .where(new.run_id == run_id)
        .group_by(new.verifier)
        .order_by(func.max(new.rescored_at).desc())
    )
    if verifier is not None:
        query = query.where(new.verifier == verifier)
    return [
        {
            "object": "rescoring",
            "run_id": run_id,
            "verifier": name,
            "rescored_at": at,
            "num_rollouts": num_rollouts,
            "num_graded": num_graded,
            "num_changed": num_changed,
            "ungraded": _reasons(session, run_id, name),
        }
        for name, at, num_rollouts, num_graded, num_changed in session.execute(query)
    ]


def _require_replayable(run: Run) -> bool:
    """Return whether unfinished rollouts are graded; raises NotRescorable."""
    spec = spec_of(run)
    if spec.environment.provider != "minifleet":
        raise NotRescorable(f"run {run.id}: {FLEET.format(provider=spec.environment.provider)}")
    if spec.prompt.style == "skyrl":
        raise NotRescorable(f"run {run.id}: {OTHER_STYLE}")
    return spec.environment.grades_unfinished


def _rollouts(
    session: Session, run_id: str, scope: RescoringScope
) -> dict[str, list[dict[str, Any]]]:
    """Return the rollouts by the blob key of their trajectories."""
    records = OutcomeRecord
    query = (
        select(
            records.attempt,
            records.trajectory,
            records.trajectory_line,
            records.rollout_id,
            records.stop_reason,
            records.status,
            records.reason,
        )
        .where(records.run_id == run_id, records.split == scope.split)
        .order_by(records.trajectory, records.trajectory_line)
        .limit(MAX_ROLLOUTS + 1)
    )
    if scope.step is not None:
        query = query.where(records.step == scope.step)
    rows = session.execute(query).all()
    if not rows:
        raise NotRescorable(f"run {run_id} has no rollouts of split {scope.split} there")
    if len(rows) > MAX_ROLLOUTS:
        raise NotRescorable(
            f"run {run_id} has more than {MAX_ROLLOUTS:,} rollouts there: rescore one step at a"
            " time (`step`)"
        )
    files: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        files[run_key(run_id, attempt_name(row.attempt), row.trajectory)].append(
            {
                "rollout_id": row.rollout_id,
                "line": row.trajectory_line,
                "stop_reason": row.stop_reason,
                "status": row.status,
                "reason": row.reason,
            }
        )
    return files


def _store(session: Session, run_id: str, replayed: Mapping[str, Any], now: datetime) -> None:
    key = {"run_id": run_id, "verifier": replayed["verifier"], "rescored_at": now}
    rows = [{**key, **result} for result in replayed["results"]]
    statement = insert(RescoredOutcome)
    names = ("status", "score", "reason", "rescored_at")
    statement = statement.on_conflict_do_update(
        index_elements=["run_id", "verifier", "rollout_id"],
        set_={name: statement.excluded[name] for name in names},
    )
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        session.execute(statement, rows[start : start + ROWS_PER_STATEMENT])
    # Until its statistics are new, the planner takes the table for empty and compares every pair.
    session.execute(text("ANALYZE rescored_outcomes"))


def _reasons(session: Session, run_id: str, verifier: str) -> dict[str, int]:
    """Count the rollouts without a grade by reason, the most frequent first."""
    records = RescoredOutcome
    query = (
        select(records.reason, func.count())
        .where(
            records.run_id == run_id,
            records.verifier == verifier,
            records.status != OutcomeStatus.GRADED,
        )
        .group_by(records.reason)
        .order_by(func.count().desc(), records.reason)
    )
    return {reason or "no reason": count for reason, count in session.execute(query)}
