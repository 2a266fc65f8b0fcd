"""Rows that ingest derives from events: one bulk statement per table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from sqlalchemy import update
from sqlalchemy.orm import Session

from api.results.evals.store import counts_to_store
from api.results.evals.summary import summarise
from api.runs.journal import Draft
from api.tables import (
    Checkpoint,
    ComputeRecord,
    Eval,
    Metric,
    OutcomeRecord,
    Run,
    StepSignalRecord,
)
from api.tables.bulk import upsert_rows
from api.tables.training.results import QUALIFIED, REFUSED
from hillclimb.protocol.events import (
    CheckpointDeleted,
    CheckpointQualified,
    CheckpointRefused,
    CheckpointSaved,
    EvalCompleted,
    Event,
    ProbeCompleted,
    StepAbandoned,
    StepCompleted,
    TrackingStarted,
)
from hillclimb.stats.probe_report import report_facts, report_rows
from hillclimb.stats.signal_report import step_signals

TRAINER = "trainer"
TRAIN, EVAL = "train", "eval"
ENVELOPE = {"type", "at", "trainer_seq", "schema_version", "outcomes"}

Row: TypeAlias = dict[str, Any]


def to_draft(event: Event, attempt: int, *, pass_threshold: float) -> Draft:
    """Return the event for the journal: its outcomes are replaced by a summary."""
    data = clean(event.model_dump_json(exclude=ENVELOPE))
    if isinstance(event, StepCompleted | EvalCompleted):
        k = None
        if isinstance(event, EvalCompleted):
            pass_threshold, k = event.pass_threshold, event.n_samples_per_prompt
        data |= without_nul(summarise(event.outcomes, pass_threshold=pass_threshold, k=k))
    if isinstance(event, ProbeCompleted):
        data |= _probe_facts(event, health=data["environments"])
    return Draft(
        type=event.type,
        actor=TRAINER,
        at=event.at,
        attempt=attempt,
        trainer_seq=event.trainer_seq,
        data=data,
    )


def derive(session: Session, run: Run, attempt: int, events: Sequence[Event]) -> None:
    """Write what the events measured, a table at a time; a repeat changes nothing."""
    key = {"run_id": run.id, "attempt": attempt}
    measured = [e for e in events if isinstance(e, StepCompleted | EvalCompleted)]
    upsert_rows(session, Metric, (row for e in measured for row in _metrics(e, key)))
    rolled_out = [*measured, *(e for e in events if isinstance(e, ProbeCompleted))]
    upsert_rows(session, OutcomeRecord, (row for e in rolled_out for row in _outcomes(e, key)))
    steps = [e for e in events if isinstance(e, StepCompleted)]
    group_size = run.spec["rollout"]["n_samples_per_prompt"]
    upsert_rows(session, StepSignalRecord, (r for e in steps for r in _signals(e, key, group_size)))
    # Figures without a single outcome, as of an old run's history, are metrics alone.
    evals = (e for e in events if isinstance(e, EvalCompleted) and e.outcomes)
    upsert_rows(session, Eval, (_eval(each, key) for each in evals))
    upsert_rows(session, ComputeRecord, (row for e in events for row in _ledger(e, key)))
    saved = [_checkpoint(e, key) for e in events if isinstance(e, CheckpointSaved)]
    upsert_rows(session, Checkpoint, saved)
    for event in events:
        if isinstance(event, TrackingStarted) and event.url is not None:
            run.links = run.links | {event.tracker: event.url}
        elif isinstance(event, CheckpointDeleted):
            _change_checkpoint(session, run.id, event.path, deleted_at=event.at)
        elif isinstance(event, CheckpointQualified):
            passed: Row = {"qualification": QUALIFIED, "refusal": None}
            _change_checkpoint(session, run.id, event.path, **passed)
        elif isinstance(event, CheckpointRefused):
            failed = {"qualification": REFUSED, "refusal": without_nul(event.reason)}
            _change_checkpoint(session, run.id, event.path, **failed)


def clean(text: str) -> Row:
    """Parse JSON without U+0000, which PostgreSQL cannot store and no reader needs."""
    parsed: Row = json.loads(text)
    if "\\u0000" not in text:
        return parsed
    cleaned: Row = without_nul(parsed)
    return cleaned


def without_nul(value: Any) -> Any:  # noqa: ANN401 (any JSON)
    """Return JSON with U+FFFD for each U+0000, which PostgreSQL cannot store."""
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd")
    if isinstance(value, list):
        return [without_nul(item) for item in value]
    if isinstance(value, dict):
        return {without_nul(name): without_nul(item) for name, item in value.items()}
    return value


def _probe_facts(event: ProbeCompleted, *, health: Row) -> Row:
    """Return a probe's event with totals and verdicts in place of its rows, and its health."""
    report = report_rows(
        event.outcomes, pass_threshold=event.pass_threshold, group_size=event.group_size
    )
    return {
        **summarise(event.outcomes, pass_threshold=event.pass_threshold),
        **report_facts(report),
        "health": health,
    }


def _metrics(event: StepCompleted | EvalCompleted, key: Row) -> Iterable[Row]:
    decoding = event.decoding if isinstance(event, EvalCompleted) else TRAIN
    place = {**key, "decoding": decoding, "step": event.step}
    for name, value in event.metrics.items():
        if math.isfinite(value):  # a NaN stays visible as null in the event
            yield {**place, "name": without_nul(name), "value": value}


def _outcomes(event: StepCompleted | EvalCompleted | ProbeCompleted, key: Row) -> Iterable[Row]:
    # One look at them all, in the serialiser: a walk through every value costs as much again.
    has_nul = "\\u0000" in event.model_dump_json(include={"outcomes"})
    for outcome in event.outcomes:
        row = outcome.model_dump(mode="json")
        yield {**key, "step": event.step, **(without_nul(row) if has_nul else row)}


def _signals(event: StepCompleted, key: Row, group_size: int) -> Iterable[Row]:
    for signal in step_signals(event.step, event.outcomes, group_size=group_size):
        yield {**key, **without_nul(asdict(signal))}


def _eval(event: EvalCompleted, key: Row) -> Row:
    return {
        **key,
        "step": event.step,
        "decoding": event.decoding,
        "temperature": event.temperature,
        "n_samples_per_prompt": event.n_samples_per_prompt,
        "pass_threshold": event.pass_threshold,
        "duration_s": event.duration_s,
        "at": event.at,
        "stopped_early": None if event.stopped_early is None else event.stopped_early.model_dump(),
        "counts": without_nul(counts_to_store(event.outcomes, pass_threshold=event.pass_threshold)),
    }


def _ledger(event: Event, key: Row) -> Iterable[Row]:
    """Yield the event's row of the ledger; none where its trainer does not count compute."""
    if isinstance(event, StepCompleted):
        place = {"kind": TRAIN, "decoding": TRAIN, "is_complete": True}
    elif isinstance(event, EvalCompleted):
        place = {"kind": EVAL, "decoding": event.decoding, "is_complete": True}
    elif isinstance(event, StepAbandoned):
        decoding = TRAIN if event.during == TRAIN else ""
        place = {"kind": event.during, "decoding": decoding, "is_complete": False}
    else:
        return
    if event.compute is not None:
        yield {**key, "step": event.step, **place, **event.compute.model_dump()}


def _checkpoint(event: CheckpointSaved, key: Row) -> Row:
    return {
        **key,
        "step": event.step,
        "path": event.path,
        "manifest_sha256": event.manifest_sha256,
        "size_bytes": event.size_bytes,
        "final": event.final,
        "saved_at": event.at,
        "deleted_at": None,
    }


def _change_checkpoint(session: Session, run_id: str, path: str, **values: object) -> None:
    session.execute(
        update(Checkpoint)
        .where(Checkpoint.run_id == run_id, Checkpoint.path == path)
        .values(values)
    )
