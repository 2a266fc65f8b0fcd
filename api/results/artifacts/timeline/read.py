"""Reads the timeline of a run or of one step, from its events, metrics, outcomes and times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.results.artifacts.errors import ArtifactNotFound
from api.results.artifacts.timeline.phases import (
    PHASE_TYPES,
    START_TYPES,
    STATUS_TYPES,
    STEP,
    Mark,
    Timings,
    draw_phases,
    draw_starts,
    draw_statuses,
)
from api.results.artifacts.timeline.rollouts import RolloutFacts, draw_rollouts, read_times
from api.results.artifacts.timeline.trace import Json, Trace, seconds
from api.tables import Metric, OutcomeRecord, Run, RunEvent
from hillclimb.blobs.base import BlobStore
from hillclimb.protocol.rundir import run_key, times_file

TIMING = "timing/"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineRows:
    """The rows of a timeline; the times of its rollouts are in the store."""

    trace: Trace
    run_id: str
    step: int | None
    attempt: int | None
    rollouts: dict[str, RolloutFacts]
    files: tuple[str, ...]
    """Keys of the files of times."""


def read_rows(session: Session, run: Run, *, step: int | None, now: datetime) -> TimelineRows:
    """Return the rows of a step, or without one those of the whole run, which draw no rollouts.

    Of a step that was repeated after a crash, the attempt that completed it last counts.

    Raises:
        ArtifactNotFound: no attempt has completed the step.
    """
    marks = _marks(session, run.id, step)
    trace, until = Trace(), seconds(run.ended_at or now)
    if step is None:
        draw_statuses(trace, marks, until=until)
        draw_starts(trace, marks)
        draw_phases(trace, marks, _timings(session, run.id), until=until)
        return TimelineRows(
            trace=trace, run_id=run.id, step=None, attempt=None, rollouts={}, files=()
        )
    ends = [each for each in marks if each.type == STEP]
    if not ends:
        raise ArtifactNotFound(f"Run {run.id} has not completed step {step}.")
    attempt = ends[-1].attempt
    phases = [each for each in marks if each.attempt == attempt]
    draw_phases(trace, phases, _timings(session, run.id, step), until=None)
    outcomes = _outcomes(session, run.id, step, attempt)
    files = {times_file(attempt, _name(each.trajectory)) for each in outcomes}
    return TimelineRows(
        trace=trace,
        run_id=run.id,
        step=step,
        attempt=attempt,
        rollouts={each.rollout_id: _facts(each) for each in outcomes},
        files=tuple(run_key(run.id, file) for file in sorted(files)),
    )


def draw_timeline(store: BlobStore, rows: TimelineRows) -> Json:
    """Return the trace; outside of a session, because it reads the store.

    Raises:
        StoreError: the store does not respond.
    """
    num_drawn = draw_rollouts(rows.trace, list(read_times(store, rows.files)), rows.rollouts)
    origin = rows.trace.origin()
    started = None if origin is None else datetime.fromtimestamp(origin, UTC).isoformat()
    facts = {"run": rows.run_id, "step": rows.step, "attempt": rows.attempt}
    counts = {"rollouts": num_drawn, "rollouts_without_times": len(rows.rollouts) - num_drawn}
    return {
        "traceEvents": rows.trace.events(),
        "displayTimeUnit": "ms",
        "otherData": facts | {"started_at": started} | counts,
    }


def _marks(session: Session, run_id: str, step: int | None) -> list[Mark]:
    """Return the events that begin or end something; of a step, those of the trainer."""
    data = RunEvent.data
    columns = (RunEvent.type, RunEvent.attempt, RunEvent.at, data["step"].as_integer())
    words = [data[name].as_string() for name in ("phase", "decoding", "to")]
    numbers = (data["num_rollouts"].as_integer(), data["seconds"].as_float())
    query = select(*columns, *words, *numbers).where(
        RunEvent.run_id == run_id, RunEvent.type.in_((*PHASE_TYPES, *START_TYPES, *STATUS_TYPES))
    )
    if step is not None:
        query = query.where(data["step"].as_integer() == step)
    return [
        Mark(
            type=row[0],
            attempt=row[1] or 0,
            at=seconds(row[2]),
            step=row[3],
            phase=row[4],
            decoding=row[5],
            status=row[6],
            num_rollouts=row[7],
            seconds=row[8],
        )
        for row in session.execute(query.order_by(RunEvent.seq))
    ]


def _timings(session: Session, run_id: str, step: int | None = None) -> Timings:
    query = select(Metric.attempt, Metric.step, Metric.name, Metric.value).where(
        Metric.run_id == run_id, Metric.name.startswith(TIMING), Metric.decoding == "train"
    )
    if step is not None:
        query = query.where(Metric.step == step)
    timings: dict[tuple[int, int], dict[str, float]] = defaultdict(dict)
    for attempt, at, name, value in session.execute(query):
        timings[attempt, at][name.removeprefix(TIMING)] = value
    return timings


def _outcomes(session: Session, run_id: str, step: int, attempt: int) -> Sequence[OutcomeRecord]:
    query = select(OutcomeRecord).where(
        OutcomeRecord.run_id == run_id,
        OutcomeRecord.step == step,
        OutcomeRecord.attempt == attempt,
    )
    return session.scalars(query).all()


def _name(trajectory: str) -> str:
    """Return the name that the file of times shares with the file of trajectories."""
    return PurePosixPath(trajectory).name.removesuffix(".jsonl.gz")


def _facts(outcome: OutcomeRecord) -> RolloutFacts:
    return RolloutFacts(
        name=f"{outcome.task_key} #{outcome.sample_index}",
        args={
            "rollout": outcome.rollout_id,
            "split": outcome.split,
            "decoding": outcome.decoding,
            "status": outcome.status,
            "score": outcome.score,
            "stop_reason": outcome.stop_reason,
            "turns": outcome.num_turns,
            "tokens": outcome.num_tokens,
        },
    )
