"""Recovers events that a trainer could not push from its segments in the blob store.

Used for a live trainer that is silent, and for the tail of an ended attempt before its run is
finalized. Recording is idempotent, so a late push of the same events does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from pydantic import ValidationError
from sqlalchemy import func, select

from api.runs import store as runs
from api.runs.errors import AttemptSuperseded, UnsupportedSchema
from api.runs.journal import utc_now
from api.runs.status import AttemptState
from api.scheduling.record import record
from api.tables import Attempt, Run
from hillclimb.blobs.base import BlobStore, StoreError
from hillclimb.protocol.events import EVENTS, Event
from hillclimb.protocol.refused_events import number_of, refuse
from hillclimb.protocol.rundir import event_segment, run_key
from worker.circuit_breaker import CircuitOpen
from worker.context import WorkerContext
from worker.deadlines import TRAINER_SILENCE_S

log = logging.getLogger(__name__)

BATCH = 200
"""Events recorded in one transaction."""
MAX_TRAINERS = 50


def sweep(context: WorkerContext, *, now: datetime | None = None) -> int:
    """Fetch the events that silent trainers could not push; returns the count of new ones."""
    limit = (now or utc_now()) - timedelta(seconds=TRAINER_SILENCE_S)
    live = (AttemptState.CLAIMED.value, AttemptState.RUNNING.value)
    silent = (
        select(Attempt.run_id, Attempt.number, Attempt.last_trainer_seq)
        .join(Run, (Run.id == Attempt.run_id) & (Run.attempt == Attempt.number))
        .where(Attempt.state.in_(live))
        .where(func.coalesce(Attempt.last_event_at, Attempt.claimed_at) < limit)
        # In random order, so that many which stay silent cannot starve the others.
        .order_by(func.random())
        .limit(MAX_TRAINERS)
    )
    with context.database.transaction() as session:
        attempts = session.execute(silent).all()
    num_events = 0
    for run_id, number, last in attempts:
        try:
            num_events += recover_tail(context, run_id, number, after=last)
        except CircuitOpen:
            break  # the same store has the others
        except StoreError as error:
            log.warning("events of run %s cannot be fetched: %s", run_id, error)
    return num_events


def recover_tail(context: WorkerContext, run_id: str, attempt: int, *, after: int) -> int:
    """Record the attempt's stored events that follow `after`; returns the count of new ones.

    Each batch has a transaction of its own; none is open while the store is read. Events of an
    attempt that is not the newest, or of a newer schema, are skipped: at its deadline the run goes
    on without them. Raises StoreError.
    """
    num_new = 0
    try:
        for batch in unseen_events(context.store, run_id, attempt, after=after):
            num_new += _record(context, run_id, attempt, batch)
    except (AttemptSuperseded, UnsupportedSchema) as error:
        log.warning("events of run %s attempt %d are skipped: %s", run_id, attempt, error)
    if num_new:
        log.info("fetched %d events of run %s attempt %d", num_new, run_id, attempt)
    return num_new


def _record(context: WorkerContext, run_id: str, number: int, batch: Sequence[Event]) -> int:
    with context.database.transaction() as session:
        run = runs.lock_run(session, run_id)
        attempt = runs.newest_attempt(session, run)
        if attempt is None or attempt.number != number:
            raise AttemptSuperseded(f"Attempt {run.attempt} owns run {run_id} now.")
        return record(session, run, attempt, batch, now=utc_now()).accepted


def unseen_events(
    store: BlobStore, run_id: str, attempt: int, *, after: int
) -> Iterator[Sequence[Event]]:
    """Yield the stored events that follow `after` without a gap, in batches.

    Reads segments from the newest backwards, only as far as needed. Raises StoreError.
    """
    segments: list[list[Event]] = []
    for key in reversed(_segments(store, run_id, attempt)):
        events = _parse(store.get(key), key)
        segments.append(events)
        if events and events[0].trainer_seq <= after + 1:
            break
    batch: list[Event] = []
    expected = after + 1
    for event in (event for segment in reversed(segments) for event in segment):
        if event.trainer_seq == expected:
            batch.append(event)
            expected += 1
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _segments(store: BlobStore, run_id: str, attempt: int) -> Sequence[str]:
    folder = event_segment(attempt, 1).rpartition("/")[0]
    return store.list(run_key(run_id, folder))


def _parse(blob: bytes, key: str) -> list[Event]:
    """Parse a segment; a line that is no event but has a number becomes an `event.refused`.

    Stops before a line without a number (it is torn), since the events after it would leave a gap,
    and before one of a newer schema.
    """
    events: list[Event] = []
    for line in blob.splitlines():
        try:
            events.append(EVENTS.validate_json(line))
        except ValidationError as error:
            number = number_of(line)
            log.warning("%s: line %d is no event: %s", key, len(events) + 1, error)
            if number is None:
                break
            first = error.errors(include_url=False, include_input=False)[0]["msg"]
            message = f"It is no event of this version: {first}."
            events.append(refuse(line, trainer_seq=number, message=message))
    return events
