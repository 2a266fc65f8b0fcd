"""Searches of stored rollouts for failure patterns by the present detectors, without new rollouts.

The patterns are stored beside those that the trainer found, by the version of the detectors; a
repeat replaces them by the same.
"""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import and_, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.results.artifacts.retention import require_trajectories
from api.results.errors import NotRescorable
from api.results.rescoring.files import fetch_files
from api.results.rescoring.process import search_all
from api.results.rescoring.rescore import MAX_ROLLOUTS, ROWS_PER_STATEMENT, RescoringScope
from api.runs import store as runs
from api.tables import Eval, OutcomeRecord, PatternSearch, Run
from api.tables.database import Database
from hillclimb.blobs.base import BlobStore
from hillclimb.protocol.outcomes import StopReason
from hillclimb.protocol.rundir import attempt_name, run_key
from hillclimb.stats.trajectories.patterns.registry import PATTERNS_VERSION


def search_run(
    database: Database,
    blobs: BlobStore,
    project_id: str,
    run_id: str,
    scope: RescoringScope,
    *,
    now: datetime,
) -> dict[str, Any]:
    """Search the run's rollouts that the present detectors have not searched; return the facts.

    Raises:
        RunNotFound: the project has no such run.
        ArtifactRemoved: retention has removed the rollouts.
        NotRescorable: the scope has no rollout, or too many.
        RescoringBusy: other rollouts are being searched or replayed.
    """
    with database.transaction() as session:
        run = runs.get_run(session, project_id, run_id)
        require_trajectories(run)
        files, num_present = _rollouts(session, run, scope)
    results: Sequence[Mapping[str, Any]] = ()
    version = PATTERNS_VERSION
    if files:
        # Outside of the session: the store may be a network away, and searching takes seconds.
        with tempfile.TemporaryDirectory(prefix="hillclimb-search-") as name:
            folder = Path(name)
            searched = search_all(folder, {"files": fetch_files(blobs, files, folder)})
        results, version = searched["results"], searched["version"]
    with database.transaction() as session:
        _store(session, run_id, version, results, now)
        facts = _facts(session, run_id, version)
    reasons = Counter(each["reason"] for each in results if each["patterns"] is None)
    return facts | {"num_by_trainer": num_present, "unsearched": dict(reasons.most_common())}


def list_searches(session: Session, run_id: str) -> list[dict[str, Any]]:
    """Return the run's searches by version of the detectors, the newest version first."""
    query = select(PatternSearch.version).where(PatternSearch.run_id == run_id).distinct()
    versions = sorted(session.scalars(query), reverse=True)
    return [_facts(session, run_id, version) for version in versions]


def _facts(session: Session, run_id: str, version: int) -> dict[str, Any]:
    new, old = PatternSearch, OutcomeRecord
    differs = (old.patterns_version.is_(None)) | (old.patterns != new.patterns)
    query = (
        select(func.count(), func.count().filter(differs), func.max(new.searched_at))
        .join(old, and_(old.run_id == new.run_id, old.rollout_id == new.rollout_id))
        .where(new.run_id == run_id, new.version == version)
    )
    num_searched, num_changed, searched_at = session.execute(query).one()
    return {
        "object": "pattern_search",
        "run_id": run_id,
        "version": version,
        "searched_at": searched_at,
        "num_searched": num_searched,
        "num_changed": num_changed,
    }


def _rollouts(
    session: Session, run: Run, scope: RescoringScope
) -> tuple[dict[str, list[dict[str, Any]]], int]:
    """Return the rollouts to search by the blob key of their trajectories.

    With them, the number of rollouts that the trainer searched by the present version.
    """
    records = OutcomeRecord
    threshold = func.coalesce(Eval.pass_threshold, float(run.spec["eval"]["pass_threshold"]))
    query = (
        select(
            records.attempt,
            records.trajectory,
            records.trajectory_line,
            records.rollout_id,
            records.patterns_version,
            threshold,
        )
        .outerjoin(
            Eval,
            and_(
                Eval.run_id == records.run_id,
                Eval.attempt == records.attempt,
                Eval.step == records.step,
                Eval.decoding == records.decoding,
                records.split == "eval",
            ),
        )
        .where(
            records.run_id == run.id,
            records.split == scope.split,
            records.stop_reason != StopReason.NOT_STARTED,
        )
        .order_by(records.trajectory, records.trajectory_line)
        .limit(MAX_ROLLOUTS + 1)
    )
    if scope.step is not None:
        query = query.where(records.step == scope.step)
    rows = session.execute(query).all()
    if not rows:
        raise NotRescorable(f"run {run.id} has no rollouts of split {scope.split} there")
    if len(rows) > MAX_ROLLOUTS:
        raise NotRescorable(
            f"run {run.id} has more than {MAX_ROLLOUTS:,} rollouts there: search one step at a time"
            " (`step`)"
        )
    files: dict[str, list[dict[str, Any]]] = defaultdict(list)
    num_present = 0
    for attempt, trajectory, line, rollout_id, version, pass_threshold in rows:
        if version == PATTERNS_VERSION:
            num_present += 1
            continue
        files[run_key(run.id, attempt_name(attempt), trajectory)].append(
            {"rollout_id": rollout_id, "line": line, "pass_threshold": pass_threshold}
        )
    return files, num_present


def _store(
    session: Session,
    run_id: str,
    version: int,
    results: Sequence[Mapping[str, Any]],
    now: datetime,
) -> None:
    key = {"run_id": run_id, "version": version, "searched_at": now}
    rows = [
        {**key, "rollout_id": each["rollout_id"], "patterns": each["patterns"]}
        for each in results
        if each["patterns"] is not None
    ]
    statement = insert(PatternSearch)
    statement = statement.on_conflict_do_update(
        index_elements=["run_id", "version", "rollout_id"],
        set_={name: statement.excluded[name] for name in ("patterns", "searched_at")},
    )
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        session.execute(statement, rows[start : start + ROWS_PER_STATEMENT])
