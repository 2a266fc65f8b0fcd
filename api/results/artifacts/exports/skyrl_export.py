"""Exports a run's evaluations in SkyRL's layout: `evals/{run}/global_step_N/{env}.jsonl`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from api.results.artifacts.rollouts.files import TrajectoryFiles, outcomes_of_batch
from api.results.artifacts.trajectories import TrajectoryFilters
from api.results.artifacts.zip_stream import Members, zip_stream
from api.results.errors import NoSuchEval
from api.results.evals.store import OutcomeBatch, list_evals, no_evaluation, of_eval
from api.tables import OutcomeRecord, Run
from api.tables.database import Database
from hillclimb.blobs.base import BlobMissing, BlobStore
from hillclimb.protocol.outcomes import OutcomeStatus
from hillclimb.protocol.payloads.results.rollouts import StoredTrajectory
from hillclimb.protocol.rundir import run_key
from hillclimb.stats.trajectories.skyrl.export import exported_line, source_line
from hillclimb.stats.trajectories.skyrl.layout import AGGREGATED, EVALS, file_stem
from hillclimb.stats.trajectories.skyrl.metrics import (
    Reward,
    eval_metrics,
    format_metrics,
    largest_group,
)
from hillclimb.stats.trajectories.skyrl.rows import DumpRejected, parse_row

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
DEFAULT_TURNS = 50
"""SkyRL's own limit of turns, for a spec without one."""
ID_CHARS = 8
"""Characters of the run's id in the folder of a run of ours: names need not be unique."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Evaluations to export; each is one step under one decoding."""

    folder: str
    """`evals/{run}`."""
    decoding: str
    evals: tuple[OutcomeBatch, ...]
    env_keys: tuple[str, ...]
    max_turns: dict[str, int]
    """Limit of turns by environment."""
    num_left_out: int
    """Rollouts without a grade, for which the format has no word."""


def prepare_export(
    session: Session, run: Run, *, decoding: str | None = None, step: int | None = None
) -> Export:
    """Return what an export writes: by default every step under the first decoding.

    Raises:
        NoSuchEval: the run has no evaluation at the step or under the decoding.
    """
    stored = list_evals(session, run.id)
    if not stored:
        raise no_evaluation(run)
    evals = [each for each in stored if step in (None, each.step)]
    name = decoding or (evals[0].decoding if evals else None)
    batches = tuple(of_eval(run.id, each) for each in evals if each.decoding == name)
    if not batches:
        place = "" if step is None else f" at step {step}"
        under = "" if decoding is None else f" under the decoding {decoding!r}"
        raise NoSuchEval(f"run {run.id} has no evaluation{place}{under} to export")
    keys, num_left_out = set[str](), 0
    for batch in batches:
        records = OutcomeRecord
        query = select(
            records.env_key,
            func.count().filter(records.status != OutcomeStatus.GRADED),
        ).where(*batch.where())
        for key, missing in session.execute(query.group_by(records.env_key)):
            keys.add(key)
            num_left_out += missing
    is_dump = run.origin is not None and run.origin["kind"] == "skyrl"
    return Export(
        folder=f"{EVALS}/{_folder(run)}",
        decoding=batches[0].decoding,
        evals=batches,
        env_keys=tuple(sorted(keys)),
        max_turns={key: _max_turns(run.spec, key) for key in keys},
        num_left_out=0 if is_dump else num_left_out,
    )


def send_export(database: Database, store: BlobStore, export: Export) -> Iterator[bytes]:
    """Yield the bytes of a zip with the files of the export.

    Raises:
        StoreError: the store does not respond.
    """
    return zip_stream(_members(database, store, export))


def _members(database: Database, store: BlobStore, export: Export) -> Members:
    for batch in export.evals:
        place = f"{export.folder}/global_step_{batch.step}"
        rewards: list[Reward] = []
        with TrajectoryFiles(store, batch.run_id) as files:
            for key in export.env_keys:
                with database.transaction() as session:
                    outcomes = outcomes_of_batch(session, batch, TrajectoryFilters(env=key))
                if outcomes:
                    lines = _lines(outcomes, files, export.max_turns[key], rewards)
                    yield f"{place}/{file_stem(key)}.jsonl", lines
        yield f"{place}/{AGGREGATED}.jsonl", [_aggregated(store, batch, rewards)]


def _lines(
    outcomes: Sequence[OutcomeRecord],
    files: TrajectoryFiles,
    max_turns: int,
    rewards: list[Reward],
) -> Iterator[bytes]:
    """Yield the rows, and add each one's reward to `rewards`."""
    for outcome in outcomes:
        line = _line(outcome, files, max_turns)
        if line is None:
            continue
        row = parse_row(line.encode(), place=outcome.rollout_id)
        rewards.append(Reward(env_key=outcome.env_key, task_key=outcome.task_key, value=row.reward))
        yield line.encode()


def _line(outcome: OutcomeRecord, files: TrajectoryFiles, max_turns: int) -> str | None:
    """Return the row of a rollout; None without a grade, or where its file is lost."""
    stored = files.line(outcome)
    if stored is None:
        return None
    try:
        content: dict[str, Any] = json.loads(stored)
        line = source_line(content)
        if line is not None:
            parse_row(line.encode(), place=outcome.rollout_id)
            return line
        if outcome.score is None:
            return None
        trajectory = StoredTrajectory.model_validate(content)
        return exported_line(trajectory, score=outcome.score, max_turns=max_turns)
    except (ValueError, RecursionError, AttributeError, ValidationError, DumpRejected):
        return None


def _aggregated(store: BlobStore, batch: OutcomeBatch, rewards: Sequence[Reward]) -> bytes:
    """Return the metrics: as they were imported, else computed from the rows of the export."""
    try:
        return store.get(run_key(batch.run_id, aggregated_key(batch.step)))
    except BlobMissing:
        metrics = eval_metrics(rewards, num_samples=largest_group(rewards))
        return format_metrics(metrics).encode()


def aggregated_key(step: int) -> str:
    """Return the blob key, relative to the run, of a step's metrics as SkyRL wrote them."""
    return f"attempt-1/imported/step-{step:06d}-{AGGREGATED}.json"


def _folder(run: Run) -> str:
    if run.origin is not None and run.origin["kind"] == "skyrl":
        return str(run.origin["source"])
    return f"{NOT_IN_NAMES.sub('_', run.name)}_{run.id[-ID_CHARS:]}"


def _max_turns(spec: dict[str, Any], env_key: str) -> int:
    environment = spec.get("environment") or {}
    override = (environment.get("overrides") or {}).get(env_key) or {}
    return int(override.get("max_turns") or environment.get("max_turns") or DEFAULT_TURNS)
