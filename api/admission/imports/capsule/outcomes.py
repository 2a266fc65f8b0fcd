"""Outcomes of a capsule, a step at a time, matched with the events that measured them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Table, literal, null, update
from sqlalchemy.orm import Session

from api.admission.imports.capsule.journal import MAX_ATTEMPT, MEASURED, StoredEvent, trainer_event
from api.admission.imports.errors import ImportRejected
from api.results.derive import EVAL, TRAIN, derive, to_draft
from api.tables import Eval, OutcomeRecord, Run, RunEvent
from hillclimb.blobs.archive.capsule import CapsuleArchive
from hillclimb.blobs.base import StoreError, checked_key
from hillclimb.protocol.events import Event, ProbeCompleted
from hillclimb.protocol.outcomes import OutcomeRow
from hillclimb.protocol.payloads.studies.capsule import OUTCOMES

MAX_OUTCOMES = 500_000
MAX_KEY_CHARS = 300
MAX_STEP = 1_000_000
INDEXED = ("rollout_id", "task_key", "env_key", "decoding", "split")
NULLABLE = tuple(
    column.key
    for column in OutcomeRecord.__table__.columns
    if column.nullable and OutcomeRow.model_fields[column.key].default is not None
)
"""Columns in which null says that nothing was counted, where an event of today has a 0."""

Place = tuple[int, str, str]
"""Attempt, split and decoding of the outcomes of one event."""
Rows = dict[Place, list[dict[str, Any]]]


def derive_steps(
    session: Session, run: Run, events: Mapping[int, list[StoredEvent]], archive: CapsuleArchive
) -> None:
    """Write the rows that follow from the events, by the code of ingest.

    `events` are the measured ones by step.

    Raises:
        ImportRejected: a line is no outcome, or belongs to no event.
    """
    rest = dict(events)
    for step, rows in _steps(archive):
        _derive_step(session, run, rest.pop(step, []), rows)
    for step in sorted(rest):
        _derive_step(session, run, rest[step], {})


def _derive_step(session: Session, run: Run, events: list[StoredEvent], rows: Rows) -> None:
    for event in events:
        place = _place(event)
        outcomes = rows.pop(place, []) if place else []
        known = [{k: v for k, v in each.items() if v is not None} for each in outcomes]
        model = trainer_event(event, known)
        derive(session, run, event.attempt or 1, [model])
        if _restore_nulls(session, run.id, outcomes):
            # They were stored with what an event of today has in the place of null.
            session.execute(update(Eval).where(*_of_place(run, place, model)).values(counts=null()))
        if isinstance(model, ProbeCompleted):
            _report_again(session, run, event, model)
    if rows:
        attempt, split, decoding = next(iter(rows))
        raise ImportRejected(
            f"{OUTCOMES} has {split} outcomes of attempt {attempt} under {decoding!r} that no"
            " event has measured."
        )


def _of_place(run: Run, place: Place | None, model: Event) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of the evaluation that an event measured; of none for other events."""
    attempt, split, decoding = place or (0, TRAIN, TRAIN)
    where = (Eval.run_id == run.id, Eval.attempt == attempt, Eval.decoding == decoding)
    return (*where, Eval.step == model.step, literal(split == EVAL))


def _place(event: StoredEvent) -> Place | None:
    """Return where the outcomes of an event are; None for an event without any."""
    attempt = event.attempt or 1
    if event.type == "step.completed":
        return attempt, TRAIN, TRAIN
    if event.type == "eval.completed":
        return attempt, EVAL, str(event.data.get("decoding"))
    return (attempt, TRAIN, "probe") if event.type == "probe.completed" else None


def _steps(archive: CapsuleArchive) -> Iterator[tuple[int, Rows]]:
    """Yield the outcomes of each step; a capsule has them in the order of steps."""
    last = -1
    for step, lines in groupby(_lines(archive), key=lambda line: int(line["step"])):
        if step <= last:
            raise ImportRejected(f"{OUTCOMES} is not in the order of steps: {step} after {last}.")
        last, rows = step, defaultdict(list)
        for line in lines:
            row = {name: value for name, value in line.items() if name not in ("attempt", "step")}
            rows[line["attempt"], row["split"], row["decoding"]].append(row)
        yield step, dict(rows)


def _lines(archive: CapsuleArchive) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(archive.lines(OUTCOMES), start=1):
        fault = _fault(line)
        if fault is None and number > MAX_OUTCOMES:
            fault = f"there are more than {MAX_OUTCOMES:,} outcomes"
        if fault is not None:
            raise ImportRejected(f"{OUTCOMES} line {number}: {fault}.")
        yield line


def _fault(line: object) -> str | None:
    """Return what is wrong with the parts of an outcome that no event checks."""
    if not isinstance(line, dict):
        return "it is no object"
    for name, largest in (("attempt", MAX_ATTEMPT), ("step", MAX_STEP)):
        value = line.get(name)
        if type(value) is not int or not 0 <= value <= largest:
            return f"{name} must be a number up to {largest:,}"
    for name in INDEXED:
        value = line.get(name)
        if not isinstance(value, str) or not value.isprintable() or len(value) > MAX_KEY_CHARS:
            return f"{name} must be printable text of at most {MAX_KEY_CHARS} characters"
    try:
        checked_key(str(line.get("trajectory")))
    except StoreError:
        return "trajectory is no key of a file"
    return None


def _report_again(session: Session, run: Run, event: StoredEvent, model: ProbeCompleted) -> None:
    """Replace the verdicts in a probe's event by those of its outcomes: they are read from it."""
    draft = to_draft(model, event.attempt or 1, pass_threshold=model.pass_threshold)
    where = (RunEvent.run_id == run.id) & (RunEvent.seq == event.seq)
    session.execute(update(RunEvent).where(where).values(data=draft.data))


def _restore_nulls(session: Session, run_id: str, rows: list[dict[str, Any]]) -> bool:
    """Store nulls of the capsule as nulls; tell whether there were any."""
    has_nulls = False
    table = OutcomeRecord.__table__
    assert isinstance(table, Table)
    for name in NULLABLE:
        ids = [row["rollout_id"] for row in rows if name in row and row[name] is None]
        if ids:
            has_nulls = True
            where = (table.c.run_id == run_id) & table.c.rollout_id.in_(ids)
            session.execute(update(table).where(where).values({name: null()}))
    return has_nulls


def measured_by_step(events: Iterator[StoredEvent]) -> dict[int, list[StoredEvent]]:
    """Return the events from which rows follow by their step; the others pass by."""
    by_step: dict[int, list[StoredEvent]] = defaultdict(list)
    for event in events:
        if event.type in MEASURED:
            step = event.data.get("step")
            if type(step) is not int or not 0 <= step <= MAX_STEP:
                raise ImportRejected(f"Event {event.seq} has no step up to {MAX_STEP:,}.")
            by_step[step].append(event)
    return dict(by_step)
